"""Contexts and tasks over HTTP."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial

from skep.base.answers import Output, OutputChunk, Page, Submitted, TaskIds
from skep.base.errors import Unavailable
from skep.client.transport import API, Noun, Patience, follow, pages
from skep.tasks.model import (
    Context,
    ContextSpec,
    ContextState,
    ContextView,
    Stream,
    Task,
    TaskSpec,
    TaskState,
    TaskView,
)

#: seconds for which the server lets one request wait
_LONGEST = 60.0
#: a followed output on which nothing happens says so more often than this
_SILENCE = 60.0


class Contexts(Noun):
    at = f"{API}/contexts"

    def submit(self, spec: ContextSpec) -> Context:
        return self._transport.call("POST", self.at, Context, body=spec)

    def add(self, id: str, tasks: Sequence[TaskSpec]) -> list[str]:
        """More tasks for a context that is still running; answers with their ids."""
        return self._transport.call("POST", self._of(id, "tasks"), TaskIds, body={"tasks": list(tasks)}).tasks

    def show(self, id: str, *, after: str = "", limit: int = 1000) -> ContextView:
        """With the tasks that come after the one called `after`, at most `limit`."""
        return self._transport.call("GET", self._of(id), ContextView, query={"after": after, "limit": limit})

    def cancel(self, id: str, reason: str = "") -> Context:
        """Asks for it and does not wait until all has ended."""
        return self._transport.call("POST", self._of(id, "cancel"), Context, query={"reason": reason})

    def retry(self, id: str) -> Context:
        """What FAILED or was ABORTED is submitted again."""
        return self._transport.call("POST", self._of(id, "retry"), Context)

    def wait(self, id: str, timeout: float | None = None) -> Context:
        """Until it has ended; after `timeout` seconds it may still be RUNNING. Comes back to a server that was away."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        context, patience = self._wait(id, 0.0), Patience(_LONGEST)
        while context.state == "RUNNING" and (left := until - time.monotonic()) > 0:
            try:
                context = self._wait(id, min(_LONGEST, left))
                patience.restart()
            except Unavailable as error:
                time.sleep(patience.pause(error))
        return context

    def _wait(self, id: str, seconds: float) -> Context:
        path, query = self._of(id, "wait"), {"seconds": seconds}
        return self._transport.call("GET", path, Context, query=query, timeout=seconds + 30)

    def remove(self, id: str) -> None:
        self._transport.call("DELETE", self._of(id), type(None))

    def list(self, *, state: ContextState | None = None, cause: str = "", limit: int = 100) -> Iterator[Context]:
        """Newest first, all of them, in pages of `limit`."""
        return pages(self._transport, self.at, Page[Context], limit, state=state, cause=cause)


class Tasks(Noun):
    at = f"{API}/tasks"

    def submit(self, spec: TaskSpec) -> Submitted:
        """One task, in a context of its own."""
        return self._transport.call("POST", self.at, Submitted, body=spec)

    def show(self, id: str) -> TaskView:
        return self._transport.call("GET", self._of(id), TaskView)

    def cancel(self, id: str, reason: str = "") -> Task:
        return self._transport.call("POST", self._of(id, "cancel"), Task, query={"reason": reason})

    def output(self, id: str, *, attempt: int | None = None, stream: Stream | None = None) -> Iterator[OutputChunk]:
        """What it has written until now."""
        after = -1
        while True:
            query = {"after": after, "attempt": attempt, "stream": stream}
            found = self._transport.call("GET", self._of(id, "output"), Output, query=query)
            yield from found.chunks
            if not found.chunks:
                return
            after = found.after

    def follow(self, id: str, *, stream: Stream | None = None) -> Iterator[OutputChunk]:
        """What it has written and writes, until it has ended; comes back when the server was away."""
        return follow(partial(self._events, id, stream), lambda chunk: f"{chunk.attempt}/{chunk.n}")

    def _events(self, id: str, stream: Stream | None, last: str) -> Iterator[OutputChunk | None]:
        """None for every sign of life that is no output."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        query = {"follow": "1", "stream": stream}
        lines = self._transport.lines(self._of(id, "output"), query=query, headers=headers, timeout=_SILENCE)
        with closing(lines):
            for line in lines:
                if line == "event: ended":
                    return
                found = line.startswith("data:")
                yield self._transport.decoded(line[5:].encode(), OutputChunk) if found else None
        raise Unavailable(f"the server ended the output of {id!r}")

    def list(self, *, state: TaskState | None = None, worker: str = "", limit: int = 100) -> Iterator[Task]:
        """Newest first, all of them, in pages of `limit`."""
        return pages(self._transport, self.at, Page[Task], limit, state=state, worker=worker)
