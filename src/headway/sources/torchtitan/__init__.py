"""Logs of torchtitan."""
