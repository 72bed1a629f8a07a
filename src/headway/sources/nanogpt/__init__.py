"""Logs of the nanoGPT family."""
