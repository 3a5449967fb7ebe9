"""Packages are stored whole or not at all, and a version stays what it was."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadInput, Conflict, NotAllowed, NotFound, SkepError, TooLarge, Unavailable
from skep.config.settings import Settings
from skep.interfaces.http.app import create_app
from skep.packages.api import Package
from skep.packages.service import Packages, Turns
from tests.dataone.objects import NODE, meta_of
from tests.packages.making import files, tar, zipped
from tests.support.dataone_objects import put_object
from tests.tasks.house import Engine, MovableClock

READER = Caller("reader", frozenset({"read"}))
REF = "org.example/bench/1.0"


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), 1000):
        yield body[at : at + 1000]


async def blobs(engine: Engine) -> set[str]:
    return {info.id async for info in engine.core.packages.blobs.list()}


async def test_pushed_shown_listed_downloaded_removed(engine: Engine) -> None:
    room, body = engine.core.packages, tar(files())
    digest = hashlib.sha256(body).hexdigest()
    package = await room.push(SYSTEM, pieces(body), digest)
    assert (package.manifest.ref, package.blob, package.size) == (REF, digest, len(body))
    assert await room.show(READER, REF) == package
    await room.push(SYSTEM, pieces(zipped(files("2.0"))))
    assert [one.manifest.version for one in (await room.list(READER)).items] == ["1.0", "2.0"]
    page = await room.list(READER, prefix="org.example/", limit=1)
    assert page.next_page == REF
    assert [one.manifest.version for one in (await room.list(READER, page=REF)).items] == ["2.0"]
    assert (await room.list(READER, prefix="org.ex%")).items == []
    found, content = await room.content(READER, REF)
    assert b"".join([chunk async for chunk in content]) == body and found == package
    await room.remove(SYSTEM, REF)
    assert digest not in await blobs(engine)
    for verb in (room.show, room.remove):
        with pytest.raises(NotFound, match="no package"):
            await verb(SYSTEM, REF)
    with pytest.raises(BadInput, match="is no package"):
        await room.show(SYSTEM, "org.example/../bench")


async def test_bytes_that_others_keep_too_stay(engine: Engine) -> None:
    room, store, body = engine.core.packages, engine.core.dataone.store, tar(files())
    package = await room.push(SYSTEM, pieces(body))
    assert await put_object(store, meta_of("same", body), body, NODE) == "new"
    await room.remove(SYSTEM, REF)
    assert package.blob in await blobs(engine)


async def test_a_version_is_pushed_once(engine: Engine) -> None:
    room, body = engine.core.packages, tar(files())
    first = await room.push(SYSTEM, pieces(body))
    assert await room.push(SYSTEM, pieces(body)) == first
    with pytest.raises(Conflict, match=r"1\.0 was pushed already, and is another archive"):
        await room.push(SYSTEM, pieces(tar(files(more="x"))))
    assert await blobs(engine) == {first.blob}
    old = await room.push(SYSTEM, pieces(tar(files("1-SNAPSHOT"))))
    new = await room.push(SYSTEM, pieces(tar(files("1-SNAPSHOT", more="x"))))
    assert (await room.show(SYSTEM, "org.example/bench/1-SNAPSHOT")).blob == new.blob != old.blob
    assert await blobs(engine) == {first.blob, new.blob}


async def test_of_many_pushes_at_once_one_wins(engine: Engine) -> None:
    room = engine.core.packages
    bodies = [tar(files("3.0", more=str(n))) for n in range(4)]
    ended = await asyncio.gather(*(room.push(SYSTEM, pieces(body)) for body in bodies), return_exceptions=True)
    assert sorted(type(one).__name__ for one in ended) == ["Conflict"] * 3 + ["Package"]
    assert await blobs(engine) == {(await room.show(SYSTEM, "org.example/bench/3.0")).blob}


async def test_what_one_coordinator_stores_another_does_not_delete(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, body = engine.core.packages, tar(files())
    there = Packages(here._db, here._clock, here.blobs, tmp_path, (1 << 30, 1 << 30), here._elsewhere)
    await here.push(SYSTEM, pieces(body))
    delete, pushing = here.blobs.delete, list[asyncio.Task[Package]]()

    async def delayed(id: str) -> None:
        """Somebody pushes the same bytes at this moment, and could be done long ago."""
        pushing.append(asyncio.create_task(there.push(SYSTEM, pieces(body))))
        await asyncio.wait(pushing, timeout=0.5)
        monkeypatch.undo()
        await delete(id)

    monkeypatch.setattr(here.blobs, "delete", delayed)
    await here.remove(SYSTEM, REF)
    package = await pushing[0]
    assert (await here.show(SYSTEM, REF)).blob == package.blob
    assert await blobs(engine) == {package.blob}


async def test_a_turn_that_nobody_keeps_is_over(engine: Engine) -> None:
    clock = MovableClock()
    turns = Turns(engine.core.packages._db, clock)
    async with turns.of("b") as first:
        clock.ahead += 31
        async with turns.of("b") as second:
            with pytest.raises(Unavailable, match="took too long"):
                await turns._db.write(lambda tx: turns.need(tx, "b", first))
            await turns._db.write(lambda tx: turns.need(tx, "b", second))


async def test_nothing_is_left_of_what_is_refused(engine: Engine) -> None:
    room = engine.core.packages
    room._largest = 20_000
    cases: list[tuple[bytes, str, type[SkepError], str]] = [
        (tar(files()), "0" * 64, BadInput, "this archive is"),
        (tar(files() | {"../x": b""}), "", BadInput, "leads out"),
        (b"x" * 20_001, "", TooLarge, "may have 20,000 bytes"),
        (tar({"skep-package.toml": b"="}), "", BadInput, "skep-package.toml"),
    ]
    for body, digest, kind, says in cases:
        with pytest.raises(kind, match=says):
            await room.push(SYSTEM, pieces(body), digest)
    with pytest.raises(NotAllowed):
        await room.push(READER, pieces(tar(files())))
    assert await blobs(engine) == set()
    assert list(room._incoming.iterdir()) == []


async def test_over_http(engine: Engine) -> None:
    core, body = engine.core, tar(files())
    admin = (await core.access.create(SYSTEM, "tester", ["admin"])).token
    app: Any = create_app(core, Settings())
    headers = {"authorization": f"Bearer {admin}"}
    url = "http://127.0.0.1:7337/api/v1/packages"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), headers=headers, base_url=url) as client:
        wrong = await client.post("", content=body, params={"sha256": "f" * 64})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "bad_input")
        large = await client.post("", content=tar(files("9.0") | {"noise": b"\x01" * 3_000_000}))
        assert large.status_code == 201, large.text
        pushed = await client.post("", content=pieces(body))
        assert pushed.json()["manifest"]["name"] == "bench"
        assert (await client.post("", content=tar(files(more="x")))).status_code == 409
        assert len((await client.get("")).json()["items"]) == 2
        got = await client.get("/org.example/bench/1.0/archive")
        assert (got.content, got.headers["etag"]) == (body, f'"{pushed.json()["blob"]}"')
        made = await client.post("/org.example/bench/1.0/run", json={"template": "twice", "properties": {"a": "b"}})
        assert (made.json()["name"], made.json()["properties"]) == ("twice", {"a": "b"})
        view = await core.contexts.show(SYSTEM, made.json()["id"])
        spec = (await core.tasks.show(SYSTEM, view.tasks[0].id)).spec
        assert (spec.package, spec.command, spec.argv) == (REF, "run", ("once",))
        assert (await client.delete("/org.example/bench/1.0")).status_code == 204
        assert (await client.get("/org.example/bench/1.0")).status_code == 404
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=url) as nobody:
            assert (await nobody.post("", content=body)).status_code == 401
