"""What a model says about hidden sites; the folders next to the code are bundled models."""
