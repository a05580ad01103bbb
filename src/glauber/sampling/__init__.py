"""From a model and texts to a stored run."""
