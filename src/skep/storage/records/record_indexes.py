"""Records as shelves, one for each kind: threads to search them, one that writes, and commits that are shared."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec

from skep.base.errors import BadInput, Busy, Damaged, NotFound
from skep.storage.records.base import (
    MOST_DEPTH,
    MOST_RECORDS,
    Ask,
    Field,
    Found,
    Kind,
    OneOf,
    Page,
    Record,
    Value,
    checked,
)
from skep.storage.records.query import Tree, parse

log = logging.getLogger(__name__)

_READERS = 4
_MOST_FACET = 1000
T = TypeVar("T")

Change = Sequence[Record] | OneOf


class Shelf(ABC):
    """The records of one kind. Everything here computes or waits: in threads."""

    def __init__(self, kind: Kind) -> None:
        """Damaged when there is something that cannot be used, or is not of these fields."""
        self.kind = kind
        self.fields = {field.name: field for field in kind.fields}

    def prepare(self, change: Change) -> None:
        """BadInput before anything is written."""
        if isinstance(change, OneOf):
            _choosable(self.kind, change)
            return
        for record in change:
            checked(self.fields, record)

    def search(self, ask: Ask) -> Page:
        for name in ask.facets:
            if not self.kind.need(name, "count").faceted:
                raise BadInput(f"the values of {name!r} are not counted")
        if not (ask.start >= 0 and 0 <= ask.limit <= MOST_RECORDS and ask.start + ask.limit <= MOST_DEPTH):
            raise BadInput(
                f"no records {ask.start} to {ask.start + ask.limit}",
                hint=f"at most {MOST_RECORDS} at once, and {MOST_DEPTH} in all: narrow the query to see others",
            )
        for by, _ in ask.orders:
            field = self.kind.need(by, "sort by")
            if field.type == "text" or field.many:
                raise BadInput(f"records cannot be sorted by {by!r}, which holds text or several values")
        for one in ask.only:
            _choosable(self.kind, one)
        return self.page(parse(self.kind, ask.text), ask)

    def body(self, record: Record) -> bytes:
        """What is given back of it."""
        stored = {name: value for name, value in record.values.items() if self.fields[name].stored}
        return msgspec.json.encode((record.id, stored))

    @property
    @abstractmethod
    def is_filled(self) -> bool: ...

    @abstractmethod
    def filled(self) -> None: ...

    @abstractmethod
    def apply(self, changes: Sequence[Change]) -> None:
        """Durable, and found, on return."""

    @abstractmethod
    def page(self, tree: Tree, ask: Ask) -> Page:
        """TimeoutError when it takes longer than `ask.seconds`, if it can tell."""

    @abstractmethod
    def verify(self) -> None:
        """Raises Damaged."""

    @abstractmethod
    def close(self) -> None: ...


def _choosable(kind: Kind, one: OneOf) -> None:
    field = kind.need(one.field, "choose by")
    if field.type not in ("keyword", "int"):
        raise BadInput(f"{one.field!r} holds {field.type}; records are chosen by a keyword or an int")


def found(body: bytes, score: float) -> Found:
    id, values = msgspec.json.decode(body)
    return Found(id, values, score)


def arranged(records: list[Found], orders: Sequence[tuple[str, bool]]) -> list[Found]:
    """By these fields and then by id; who has none comes last, whichever way."""
    records = sorted(records, key=lambda one: one.id)
    for name, falls in reversed(orders):
        values: dict[str, Any] = {one.id: one.id if name == "id" else one.values.get(name) for one in records}
        has = [one for one in records if values[one.id] is not None]
        has.sort(key=lambda one, values=values: values[one.id], reverse=falls)  # type: ignore[misc]
        records = has + [one for one in records if values[one.id] is None]
    return records


def declared(kind: Kind) -> bytes:
    return msgspec.json.encode(kind.fields)


def aggregations(ask: Ask, in_part: str) -> dict[str, Any]:
    """Of its facets; each part of the index names this many times more values, so that the sums are right."""
    size = min(max(1, ask.facet_size), _MOST_FACET)
    return {name: {"terms": {"field": name, "size": size, in_part: 10 * size}} for name in ask.facets}


def counted(field: Field, buckets: list[dict[str, Any]]) -> list[tuple[Value, int]]:
    """A facet, from what an aggregation answers."""
    made = {"bool": bool, "int": int}.get(field.type, str)
    return [(made(one["key"]), one["doc_count"]) for one in buckets]


class Shelved(ABC):
    """A Records engine that opens a shelf for each kind."""

    def __init__(self) -> None:
        self._shelves: dict[str, Shelf] = {}
        #: what waits to be written, by kind: a commit costs the same for one change and for many
        self._waiting: dict[str, deque[tuple[Change, Future[None]]]] = {}
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="records")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="records-writer")

    async def declare(self, kind: Kind) -> bool:
        return await _run(self._writer, lambda: self._open(kind))

    async def filled(self, kind: str) -> None:
        await _run(self._writer, self._shelf(kind).filled)

    async def put(self, kind: str, records: Sequence[Record]) -> None:
        if records:
            await self._write(kind, records)

    async def delete(self, kind: str, which: OneOf) -> None:
        await self._write(kind, which)

    async def search(self, kind: str, ask: Ask) -> Page:
        shelf = self._shelf(kind)
        try:
            async with asyncio.timeout(ask.seconds):
                return await _run(self._readers, lambda: shelf.search(ask))
        except TimeoutError:
            raise Busy(
                f"the search took longer than {ask.seconds:g} seconds", hint="narrow the query, or try again later"
            ) from None

    async def check(self, kind: str) -> bool:
        return await _run(self._writer, partial(self._check, self._shelf(kind)))

    async def close(self) -> None:
        shelves, self._shelves = self._shelves, {}
        for shelf in shelves.values():
            await _run(self._writer, shelf.close)
        for executor in (self._readers, self._writer):
            await asyncio.to_thread(executor.shutdown)

    def _shelf(self, kind: str) -> Shelf:
        if kind not in self._shelves:
            raise NotFound(f"there are no records of kind {kind[:100]!r}")
        return self._shelves[kind]

    async def _write(self, kind: str, change: Change) -> None:
        await _run(self._readers, partial(self._shelf(kind).prepare, change))
        done: Future[None] = Future()
        self._waiting[kind].append((change, done))
        self._writer.submit(self._drain, kind)
        await asyncio.wrap_future(done)

    # in the writer's thread

    @abstractmethod
    def open(self, kind: Kind) -> Shelf:
        """Made when there is none; Damaged when it cannot be used."""

    @abstractmethod
    def set_aside(self, kind: Kind) -> None:
        """Out of the way of a new one."""

    def _open(self, kind: Kind) -> bool:
        try:
            shelf = self.open(kind)
        except Damaged as error:
            log.error("records are set aside", extra={"kind": kind.name, "reason": error.message})
            self.set_aside(kind)
            shelf = self.open(kind)
        self._shelves[kind.name] = shelf
        self._waiting.setdefault(kind.name, deque())
        return not shelf.is_filled

    def _check(self, shelf: Shelf) -> bool:
        try:
            shelf.verify()
        except Damaged:
            shelf.close()
            self._open(shelf.kind)
            return True
        return False

    def _drain(self, kind: str) -> None:
        """Everything that has come in while the last commit ran, in one commit. Who was cancelled is left out."""
        waiting = self._waiting[kind]
        taken = [waiting.popleft() for _ in range(len(waiting))]
        taken = [one for one in taken if one[1].set_running_or_notify_cancel()]
        if not taken:
            return
        try:
            self._shelves[kind].apply([change for change, _ in taken])
        except BaseException as error:
            for _, done in taken:
                done.set_exception(error)
        else:
            for _, done in taken:
                done.set_result(None)


async def _run(executor: Executor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(executor, work)
