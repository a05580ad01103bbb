"""The live page: watch a chain, ask it, change it."""
