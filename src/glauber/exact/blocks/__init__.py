"""What if blocks of sites are hidden together? Masks, their dynamics and learning (paper B)."""
