"""Logs of MaxText."""
