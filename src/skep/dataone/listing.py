"""Listing a Member Node, on the worker that holds it: window by window, page by page, each told to the coordinator."""

import logging
from collections.abc import Sequence
from functools import partial

import msgspec

from skep.dataone.client import BUSY, NodeClient, Refused, Window, choose
from skep.dataone.rpc import Harvest, Listed, Queued
from skep.dataone.types import ObjectInfo, ObjectList
from skep.sources.model import Failure, Held
from skep.sources.source_type import Ask

log = logging.getLogger(__name__)

PAGE = 1_000
#: objects of one window, which is listed again whole when it was not steady
WINDOW = 5_000
_STEADY_TRIES = 3
#: bytes of one ask, well below what a frame may have
ASK_BYTES = 500_000


class Unsteady(Exception):
    """A list that does not hold together: nothing is concluded from it."""


class Listing:
    def __init__(self, source: Held, plan: Harvest, client: NodeClient, ask: Ask) -> None:
        self._source = source
        self._plan = plan
        self._client = client
        self._ask = ask
        #: objects that wait in the queue
        self.due = plan.due
        #: where listing goes on; None: everything is listed
        self.rest: int | None = None
        #: why it was not
        self.failed: Refused | Unsteady | None = None

    @property
    def _me(self) -> tuple[str, int]:
        return self._source.source, self._source.epoch

    @property
    def waiting(self) -> int:
        return self.due

    async def list_on(self) -> None:
        """From where it rests. A list that fails keeps nobody from bringing what waits."""
        if self.rest is not None:
            since, self.rest = self.rest, None
            try:
                await self.list_all(since, full=False)
            except (Refused, Unsteady) as error:
                if isinstance(error, Refused) and error.status in BUSY:
                    raise
                self.failed = error

    async def list_all(self, since: int, *, full: bool) -> Failure | bool:
        """Until all is listed (True), or enough waits (False): then `rest` says where to go on."""
        span: int | None = None
        while True:
            if self.waiting >= self._plan.queue[1] and not full:
                self.rest = since
                return False
            now = self._client.now
            window = await self._choose(since, now, span)
            missing = await self._list(window, full, window.place(now))
            if window.until is not None and not self._client.ends:
                continue  # it takes no notice of ends: then without
            if window.until is None:
                return _lost(self._source, missing) if missing else True
            since, span = window.until, window.until - since

    async def _choose(self, since: int, now: int, span: int | None) -> Window:
        if not (self._client.slices and self._client.ends):
            return Window(since, None)
        probes = choose(since, now, WINDOW, span)
        window = next(probes)
        try:
            while True:
                window = probes.send((await self._client.list(window, 0, 0)).total)
                if not (self._client.slices and self._client.ends):
                    return Window(since, None)
        except StopIteration as end:
            found: Window = end.value
            return found

    async def _list(self, window: Window, full: bool, place: int) -> str:
        """Of what leaves the list meanwhile others take the places, also those on pages that were read: then it says
        fewer than before, and is listed again."""
        for _ in range(_STEADY_TRIES):
            seen: set[int] = set()
            page = await self._client.list(window, 0, PAGE)
            start, unread, most = 0, 0, page.total
            while page.object_info or page.unread:
                if any(window.until and one.date_sys_metadata_modified >= window.until for one in page.object_info):
                    self._client.ends = False
                    return ""
                before = len(seen) + unread
                seen.update(hash(one.identifier) for one in page.object_info)
                start += len(page.object_info) + len(page.unread)
                unread += len(page.unread)
                if start == page.total or len(seen) + unread == before or not self._client.slices:
                    break
                await self.tell(page, full=full)
                page = await self._client.list(window, start, PAGE)
                most = max(most, page.total)
            if len(seen) + unread >= most:
                return (await self.tell(page, full=full, place=place, last=window.until is None)).missing
            await self.tell(page, full=full)
            self._client.try_everything()
        raise Unsteady(f"its list says {most} objects, and has {len(seen) + unread}")

    async def tell(self, page: ObjectList, *, full: bool, place: int | None = None, last: bool = False) -> Queued:
        caps = [
            word for word, can in (("start and count", self._client.slices), ("toDate", self._client.ends)) if not can
        ]
        notes = [f"it does not know {' and '.join(caps)}"] if caps else []
        if self._client.moved:
            notes.append(f"it has moved: its list is at {self._client.moved[:200]}")
        if page.unread:
            notes.append(f"{len(page.unread)} entries of its list cannot be read, such as {page.unread[0]}")
            log.warning("entries of a list cannot be read", extra={"node": self._source.url, "entries": page.unread})
        note = "; ".join(notes)
        skew = self._client.skew
        *before, end = lots(page.object_info)
        told = partial(Listed, *self._me, full=full, passing=self._plan.passing, skew=skew, note=note)
        for lot in before:
            await self._ask(told(entries=lot))
        found = await self._ask(told(entries=end, place=place, last=last))
        assert isinstance(found, Queued)
        self.due = found.due
        return found


def weight(one: msgspec.Struct) -> int:
    return len(msgspec.msgpack.encode(one))


def lots(entries: Sequence[ObjectInfo]) -> list[tuple[ObjectInfo, ...]]:
    """As many as fit into one ask each; at least one, which may be empty. What is larger by itself is left out."""
    found: list[list[ObjectInfo]] = [[]]
    size = 0
    for one in entries:
        if (heavy := weight(one)) > ASK_BYTES:
            continue
        if size + heavy > ASK_BYTES:
            found.append([])
            size = 0
        found[-1].append(one)
        size += heavy
    return [tuple(lot) for lot in found]


def _lost(source: Held, missing: str) -> Failure:
    loss, _, count = missing.partition(" ")
    message = f"{source.url} no longer lists {count} objects; `skep source accept` deletes what it really has not"
    return Failure("emptied", message, loss=loss)
