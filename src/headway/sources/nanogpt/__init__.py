"""Logs of the nanoGPT family: iterations with a time each, or the speedrun's steps with the training time so far."""

from headway.sources.nanogpt.source import NanoGPT

__all__ = ["NanoGPT"]
