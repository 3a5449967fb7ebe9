"""A bounded buffer that is emptied in the background, in order, in batches of one topic."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from skep.client.topics import Outgoing
from skep.errors import BadInput, Busy, SkepError, TooLarge, Unavailable

log = logging.getLogger(__name__)

Post = Callable[[str, Sequence[Outgoing]], object]
#: called with the error, the topic and the messages that were not stored
Failed = Callable[[SkepError, str, Sequence[Outgoing]], object]

#: messages and bytes that go into one request
_MOST = 500
_BYTES = 500_000


class Buffer:
    def __init__(self, post: Post, room: int, on_error: Failed | None) -> None:
        self._post = post
        self._room = room
        self._on_error = on_error
        self._waiting: deque[tuple[str, Outgoing, int]] = deque()
        self._changed = threading.Condition()
        #: taken from `_waiting` and not yet stored
        self._under_way = 0
        self._lost = 0
        self._error: SkepError | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    def put(self, topic: str, message: Outgoing, block: bool) -> None:
        size = len(msgspec.json.encode(message))
        with self._changed:
            while len(self._waiting) + self._under_way >= self._room and not self._stopping:
                if not block:
                    raise Busy(f"{self._room} messages are buffered already", hint="flush, or wait")
                self._changed.wait()
            if self._stopping:
                raise Unavailable("the producer was stopped", hint="make another one")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="skep-producer", daemon=True)
                self._thread.start()
            self._waiting.append((topic, message, size))
            self._changed.notify_all()

    def flush(self) -> None:
        with self._changed:
            while self._waiting or self._under_way:
                self._changed.wait()
            error, self._error = self._error, None
            lost, self._lost = self._lost, 0
        if error:
            error.add_note(f"{lost} of the buffered messages were not stored")
            raise error

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self.flush()

    def _run(self) -> None:
        while batch := self._take():
            topic, messages = batch
            self._store(topic, messages)
            with self._changed:
                self._under_way = 0
                self._changed.notify_all()

    def _take(self) -> tuple[str, list[Outgoing]] | None:
        """As many as go into one request; None at the end."""
        with self._changed:
            while not self._waiting:
                if self._stopping:
                    return None
                self._changed.wait()
            topic, size = self._waiting[0][0], 0
            messages: list[Outgoing] = []
            while self._waiting and self._waiting[0][0] == topic and len(messages) < _MOST:
                size += self._waiting[0][2]
                if messages and size > _BYTES:
                    break
                messages.append(self._waiting.popleft()[1])
            self._under_way = len(messages)
            return topic, messages

    def _store(self, topic: str, messages: list[Outgoing]) -> None:
        """A message that the server refuses must not take its neighbours with it; one by one they keep their order."""
        try:
            self._post(topic, messages)
        except (BadInput, TooLarge) as error:
            if len(messages) == 1:
                self._failed(error, topic, messages)
                return
            for message in messages:
                self._store(topic, [message])
        except SkepError as error:
            self._failed(error, topic, messages)
            if isinstance(error, Unavailable):
                self._give_up(error)

    def _give_up(self, error: SkepError) -> None:
        """When it is to stop, a server that is away is not waited for once more with every batch."""
        while self._stopping and (batch := self._take()):
            self._failed(error, *batch)

    def _failed(self, error: SkepError, topic: str, messages: list[Outgoing]) -> None:
        with self._changed:
            self._error = self._error or error
            self._lost += len(messages)
        if self._on_error:
            try:
                self._on_error(error, topic, messages)
            except Exception:
                log.exception("on_error of a producer failed")
