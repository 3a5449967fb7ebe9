"""Skep over HTTP: `Client().sources.add(url)`; the same nouns and verbs as the API and the command line.

Producers and consumers are imported when they are asked for: a command that searches does not pay for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skep.client.client import Client

if TYPE_CHECKING:
    from skep.client.asynchronous import AsyncClient, AsyncConsumer, AsyncProducer
    from skep.client.consumer import Consumer
    from skep.client.legacy_queue import MyConsumer, MyProducer
    from skep.client.producer import Producer

#: where the modules stand that are named in tables
_MODULES = {
    "async_space": "skep.client.async_space",
    "asynchronous": "skep.client.asynchronous",
    "benchmarks": "skep.client.benchmarks",
    "client": "skep.client.client",
    "consumer": "skep.client.consumer",
    "credentials": "skep.client.credentials",
    "dataone": "skep.client.dataone",
    "keeper": "skep.client.consumer",
    "line": "skep.client.producer",
    "lists": "skep.client.lists",
    "packages": "skep.client.packages",
    "patience": "skep.client.transport",
    "producer": "skep.client.producer",
    "queue": "skep.client.legacy_queue",
    "readings": "skep.client.consumer",
    "results": "skep.client.results",
    "rules": "skep.client.rules",
    "searches": "skep.client.searches",
    "sending": "skep.client.producer",
    "spaces": "skep.client.spaces",
    "tasks": "skep.client.tasks",
    "topics": "skep.client.topics",
    "transport": "skep.client.transport",
    "whereabouts": "skep.client.transport",
    "workers": "skep.client.workers",
}


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
        return getattr(import_module(_MODULES[_HOMES[name]]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
