"""Headroom's command line: one module a sub-command, and what they share."""

__version__ = "0.1.0"
