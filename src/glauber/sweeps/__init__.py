"""Many cells of a grid: in one process, in several, or on a Ray cluster, to the same bits."""
