"""Console logs of NeMo."""
