"""How fast is the engine, beside the loops that people write by hand? `make bench`"""
