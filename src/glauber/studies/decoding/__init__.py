"""Writing from nothing: which hidden sites are filled next, how many at once, which again?"""
