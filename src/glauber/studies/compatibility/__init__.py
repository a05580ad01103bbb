"""Could one joint law own these conditionals?"""
