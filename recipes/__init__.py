"""How the models that glauber ships or is tried on were made."""
