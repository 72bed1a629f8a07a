"""Headway's own log."""
