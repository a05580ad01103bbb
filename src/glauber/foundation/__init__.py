"""What every room may use: results, errors, progress, files, tables, statistics."""
