"""Entries of Google's goodput recorder."""
