"""Pages: results, runs and the modules that every page loads (web/)."""
