"""Object formats: what of an object is kept follows from the type of its format."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from importlib.resources import files

import msgspec

from skep.base.clock import Clock
from skep.base.errors import SkepError
from skep.dataone.client import Refused
from skep.dataone.types import FormatType, MediaType, ObjectFormat, ObjectFormatList
from skep.storage.database import Database, Tx

log = logging.getLogger(__name__)

STEPS = ["CREATE TABLE format_list (id BIGINT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, body BYTEA NOT NULL)"]
_MOST = 10_000
_EVERY, _LOOK = 86_400.0, 60.0
#: objects whose bytes we want from now on
_WANT = """
    UPDATE offer SET state = 'queued', due = 0, tries = 0 WHERE state = 'held' AND pid IN
        (SELECT pid FROM sysmeta WHERE format = :format AND kind = 'DATA' AND blob IS NULL AND deleted = 0)
"""


class Formats:
    """Those that are shipped, and what was learned since. An unknown format is kept as data, and judged again later."""

    def __init__(self) -> None:
        self.all = {one.format_id: one for one in _shipped()}
        #: types that are not as shipped
        self.learned: dict[str, FormatType] = {}

    def type_of(self, format_id: str) -> FormatType:
        found = self.all.get(format_id)
        return found.format_type if found else "DATA"

    def learn(self, given: Iterable[ObjectFormat]) -> list[str]:
        """Those that are no longer data."""
        fresh = [one for one in given if self.all.get(one.format_id) != one]
        types = {one.format_id: one.format_type for one in fresh if one.format_type != self.type_of(one.format_id)}
        self.all |= {one.format_id: one for one in fresh}
        self.learned |= types
        return [id for id, type in types.items() if type != "DATA"]


class FormatList:
    """The list of another Coordinating Node, taken over from time to time."""

    def __init__(self, db: Database, clock: Clock, formats: Formats) -> None:
        self._db = db
        self._clock = clock
        self._formats = formats
        self._at = 0.0

    async def start(self) -> None:
        await self._db.migrate("formats", STEPS)
        await self.load()

    async def load(self) -> None:
        """As far as another process has taken it over."""
        for row in await self._db.read("SELECT at, body FROM format_list WHERE at > :at", at=self._at):
            self._formats.learn(msgspec.msgpack.decode(row["body"], type=ObjectFormatList).object_format)
            self._at = row["at"]

    async def follow(self, fetch: Callable[[], Awaitable[ObjectFormatList]] | None) -> None:
        """For ever; `fetch` asks the other node, once a day among all processes."""
        while True:
            await self.load()
            if fetch is not None and self._at + _EVERY <= self._clock.now():
                await self._refresh(fetch)
            await asyncio.sleep(_LOOK)

    async def _refresh(self, fetch: Callable[[], Awaitable[ObjectFormatList]]) -> None:
        try:
            await self.take(await fetch())
        except (Refused, SkepError) as error:
            log.warning("the list of formats does not come", extra={"reason": str(error)})

    async def take(self, given: ObjectFormatList) -> None:
        """What is missing in it stays known."""
        if not 0 < len(given.object_format) <= _MOST:
            log.warning("a list of formats is not taken over", extra={"formats": len(given.object_format)})
            return
        now, wanted = self._clock.now(), self._formats.learn(given.object_format)

        async def work(tx: Tx) -> None:
            await tx.rows(
                "INSERT INTO format_list (id, at, body) VALUES (0, :now, :body) "
                "ON CONFLICT (id) DO UPDATE SET at = excluded.at, body = excluded.body",
                now=now,
                body=msgspec.msgpack.encode(given),
            )
            await tx.many(_WANT, [{"format": format} for format in wanted])

        await self._db.write(work)
        self._at = now


def _shipped() -> Iterable[ObjectFormat]:
    for line in files("skep.dataone").joinpath("formats.tsv").read_text("utf-8").splitlines():
        id, type, media, extension, name = line.split("\t")
        # the file says no other types
        yield ObjectFormat(id, name, type, MediaType(media) if media else None, extension or None)  # type: ignore[arg-type]
