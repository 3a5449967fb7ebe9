"""Following lists: what is asked is what is, not what happened.

A list whose repository stands at another commit than the one read last is read again, and in it every file whose stamp
is another one. So a kill at any moment costs only the file that was being read.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.base.errors import SkepError
from skep.base.ids import new_id
from skep.sources.catalogue import CATALOGUE, MOVED, Address
from skep.sources.git.documents import Entry as TreeEntry
from skep.sources.git.documents import contents, list_tree
from skep.sources.lists.apply import Apply, Wanted
from skep.sources.lists.asking import Asking, Refused
from skep.sources.lists.hosts import Forges, Manifest, Manifests, Place, manifest_of, place_of
from skep.sources.lists.list_file import LARGEST, Node, Parsed, Problem, ToAddress, ToSettings, parse, parse_defaults
from skep.sources.lists.service import LOST
from skep.sources.model import SourceSettings
from skep.sources.service import Sources
from skep.storage.database import Database, Row, Tx
from skep.topics.api import Draft
from skep.topics.service import FAILURES, Topics

# The files of a list in its mirror: which there are, what each depends on, and what they say. Plain, for a thread.

DEFAULTS = "DEFAULTS"
MOST_FILES = 100_000


class File(msgspec.Struct, frozen=True):
    path: str
    #: None: too large to be read
    oid: str | None
    #: git blobs of the DEFAULTS files above it, nearest last
    defaults: tuple[str, ...]

    @property
    def stamp(self) -> str:
        """The file says the same as long as this is the same."""
        return hashlib.blake2b("\0".join((self.oid or "", *self.defaults)).encode(), digest_size=16).hexdigest()


def files(folder: Path, commit: str) -> list[File]:
    """TooLarge when there are more than a list may have."""
    found = [entry for entry in list_tree(folder, commit, MOST_FILES) if entry.mode in (0o100644, 0o100755)]
    defaults = {_path(entry).parent: entry.oid for entry in found if _path(entry).name == DEFAULTS and _fits(entry)}
    listed = [(_path(entry), entry) for entry in found if is_list(_path(entry))]
    return [
        File(str(path), entry.oid if _fits(entry) else None, tuple(_above(path, defaults))) for path, entry in listed
    ]


def is_list(path: PurePosixPath) -> bool:
    """`any/where.yaml`, and files without an ending in folders: `l/linux/linux`."""
    if path.name == DEFAULTS or any(part.startswith(".") for part in path.parts):
        return False
    return path.suffix in (".yaml", ".yml") or (not path.suffix and len(path.parts) > 1)


def read_files(
    folder: Path, wanted: Sequence[File], address: ToAddress, settings: ToSettings
) -> Iterator[tuple[File, Parsed]]:
    """DEFAULTS that cannot be used are told with each file below them."""
    shared = dict.fromkeys(oid for file in wanted for oid in file.defaults)
    defaults = {oid: parse_defaults(data or b"") for oid, data in _contents(folder, shared)}
    texts = dict(_contents(folder, dict.fromkeys(file.oid for file in wanted if file.oid)))
    for file in wanted:
        data = texts.get(file.oid) if file.oid else None
        if data is None:
            reason = "cannot be read" if file.oid else f"is larger than {LARGEST:,} bytes"
            yield file, Parsed([], [Problem(1, f"the file {reason}")])
            continue
        merged: dict[str, Node] = {}
        for oid in file.defaults:
            merged |= defaults[oid][0]
        parsed = parse(file.path, data, merged, address, settings)
        wrong = [Problem(p.line, f"{DEFAULTS}: {p.message}") for oid in file.defaults for p in defaults[oid][1]]
        yield file, msgspec.structs.replace(parsed, problems=parsed.problems + wrong)


def _contents(folder: Path, oids: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
    wanted = list(oids)
    return contents(folder, wanted) if wanted else iter(())


def _above(path: PurePosixPath, defaults: dict[PurePosixPath, str]) -> Iterator[str]:
    return (defaults[folder] for folder in reversed(path.parents) if folder in defaults)


def _path(entry: TreeEntry) -> PurePosixPath:
    return PurePosixPath(entry.path.decode("utf-8", "backslashreplace"))


def _fits(entry: TreeEntry) -> bool:
    return entry.size is not None and entry.size <= LARGEST


log = logging.getLogger(__name__)

#: a list that would remove more than this share and this many of its sources waits for a person
BRAKE_SHARE, BRAKE_COUNT = 0.05, 10
#: files in memory at the same time
_FILES_AT_ONCE = 16
#: seconds between two tries to read what could not be read
_AGAIN = 60.0
#: rooms that keep the whole catalogue in memory hear of additions so often while a long list is read
_RING_EVERY = 60.0
#: who asks for what stands in a list: nobody who may see this machine's folders
_STRANGER = Caller("list", frozenset({"read", "write"}))
_DUE = """
    SELECT list.*, entry.version AS newest FROM list LEFT JOIN source ON source.id = list.source
    LEFT JOIN entry ON entry.source = source.id AND entry.name = 'refs/heads/' || source.default_branch
    WHERE list.state = 'removed' OR (list.state = 'waiting' AND list.confirmed = list.version)
        OR (list.next_read <= :now AND (list.kind <> 'git' OR entry.version <> list.version)) ORDER BY list.id
"""


class Follower:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        topics: Topics,
        sources: Sources,
        apply: Apply,
        mirror: Callable[[str], Path],
        asking: Asking,
        every: float,
        manifest_every: float,
        has: Callable[[str, str], Awaitable[bool]] | None = None,
    ) -> None:
        """`has`: is a commit of a source in its mirror yet? One that another machine holds is copied first."""
        self._db = db
        self._clock = clock
        self._topics = topics
        self._sources = sources
        self._apply = apply
        #: where the mirror of a source is
        self._mirror = mirror
        self._forges = Forges(asking)
        self._manifests = Manifests(asking)
        self._every = every
        self._manifest_every = manifest_every
        self._has = has
        self._rang = 0.0

    async def follow(self) -> None:
        """For ever."""
        async with self._db.listen(MOVED) as bell:
            while True:
                await self.step()
                await bell.wait(min(30.0, self._manifest_every))

    async def step(self) -> None:
        """Read every list that has moved or whose time has come, and carry out what was confirmed."""
        for row in await self._db.read(_DUE, now=self._clock.now()):
            try:
                if await self._is_here(row):
                    await self._bring(row)
            except Exception as error:
                if not isinstance(error, SkepError | Refused):  # an odd one keeps no others waiting
                    log.exception("a list could not be read", extra={"list": row["id"]})
                pause = error.pause if isinstance(error, Refused) else 0.0
                await self._failed(row, str(error), max(pause, _AGAIN))

    async def _is_here(self, row: Row) -> bool:
        if self._has is None or row["kind"] != "git" or row["state"] == "removed" or not row["newest"]:
            return True
        return await self._has(row["source"], row["newest"])

    async def _bring(self, row: Row) -> None:
        if row["state"] == "removed":
            await self._purge(row["id"])
            return
        if row["state"] == "waiting" and row["confirmed"] == row["version"]:
            version = row["version"]
        else:
            version = await self._read(row)
        await self._settle(row, version)

    async def _read(self, row: Row) -> str:
        if row["kind"] != "git" and (place := place_of(row["url"])):
            return await self._read_forge(row, place)
        if row["kind"] == "manifest" and (manifest := manifest_of(row["url"])):
            return await self._read_manifest(row, manifest)
        return await self._read_git(row)

    async def _read_git(self, row: Row) -> str:
        folder, commit = self._mirror(row["source"]), row["newest"]
        found = await asyncio.to_thread(files, folder, commit)
        stamps = await self._stamps(row["id"])
        changed = iter([file for file in found if stamps.get(file.path) != file.stamp])
        while chunk := list(islice(changed, _FILES_AT_ONCE)):
            read = await asyncio.to_thread(self._parse, folder, chunk)
            for file, said in read:
                await self._apply.file(
                    Wanted(row["id"], file.path, file.stamp, said.entries, said.problems, row["visibility"])
                )
            await self._ring()
        for path in stamps.keys() - {file.path for file in found}:
            await self._apply.file(Wanted(row["id"], path, ""))
        return str(commit)

    def _parse(self, folder: Path, files: Sequence[File]) -> list[tuple[File, Parsed]]:
        return list(read_files(folder, files, self._address, self._settings))

    async def _read_forge(self, row: Row, place: Place) -> str:
        stamps = await self._stamps(row["id"])
        if not await self._forges.changed(place, tuple(filter(None, stamps.get("", "").split("\n")))):
            return str(row["version"])
        said = await self._forges.listing(
            place, self._address, forks=bool(row["forks"]), archived=bool(row["archived"])
        )
        stamp = "\n".join(said.etags) if all(said.etags) else "\n"
        await self._apply.file(Wanted(row["id"], "", stamp, said.entries, said.problems, row["visibility"]))
        return said.version

    async def _read_manifest(self, row: Row, manifest: Manifest) -> str:
        stamp = (await self._stamps(row["id"])).get("", "")
        said = await self._manifests.read(manifest, stamp.strip(), self._address)
        if said is None:
            return str(row["version"])
        stamp = said.etags[0] or "\n"
        await self._apply.file(Wanted(row["id"], "", stamp, said.entries, said.problems, row["visibility"]))
        return said.version

    async def _settle(self, row: Row, version: str) -> None:
        """Take away what is gone, or wait for a person when it is suspiciously much."""
        lost = int((await self._db.read(LOST, list=row["id"]))[0]["n"])
        sums = await self._db.read("SELECT sum(entries) AS n FROM list_file WHERE list = :list", list=row["id"])
        living = int(sums[0]["n"] or 0)
        much = lost > BRAKE_COUNT and lost > BRAKE_SHARE * (living + lost)
        waits = (much or (lost > 1 and not living)) and row["confirmed"] != version
        gone = await self._db.read("SELECT 1 AS n FROM listed WHERE list = :list AND gone = 1 LIMIT 1", list=row["id"])
        while gone and not waits and await self._apply.remove(row["id"]):
            pass
        told = row["state"] == "waiting" and row["version"] == version
        same = (row["version"], row["state"]) == (version, "current")
        now = self._clock.now()

        async def work(tx: Tx) -> None:
            await tx.rows(
                "UPDATE list SET state = :state, version = :version, waiting = :waiting, failure = '', "
                "read_at = :now, next_read = :next WHERE id = :id AND state <> 'removed'",
                state="waiting" if waits else "current",
                version=version,
                waiting=lost if waits else 0,
                now=now,
                next=self._next(row["kind"], now),
                id=row["id"],
            )
            if waits and not told:
                message = (
                    f"{row['url']} would remove {lost:,} of {living + lost:,} sources; `skep list confirm` lets it"
                )
                await self._topics.tell(tx, FAILURES, [_notice(row, "list_waits", message, now)], now)
            if not same:
                tx.ring(CATALOGUE)

        await self._db.write(work, runtime=same)

    def _next(self, kind: str, now: float) -> float:
        """Files in git are read when they have moved."""
        if kind == "git":
            return 0.0
        return now + (self._manifest_every if kind == "manifest" else self._every)

    async def _failed(self, row: Row, message: str, pause: float) -> None:
        now = self._clock.now()

        async def work(tx: Tx) -> None:
            await tx.rows(
                "UPDATE list SET state = CASE WHEN state IN ('removed', 'waiting') THEN state ELSE 'failing' END, "
                "failure = :message, next_read = :next WHERE id = :id",
                message=message,
                next=now + min(pause, self._every),
                id=row["id"],
            )
            if row["failure"] != message:
                await self._topics.tell(tx, FAILURES, [_notice(row, "list_failing", message, now)], now)

        await self._db.write(work)

    async def _purge(self, list: str) -> None:
        while await self._apply.remove(list, all=True):
            pass

        async def work(tx: Tx) -> None:
            for table, key in (("list_file", "list"), ("list_problem", "list"), ("list", "id")):
                await tx.rows(f"DELETE FROM {table} WHERE {key} = :list", list=list)  # noqa: S608

        await self._db.write(work)

    async def _stamps(self, list: str) -> dict[str, str]:
        rows = await self._db.read("SELECT file, stamp FROM list_file WHERE list = :list", list=list)
        return {row["file"]: row["stamp"] for row in rows}

    async def _ring(self) -> None:
        now = self._clock.now()
        if now - self._rang < _RING_EVERY:
            return
        self._rang = now

        async def work(tx: Tx) -> None:
            tx.ring(CATALOGUE)

        await self._db.write(work)

    def _address(self, url: str) -> Address:
        return self._sources.address(_STRANGER, "git", url)

    def _settings(self, values: Mapping[str, Any]) -> SourceSettings:
        return self._sources.settings("git", values)


def _notice(row: Row, kind: str, message: str, now: float) -> Draft:
    id = new_id("flr", now)
    event = {"id": id, "list": row["id"], "url": row["url"], "kind": kind, "message": message, "at": now}
    return Draft(msgspec.json.encode(event), id, row["id"])
