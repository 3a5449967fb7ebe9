"""Skep mirrors git repositories, keeps them fresh, makes them searchable and tells what changed."""

__version__ = "0.1.0"
