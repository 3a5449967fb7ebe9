"""Topics hold messages in partitions; nothing is removed by reading."""

import msgspec


class Part(msgspec.Struct, frozen=True):
    """One partition of a topic."""

    topic: str
    partition: int = 0


class Draft(msgspec.Struct, frozen=True):
    """A message before it has an offset."""

    body: bytes
    #: the producer's id of this message, to tell repeats
    id: str = ""
    key: str = ""
    headers: dict[str, str] = {}


class Message(msgspec.Struct, frozen=True):
    offset: int
    at: float
    id: str
    key: str
    headers: dict[str, str]
    body: bytes
