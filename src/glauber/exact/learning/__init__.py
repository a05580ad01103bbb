"""When does learning conditionals learn the joint law? Masks, losses, fits and their errors."""
