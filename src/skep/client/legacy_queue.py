"""The topic queue of old, with its names: a producer and a consumer that know their numbers.

New programs take `Producer` and `Consumer`, which retry, read in batches and share partitions.
"""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from skep.base.errors import BadInput, NeedsToken, NoSpace, NotAllowed, NotFound, SkepError, TooLarge, Unavailable
from skep.client.client import Client
from skep.client.producer import connect, names
from skep.topics.api import NOTHING_LEFT

#: these routes answer with a sentence and a status, without a code
_BY_STATUS = {kind.status: kind for kind in (BadInput, NeedsToken, NotAllowed, TooLarge, Unavailable, NoSpace)}


class NothingLeft(NotFound, LookupError):
    """The consumer has read everything; more may come."""

    code = "nothing_left"


class _Answer(msgspec.Struct):
    status: Literal["Success", "Failure"]
    message: Any = None
    producer_id: int = -1
    consumer_id: int = -1
    size: int = 0


class _End:
    """`broker` is the URL of a server, or a Client; `topics` are the numbers that the server gave for them."""

    def __init__(self, topics: str | Iterable[str], broker: str | Client) -> None:
        self.broker = broker
        self.topics: dict[str, int] = {}
        self._transport = connect(broker, None).transport
        try:
            for topic in names(topics):
                self.topics[topic] = self._register(topic)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self._transport.close()

    def _register(self, topic: str) -> int:
        raise NotImplementedError

    def _number(self, topic: str) -> int:
        if topic not in self.topics:
            raise BadInput(f"this one is not registered for {topic!r}", hint=f"it is for {', '.join(self.topics)}")
        return self.topics[topic]

    def _ask(self, method: str, path: str, **fields: str | int) -> _Answer:
        query, body = (fields, None) if method == "GET" else (None, fields)
        status, data = self._transport.exchange(method, path, query=query, body=body)
        try:
            answer = msgspec.json.decode(data, type=_Answer)
        except msgspec.MsgspecError:
            raise self._transport.error(status, data) from None
        if answer.status == "Success":
            return answer
        if answer.message == NOTHING_LEFT:
            raise NothingLeft(f"everything in {fields['topic']!r} was read", hint="ask has_next first, or come again")
        raise _BY_STATUS.get(status, SkepError)(str(answer.message))


class MyProducer(_End):
    """`MyProducer(["news"], "http://127.0.0.1:7337").send("news", "hello")`"""

    def send(self, topic: str, message: str) -> None:
        """Stored on return."""
        self._ask("POST", "/producer/produce", topic=topic, producer_id=self._number(topic), message=message)

    def _register(self, topic: str) -> int:
        return self._ask("POST", "/producer/register", topic=topic).producer_id


class MyConsumer(_End):
    """Begins with the first message of each topic."""

    def has_next(self, topic: str) -> bool:
        return self.size(topic) > 0

    def get_next(self, topic: str) -> str:
        """NothingLeft, which is a LookupError, when everything was read."""
        message = self._ask("GET", "/consumer/consume", topic=topic, consumer_id=self._number(topic)).message
        return str(message)

    def size(self, topic: str) -> int:
        """How many messages are left to read."""
        return self._ask("GET", "/size", topic=topic, consumer_id=self._number(topic)).size

    def _register(self, topic: str) -> int:
        return self._ask("POST", "/consumer/register", topic=topic).consumer_id
