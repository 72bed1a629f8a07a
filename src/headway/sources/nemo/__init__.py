"""Console logs of NeMo."""

from headway.sources.nemo.source import NeMo

__all__ = ["NeMo"]
