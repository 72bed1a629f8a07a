"""Slurm: what its commands print, read as one pool of jobs and devices."""
