"""Skep over HTTP: `Client().sources.add(url)`; the same nouns and verbs as the API and the command line.

Producers and consumers are imported when they are asked for: a command that searches does not pay for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skep.client.client import Client

if TYPE_CHECKING:
    from skep.client.asynchronous import AsyncClient, AsyncConsumer, AsyncProducer
    from skep.client.consumer import Consumer
    from skep.client.producer import Producer
    from skep.client.queue import MyConsumer, MyProducer

__all__ = [
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "Client",
    "Consumer",
    "MyConsumer",
    "MyProducer",
    "Producer",
]

_HOMES = {
    "AsyncClient": "asynchronous",
    "AsyncConsumer": "asynchronous",
    "AsyncProducer": "asynchronous",
    "Consumer": "consumer",
    "MyConsumer": "queue",
    "MyProducer": "queue",
    "Producer": "producer",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"skep.client.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
