"""Stands for the package where only this folder is in PYTHONPATH, for a Python that Headroom is not installed for."""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[2])]
