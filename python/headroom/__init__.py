"""Headroom's command line: one module a sub-command, and what they share."""
