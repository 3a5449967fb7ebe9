"""A forge for tests: real git over HTTP on loopback, with faults on request."""

from skep.testing.forge.repo import Repo
from skep.testing.forge.server import Fault, Forge, Request

__all__ = ["Fault", "Forge", "Repo", "Request"]
