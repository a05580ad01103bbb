"""How docs/, the notebooks and the docstrings become one site: `make docs`."""
