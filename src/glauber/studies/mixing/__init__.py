"""How fast is the start forgotten?"""
