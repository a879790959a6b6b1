"""Errors, settings, events and the console: what every room may use."""
