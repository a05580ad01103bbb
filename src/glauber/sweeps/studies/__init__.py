"""What a sweep's cells can be made of: one file per study."""
