"""Tables of clusters and schedulers, read by a mapping of their columns."""
