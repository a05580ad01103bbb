"""One forward pass for every encoder: described (`description`), read off a model (`read`)."""
