"""Packages: pushed, checked, kept by content. A version never changes, unless it ends with -SNAPSHOT."""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import IO

import msgspec

from skep.access.audit import note
from skep.clock import Clock
from skep.engines.blobs.base import Blobs
from skep.engines.db.base import Database, Row, Tx, one_row, upserting
from skep.errors import BadInput, Conflict, NotFound, TooLarge
from skep.model.answers import Page
from skep.model.caller import Caller
from skep.model.package import SNAPSHOT, Manifest, Package
from skep.model.task import ContextSpec
from skep.packages import manifest
from skep.packages.archive import Bounds, unpack

STEPS = [
    """
    CREATE TABLE package (
        ref TEXT PRIMARY KEY, manifest BYTEA NOT NULL, blob TEXT NOT NULL, size BIGINT NOT NULL,
        pushed_at DOUBLE PRECISION NOT NULL, pushed_by TEXT NOT NULL
    );
    CREATE INDEX package_blob ON package (blob)
    """
]
_BLOCK = 1 << 20
_manifest = msgspec.json.Decoder(Manifest).decode


class Packages:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        blobs: Blobs,
        data: Path,
        bounds: tuple[int, int],
        elsewhere: Callable[[str], Awaitable[bool]],
    ) -> None:
        """`bounds`: bytes of an archive, and of what is in it. `elsewhere`: do others keep these bytes too?"""
        self._db = db
        self._clock = clock
        self.blobs = blobs
        self._incoming = data / "incoming"
        self._largest = bounds[0]
        self._bounds = Bounds(bounds[1])
        self._elsewhere = elsewhere
        #: nobody stores a blob that somebody else is about to delete
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        await self._db.migrate("packages", STEPS)

    async def push(self, caller: Caller, chunks: AsyncIterable[bytes], sha256: str = "") -> Package:
        """Nothing is stored before all of it has come, is what its checksum says, and was looked at. The same bytes
        again are no error."""
        caller.need("write")
        await asyncio.to_thread(self._incoming.mkdir, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._incoming, prefix="package-") as file:
            digest = await self._take(chunks, file.file)
            if sha256 not in ("", digest):
                raise BadInput(
                    f"this archive is {digest}, not {sha256[:64]}", hint="it was damaged on its way; push again"
                )
            found = manifest.parse(await asyncio.to_thread(unpack, Path(file.name), self._bounds))
            package = Package(found, digest, file.tell(), self._clock.now(), caller.subject)
            async with self._turn:
                await self.blobs.put(_chunks(file.file))
                try:
                    return await self._store(caller, package)
                finally:
                    await self._drop(digest)

    async def _take(self, chunks: AsyncIterable[bytes], file: IO[bytes]) -> str:
        hashed, size = hashlib.sha256(), 0
        async for chunk in chunks:
            size += len(chunk)
            if size > self._largest:
                raise TooLarge(f"a package may have {self._largest:,} bytes", hint="the setting package_limit says so")
            hashed.update(chunk)
            await asyncio.to_thread(file.write, chunk)
        file.flush()
        return hashed.hexdigest()

    async def _store(self, caller: Caller, package: Package) -> Package:
        ref = package.manifest.ref

        async def work(tx: Tx) -> Row:
            rows = await tx.rows("SELECT * FROM package WHERE ref = :ref FOR UPDATE", ref=ref)
            if rows and rows[0]["blob"] == package.blob:
                return rows[0]
            stored = {**msgspec.structs.asdict(package), "ref": ref, "manifest": msgspec.json.encode(package.manifest)}
            again = "WHERE :again = 1 OR package.blob = excluded.blob RETURNING *"
            put = f"{upserting('package', stored, 'ref')} {again}"
            made = await tx.rows(put, **stored, again=int(ref.endswith(SNAPSHOT)))
            if not made:
                raise Conflict(
                    f"{ref} was pushed already, and is another archive",
                    hint=f"raise its version; one that ends with {SNAPSHOT} may be pushed again",
                )
            await note(tx, package.pushed_at, caller, "package.push", ref)
            return {**made[0], "old": rows[0]["blob"] if rows else ""}

        row = await self._db.write(work)
        if old := row.get("old"):
            await self._drop(old)
        return _package(row)

    async def _drop(self, blob: str) -> None:
        """Unless a package has it, or something else whose bytes are the same."""
        rows = await self._db.read("SELECT 1 AS x FROM package WHERE blob = :blob LIMIT 1", blob=blob)
        if not rows and not await self._elsewhere(blob):
            await self.blobs.delete(blob)

    async def show(self, caller: Caller, ref: str) -> Package:
        caller.need("read")
        manifest.split(ref)
        rows = await self._db.read("SELECT * FROM package WHERE ref = :ref", ref=ref)
        missing = NotFound(f"there is no package {ref!r}", hint="`skep package list` shows those there are")
        return _package(one_row(rows, missing))

    async def content(self, caller: Caller, ref: str) -> tuple[Package, AsyncIterator[bytes]]:
        """With its archive."""
        package = await self.show(caller, ref)
        return package, self.blobs.open(package.blob)

    async def context(self, caller: Caller, ref: str, template: str, properties: dict[str, str]) -> ContextSpec:
        return manifest.context((await self.show(caller, ref)).manifest, template, properties)

    async def remove(self, caller: Caller, ref: str) -> None:
        caller.need("write")
        package = await self.show(caller, ref)

        async def work(tx: Tx) -> None:
            await tx.rows("DELETE FROM package WHERE ref = :ref", ref=ref)
            await note(tx, self._clock.now(), caller, "package.remove", ref)

        async with self._turn:
            await self._db.write(work)
            await self._drop(package.blob)

    async def list(self, caller: Caller, *, prefix: str = "", page: str = "", limit: int = 100) -> Page[Package]:
        """By name; `prefix` is the beginning of it: a group, or GROUP/NAME."""
        caller.need("read")
        rows = await self._db.read(
            "SELECT * FROM package WHERE ref > :page AND substr(ref, 1, length(:prefix)) = :prefix "
            "ORDER BY ref LIMIT :limit",
            page=page,
            prefix=prefix,
            limit=limit + 1,
        )
        return Page([_package(row) for row in rows[:limit]], rows[limit - 1]["ref"] if len(rows) > limit else "")


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    file.seek(0)
    while chunk := await asyncio.to_thread(file.read, _BLOCK):
        yield chunk


def _package(row: Row) -> Package:
    return Package(_manifest(row["manifest"]), row["blob"], row["size"], row["pushed_at"], row["pushed_by"])
