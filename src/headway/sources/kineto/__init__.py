"""Traces of profilers, read as what each device did and waited for."""
