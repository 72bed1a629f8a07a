"""Traces of profilers, read as what each device did and waited for."""

from headway.sources.kineto.source import facts, merge

__all__ = ["facts", "merge"]
