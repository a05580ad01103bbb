"""Where does the chain get stuck, and for how long?"""
