"""How strongly does block dynamics pull towards its law? Constants of functional inequalities."""
