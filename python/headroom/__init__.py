"""Headroom's command line: `headroom run` and `headroom doctor`."""

__version__ = "0.1.0"
