"""A forge for tests: real git over HTTP on loopback, with faults on request."""

from tests.support.forge.repository import Repo
from tests.support.forge.server import Fault, Forge, Request

__all__ = ["Fault", "Forge", "Repo", "Request"]
