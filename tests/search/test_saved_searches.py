"""Saved searches: what a change newly matches is told, once, and to nobody who may not see it."""

import msgspec
import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadInput, BadQuery, Conflict, NeedsToken, NotAllowed, NotFound
from skep.search.api import NewMatches, SearchSpec
from skep.storage.code_index.model import Fence
from skep.storage.code_index.trigram.searcher import Tables
from skep.topics import service
from skep.topics.api import Draft
from tests.support.postgres import fresh_database

from .conftest import READER, Library, OpenLibrary

WRITER = Caller("writer", frozenset({"read", "write"}))
TODO = SearchSpec("TODO")


async def told(library: Library, topic: str = "skep.searches") -> list[tuple[str, str, list[str]]]:
    """Search, path and lines of every message so far."""
    messages = await library.core.topics.read(SYSTEM, topic, 0, 1000)
    found = [msgspec.json.decode(message.body, type=NewMatches) for message in messages]
    assert [one.id for one in found] == [message.id for message in messages]
    assert len({one.id for one in found}) == len(found)
    return [(one.search, one.hit.path, [line.text for line in one.hit.lines]) for one in found]


async def test_only_what_is_new_is_told(library: Library) -> None:
    await library.core.searches.save(SYSTEM, "todo", TODO)
    await library.add("a/b", {"a.txt": "TODO one\nx\n", "b.txt": "y\n"})
    assert await told(library) == [], "a first index tells nothing"
    await library.change("a/b", {"a.txt": "new first line\nTODO one\nTODO two\n"})
    assert await told(library) == [("todo", "a.txt", ["TODO two"])]
    await library.change("a/b", {"a.txt": "TODO two\nTODO one\n", "c.txt": "TODO one\n"}, ("b.txt",))
    assert (await told(library))[1:] == [("todo", "c.txt", ["TODO one"])]
    await library.change("a/b", {"c.txt": "done\n"})
    await library.change("a/b", {"c.txt": "TODO one\n"})
    assert (await told(library))[2:] == [("todo", "c.txt", ["TODO one"])], "it was gone, and is new again"
    files = {"a.txt": "TODO two\nTODO one\n", "c.txt": "TODO one\n", "d.txt": "TODO\n"}
    await library.change("a/b", files, whole=True)
    assert (await told(library))[3:] == [("todo", "d.txt", ["TODO"])], "an index built anew"


async def test_a_file_that_is_found_by_its_name_is_told_when_it_comes(library: Library) -> None:
    await library.core.searches.save(SYSTEM, "keys", SearchSpec(r"file:\.pem$"))
    await library.core.searches.save(SYSTEM, "elsewhere", SearchSpec(r"file:\.pem$ repo:nowhere"))
    await library.add("a/b", {"a.txt": "x\n"})
    await library.change("a/b", {"my.pem": "secret\n", "a.txt": "y\n"})
    await library.change("a/b", {"my.pem": "another\n"})
    assert [(search, path) for search, path, _ in await told(library)] == [("keys", "my.pem")]


async def test_a_first_index_is_told_if_asked_for(library: Library) -> None:
    await library.core.searches.save(SYSTEM, "todo", SearchSpec("TODO", first=True))
    await library.add("a/b", {"a.txt": "TODO\n"})
    assert await told(library) == [("todo", "a.txt", ["TODO"])]


async def test_private_sources_are_told_only_where_only_those_read_who_may(library: Library) -> None:
    await library.core.topics.create(SYSTEM, "news")
    for caller, name in ((SYSTEM, "admin"), (WRITER, "writer")):
        await library.core.searches.save(caller, f"{name}-own", TODO)
        await library.core.searches.save(caller, f"{name}-news", SearchSpec("TODO", topic="news"))
    await library.add("hidden/x", {"a.txt": "x\n"}, "private")
    await library.change("hidden/x", {"a.txt": "TODO\n"})
    assert [name for name, _, _ in await told(library)] == ["admin-own"]
    assert await told(library, "news") == []
    await library.add("open/x", {"a.txt": "x\n"})
    await library.change("open/x", {"a.txt": "TODO\n"})
    assert [name for name, _, _ in await told(library, "news")] == ["admin-news", "writer-news"]


async def test_an_index_with_a_database_of_its_own_tells_through_the_relay(
    open_library: OpenLibrary, postgres_url: str
) -> None:
    async with fresh_database(postgres_url) as url, open_library(url) as library:
        own, topics = library.rooms.searcher.db, library.core.topics
        assert own is not topics.db
        await library.core.searches.save(SYSTEM, "todo", TODO)
        await library.add("a/b", {"a.txt": "x\n"})
        await library.change("a/b", {"a.txt": "TODO\n"})
        await library.change("a/b", {"b.txt": "TODO\n"})
        rows = await own.read("SELECT * FROM relay ORDER BY n")
        assert await service.step(own, topics.log) == 2
        assert await service.step(own, topics.log) == 0
        wanted = [("todo", "a.txt", ["TODO"]), ("todo", "b.txt", ["TODO"])]
        assert await told(library) == wanted
        await own.write(lambda tx: service.put(tx, rows[0]["topic"], [Draft(rows[0]["body"], rows[0]["id"])]))
        await service.step(own, topics.log)
        assert await told(library) == wanted, "killed before it was struck off, it is carried again, and told once"


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_killed_around_the_adoption(
    open_library: OpenLibrary, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before: nothing is told, and the delta that is built anew tells it. After: the same delta tells no more."""
    adopt = Tables.adopt

    async def killed(self: Tables, *args: object) -> bool:
        if moment == "after":
            await adopt(self, *args)  # type: ignore[arg-type]
        raise Killed

    async with open_library() as library:
        await library.core.searches.save(SYSTEM, "todo", TODO)
        await library.add("a/b", {"a.txt": "x\n"})
        delta = library.delta("a/b", {"a.txt": "TODO\n"})
        fence = Fence(delta.source, 1, 2000.0)
        with monkeypatch.context() as patched:
            patched.setattr(Tables, "adopt", killed)
            with pytest.raises(Killed):
                await library.adoption.adopt(fence, delta, 0.0)
    async with open_library() as again:
        assert await told(again) == ([] if moment == "before" else [("todo", "a.txt", ["TODO"])])
        if moment == "before":
            again.ids = library.ids
            delta = again.delta("a/b", {"a.txt": "TODO\n"})
        assert await again.adoption.adopt(fence, delta, 0.0)
        assert await told(again) == [("todo", "a.txt", ["TODO"])]
        assert await again.paths("TODO") == ["a.txt"]


async def test_a_large_change_is_cut(library: Library) -> None:
    await library.core.searches.save(SYSTEM, "todo", TODO)
    await library.add("a/b", {"a.txt": "x\n"})
    await library.change("a/b", {f"{n}.txt": "".join(f"TODO {m}\n" for m in range(60)) for n in range(150)})
    messages = await library.core.topics.read(SYSTEM, "skep.searches", 0, 1000)
    found = [msgspec.json.decode(message.body, type=NewMatches) for message in messages]
    assert len(found) == 100
    assert all(one.more and one.hit.more and len(one.hit.lines) == 50 for one in found)


async def test_names_queries_and_owners_are_checked(library: Library) -> None:
    searches = library.core.searches
    for name in ("", "Up", "a b", "../x", "x" * 64):
        with pytest.raises(BadInput):
            await searches.save(SYSTEM, name, TODO)
    for query in ("", "/(/", "type:repo x"):
        with pytest.raises(BadQuery):
            await searches.save(SYSTEM, "x", SearchSpec(query))
    with pytest.raises(NotAllowed):
        await searches.save(SYSTEM, "x", SearchSpec("x", topic="skep.changes"))
    with pytest.raises(NotFound):
        await searches.save(SYSTEM, "x", SearchSpec("x", topic="nowhere"))
    for verb in (searches.save(READER, "x", TODO), searches.remove(Caller("n", frozenset(), known=False), "x")):
        with pytest.raises((NotAllowed, NeedsToken)):
            await verb
    await searches.save(WRITER, "mine", TODO)
    await searches.save(WRITER, "mine", SearchSpec("FIXME"))
    await searches.save(SYSTEM, "theirs", TODO)
    with pytest.raises(Conflict):
        await searches.save(WRITER, "theirs", TODO)
    for name in ("theirs", "none"):  # whose names are nobody else's affair
        with pytest.raises(NotFound):
            await searches.remove(WRITER, name)
    assert [(one.name, one.query) for one in await searches.list(WRITER)] == [("mine", "FIXME")]
    assert [one.name for one in await searches.list(SYSTEM)] == ["mine", "theirs"]
    await searches.remove(SYSTEM, "mine")
    assert await searches.list(WRITER) == []
