"""Skep over HTTP: `Client().sources.add(url)`; the same nouns and verbs as the API and the command line."""

from skep.client.client import Client

__all__ = ["Client"]
