"""The command line, pages, plots, and other doors to the studies."""
