"""Does a run's folder outlast what can befall it: damage, kills and power cuts?"""
