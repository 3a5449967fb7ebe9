"""What the embedded engine does, an index on a server does too: the same tests, on a real OpenSearch node."""

import asyncio
import gc
import itertools
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from skep.base.errors import BadInput, Damaged, Unavailable
from skep.processes.engines import find as find_engine
from skep.search.query import parse
from skep.storage.code_index.base import Searcher
from skep.storage.code_index.model import And, BookInfo, Limits, Not, Reason, Term, Within
from skep.storage.code_index.opensearch.client import Address
from skep.storage.code_index.opensearch.client import parse as parse_address
from skep.storage.code_index.opensearch.searcher import OpenSearchSearcher
from skep.storage.code_index.trigram.searcher import open_trigram
from skep.storage.database import Database
from skep.storage.sqlite import open_memory
from tests.index import test_ripgrep_equality, test_trigram_adopt, test_trigram_search
from tests.index.conftest import EVERYTHING, VISIBLE, Adopt, fence, find, make_delta
from tests.index.test_trigram_books import APPLE, blob, book, test_merging_forgets_what_is_gone  # noqa: F401
from tests.support.opensearch import OpenSearchNode

#: of shards in a folder, or without a searcher
NOT_HERE = {
    "test_everything_anew",
    "test_a_delta_cannot_smuggle",
    "test_a_full_disk_is_told",
    "test_merging_keeps_every_answer",
    "test_what_dies_during_a_merge_is_dead_after_it",
    "test_a_large_merge_runs_in_another_process",
    "test_a_restart_changes_nothing",
    "test_damage_is_set_aside_and_told",
    "test_damage_is_not_merged",
    "test_shards_of_another_format_are_built_anew_and_do_not_stay",
    "test_a_search_notices_damage_and_the_others_answer",
    "test_the_first_hit_comes_before_the_last_shard_is_read",
}
for module in (test_trigram_search, test_trigram_adopt, test_ripgrep_equality):
    shared = {name: test for name, test in vars(module).items() if name.startswith("test_") and name not in NOT_HERE}
    assert not shared.keys() & globals().keys()
    globals().update(shared)

hard_folder = test_ripgrep_equality.hard_folder
_prefixes = (f"test{n}" for n in itertools.count())


@pytest.fixture
def node(opensearch: OpenSearchNode) -> OpenSearchNode:
    return opensearch


@pytest.fixture
def url(node: OpenSearchNode) -> str:
    """An index that nothing else uses."""
    return f"opensearch://{node.address}/{next(_prefixes)}"


async def opened(url: str, db: Database, data: Path) -> OpenSearchSearcher:
    searcher: OpenSearchSearcher = await find_engine("index", url)(url, data=data, db=db)
    await searcher.start()
    return searcher


@pytest.fixture
async def searcher(url: str, db: Database, tmp_path: Path) -> AsyncIterator[OpenSearchSearcher]:
    searcher = await opened(url, db, tmp_path)
    yield searcher
    await searcher.close()


@pytest.fixture
async def hard_index(tmp_path: Path, url: str) -> AsyncIterator[OpenSearchSearcher]:
    db = await open_memory("memory:", data=tmp_path, durability="full")
    searcher = await opened(url, db, tmp_path)
    assert await searcher.adopt(
        make_delta(tmp_path / "built", test_ripgrep_equality.hard_files(1), commit="c1"), fence()
    )
    yield searcher
    await searcher.close()
    await db.close()


async def lines(searcher: Searcher, text: str, limits: Limits = EVERYTHING) -> list[tuple[int, str, str]]:
    hits = searcher.search(parse(text), VISIBLE, limits)
    return sorted([(hit.source, hit.path, line.text) async for hit in hits for line in hit.lines])


def on_server(node: OpenSearchNode, path: str, body: object = None, method: str = "POST") -> Any:
    """As an operator would ask it, behind Skep's back."""
    answer = httpx.request(method, f"http://{node.address}/{path}", json=body, timeout=60)
    assert answer.is_success, answer.text
    return answer.json()


def documents(node: OpenSearchNode, searcher: OpenSearchSearcher) -> int:
    prefix = searcher._node.prefix
    on_server(node, f"{prefix}/_refresh")
    count: int = on_server(node, f"{prefix}/_count")["count"]
    return count


async def let_go(node: OpenSearchNode, searcher: OpenSearchSearcher, wanted: int) -> None:
    """The thread of a search lets go of what it saw a moment after its last hit has come."""
    async with asyncio.timeout(60):
        while documents(node, searcher) != wanted:
            gc.collect()
            await searcher.merge_once()


async def test_the_same_answers_whatever_happens(
    node: OpenSearchNode, tmp_path: Path, db: Database, searcher: OpenSearchSearcher
) -> None:
    """Random deltas, drops, restarts and queries, on both engines."""
    rng = random.Random(7)
    embedded = await open_trigram("file:", data=tmp_path, db=db)
    await embedded.start()
    both: list[Searcher] = [embedded, searcher]
    now: dict[int, str] = {}
    for step in range(15):
        number = rng.randrange(1, 4)
        if rng.random() < 0.15 and number in now:
            del now[number]
            for one in both:
                await one.drop(f"src_{number}", number)
        else:
            files = {b"f%d" % rng.randrange(6): b" ".join(rng.choices(WORDS, k=5)) + b"\n" for _ in range(3)}
            base = now.get(number) if rng.random() < 0.8 else None
            more = {b"f%d" % rng.randrange(6)} if base else set()
            now[number] = f"c{step}"
            for one in both:
                out = tmp_path / f"built-{step}-{both.index(one)}"
                gone = tuple(sorted(files.keys() | more)) if base else ()
                delta = make_delta(out, files, commit=now[number], base=base, gone=gone, number=number)
                assert await one.adopt(delta, fence(number))
        for text in ("/a./", "alpha beta", "-gamma file:f", "(delta or beta) -file:f1", "file:f2 or alpha"):
            assert await lines(searcher, text) == await lines(embedded, text), (step, text)
        for number in now:
            assert await searcher.digest(number) == await embedded.digest(number)
        assert searcher.size().documents == embedded.size().documents
        await let_go(node, searcher, embedded.size().documents)
        assert sorted(searcher.indexed()) == sorted(embedded.indexed())
    await embedded.close()


WORDS = b"alpha beta gamma delta omega".split()


async def test_a_restart_changes_nothing(
    searcher: OpenSearchSearcher, adopt: Adopt, url: str, db: Database, tmp_path: Path
) -> None:
    await adopt({b"a": b"apple\n", b"b": b"banana\n"})
    await adopt({b"a": b"apple two\n"}, base="c1", gone=(b"a",))
    before, standing = await lines(searcher, "/a/"), searcher.standing(1)
    again = await opened(url, db, tmp_path)
    assert (await lines(again, "/a/"), again.standing(1), again.size()) == (before, standing, searcher.size())
    assert await again.check() == []
    assert not await again.merge_once()
    await again.close()


async def test_the_tables_on_every_database(database: Database, url: str, tmp_path: Path) -> None:
    searcher = await opened(url, database, tmp_path)
    for nth in (1, 2):
        base = f"c{nth - 1}" if nth > 1 else None
        delta = make_delta(tmp_path / f"x{nth}", {b"a": b"apple %d\n" % nth}, commit=f"c{nth}", base=base, gone=(b"a",))
        assert await searcher.adopt(delta, fence())
    assert await lines(searcher, "apple") == [(1, "a", "apple 2")]
    await searcher.drop("src_1", 1)
    assert (await lines(searcher, "apple"), searcher.indexed()) == ([], [])
    await searcher.close()


async def test_definitions_are_found_by_name(
    searcher: OpenSearchSearcher, adopt: Adopt, url: str, db: Database, tmp_path: Path
) -> None:
    await adopt({b"a": APPLE, b"b": b"x = apple()\n"})
    assert await searcher.annotate(book(tmp_path / "built", "bok_1", APPLE))
    assert not await searcher.annotate(BookInfo("bok_2", str(tmp_path / "nowhere"), 1))
    again = await opened(url, db, tmp_path)
    for one in (searcher, again):
        assert one.annotated([blob(APPLE)])
        for term in (Term("symbol", "apple", False, True), Term("symbol", "^apple$", True, True)):
            (hit,) = await find(one, term)
            assert (hit.path, hit.lines[0].text) == ("a", "def apple(): pass")
    await again.close()


async def test_a_definition_is_found_behind_a_thousand_uses(
    searcher: OpenSearchSearcher, adopt: Adopt, tmp_path: Path
) -> None:
    await adopt({b"%03d" % n: b"%d: apple()\n" % n * 10 for n in range(300)} | {b"z": APPLE})
    assert await searcher.annotate(book(tmp_path / "built", "bok_1", APPLE))
    first, *_ = await find(searcher, Term("content", "apple", False, False), Limits(lines=5, look=10, seconds=60.0))
    assert first.path == "z"


async def test_a_delta_cannot_smuggle(searcher: OpenSearchSearcher, tmp_path: Path) -> None:
    delta = make_delta(tmp_path / "x", {b"a": b"apple\n"}, commit="c1", number=2)
    assert not await searcher.adopt(msgspec.structs.replace(delta, source="src_1", number=1), fence())
    outside = msgspec.structs.replace(delta.shards[0], id="../../escape")
    assert not await searcher.adopt(msgspec.structs.replace(delta, number=2, shards=(outside,)), fence(2))
    content = tmp_path / "x" / delta.shards[0].id / "content"
    content.write_bytes(b"\0" + content.read_bytes()[1:])
    assert not await searcher.adopt(delta, fence(2))
    assert await lines(searcher, "apple") == []


async def test_an_adoption_that_fails_leaves_nothing_to_see(
    node: OpenSearchNode, searcher: OpenSearchSearcher, adopt: Adopt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documents are on the server already; the database never heard of them."""
    await adopt({b"a": b"apple\n"})

    async def fail(*_: object) -> bool:
        raise Unavailable("the database is gone")

    delta = make_delta(tmp_path / "x", {b"b": b"apple lost\n"}, commit="x", base="c1", gone=(b"a",))
    with monkeypatch.context() as patched:
        patched.setattr(searcher._tables, "adopt", fail)
        with pytest.raises(Unavailable):
            await searcher.adopt(delta, fence())
    assert documents(node, searcher) == 2
    assert await lines(searcher, "apple") == [(1, "a", "apple")]
    await adopt({b"z": b"apple\n"}, number=2)
    assert await lines(searcher, "apple") == [(1, "a", "apple"), (2, "z", "apple")]
    assert documents(node, searcher) == 2
    assert await searcher.adopt(delta, fence())
    assert await lines(searcher, "apple") == [(1, "b", "apple lost"), (2, "z", "apple")]


async def test_what_a_search_looks_at_is_deleted_later(
    node: OpenSearchNode, searcher: OpenSearchSearcher, adopt: Adopt
) -> None:
    await adopt({b"a": b"apple one\n"})
    running = searcher.search(parse("apple"), VISIBLE, EVERYTHING)
    await adopt({b"a": b"apple two\n"}, base="c1", gone=(b"a",))
    assert documents(node, searcher) == 2
    assert [line.text async for hit in running for line in hit.lines] == ["apple one"]
    del running
    await let_go(node, searcher, 1)
    assert await lines(searcher, "apple") == [(1, "a", "apple two")]


async def test_an_index_of_another_format_is_copied_and_swapped(
    node: OpenSearchNode, searcher: OpenSearchSearcher, adopt: Adopt, db: Database, url: str, tmp_path: Path
) -> None:
    for number in (1, 2, 3):
        await adopt({b"f%d" % n: b"apple %d\n" % n for n in range(50)}, number=number)
    await searcher.drop("src_2", 2)
    prefix = searcher._node.prefix
    (old,) = on_server(node, f"_alias/{prefix}", method="GET")
    before = await lines(searcher, "apple")
    again = await opened(f"{url}?shards=3", db, tmp_path)
    again._indexes.make()  # as a copy that was cut off leaves it
    assert await again.merge_once()
    assert not await again.merge_once()
    (new,) = on_server(node, f"_alias/{prefix}", method="GET")
    assert new != old
    assert list(on_server(node, f"{prefix}-*", method="GET")) == [new]
    assert await lines(again, "apple") == before
    assert again.size().shards == 3
    third = await opened(f"{url}?shards=3", db, tmp_path)
    assert await lines(third, "apple") == before
    assert await third.lost() == []
    await third.close()
    await again.close()


async def test_an_index_that_somebody_removed_is_made_anew(
    node: OpenSearchNode, searcher: OpenSearchSearcher, adopt: Adopt, tmp_path: Path
) -> None:
    await adopt({b"a": b"apple\n"})
    (index,) = on_server(node, f"_alias/{searcher._node.prefix}", method="GET")
    on_server(node, index, method="DELETE")
    with pytest.raises(Damaged, match="gone"):
        await lines(searcher, "apple")
    await searcher.check()
    assert (await searcher.lost(), searcher.standing(1)) == (["src_1"], None)
    assert await lines(searcher, "apple") == []
    assert await searcher.adopt(make_delta(tmp_path / "x", {b"a": b"apple\n"}, commit="c9"), fence())
    assert (await lines(searcher, "apple"), await searcher.lost()) == ([(1, "a", "apple")], [])


async def test_a_server_that_goes_and_comes_back(
    node: OpenSearchNode, searcher: OpenSearchSearcher, adopt: Adopt, tmp_path: Path
) -> None:
    await adopt({b"a": b"apple\n"})
    delta = make_delta(tmp_path / "y", {b"b": b"apple\n"}, commit="c2", base="c1")
    node.stop(signal.SIGKILL)
    try:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await lines(searcher, "apple")
        with pytest.raises(Unavailable, match="cannot be reached"):
            await searcher.adopt(delta, fence())
    finally:
        node.start()
    assert await searcher.adopt(delta, fence())
    assert await lines(searcher, "apple") == [(1, "a", "apple"), (1, "b", "apple")]


async def test_many_large_documents_and_many_words(searcher: OpenSearchSearcher, adopt: Adopt) -> None:
    content = b"".join(b"line %d of many, alpha beta\n" % n for n in range(10_000))
    await adopt({b"big%02d" % n: content + b"only %d\n" % n for n in range(20)})
    assert [hit.path for hit in await find(searcher, parse("/^only 7$/"))] == ["big07"]
    limits = Limits(lines=15, lines_per_file=1, rank=False, seconds=60.0)
    assert len(await find(searcher, parse("beta"), limits)) == 15
    words = " or ".join(f'"no such words {n:04d}"' for n in range(190))
    assert [hit.path for hit in await find(searcher, parse(f'"only 11" or {words}'))] == ["big11"]
    numbers = frozenset(range(2, 70_000))
    assert await find(searcher, And((parse("only"), Within(numbers)))) == []
    assert len(await find(searcher, And((parse("only"), Not(Within(numbers)))))) == 20


async def test_a_bounded_search_says_so(
    searcher: OpenSearchSearcher, adopt: Adopt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is ranked must be there at once, so it is bounded."""
    await adopt({b"f%d" % n: b"word\n" * 100_000 for n in range(5)})
    monkeypatch.setattr("skep.storage.code_index.opensearch.candidates._RANKED_BYTES", 400_000)
    hits = searcher.search(parse("word"), VISIBLE, Limits(lines=1000, lines_per_file=1, seconds=60.0))
    assert 0 < len([hit async for hit in hits]) < 5
    assert hits.partial
    assert not hits.counted.exact


async def test_a_preferred_source_is_first_although_only_so_much_is_read(
    searcher: OpenSearchSearcher, adopt: Adopt, monkeypatch: pytest.MonkeyPatch
) -> None:
    await adopt({b"f%d" % n: b"word\n" * 100_000 for n in range(5)})
    await adopt({b"late": b"word\n"}, number=2)
    monkeypatch.setattr("skep.storage.code_index.opensearch.candidates._RANKED_BYTES", 400_000)
    gains = np.array([0, 0, 50], np.int16)
    hits = [hit async for hit in searcher.search(parse("word"), VISIBLE, Limits(explain=True, seconds=60.0), gains)]
    assert (hits[0].source, hits[0].path) == (2, "late")
    assert Reason("priority of its source", 50.0) in hits[0].why


@pytest.mark.parametrize(
    "url",
    [
        *("opensearch:", "opensearch:///x", "opensearch://h/UPPER", "opensearch://h:x/a", "opensearch://h/a?shards=0"),
        *("opensearch://u:secret@h/a?nope=1", "opensearch://h/a/b", "opensearch://h/a?tls=maybe"),
    ],
)
def test_bad_addresses(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_address(url)
    assert "secret" not in f"{caught.value.message} {caught.value.hint}"


def test_addresses() -> None:
    address = parse_address("elasticsearch://me:p%40ss@[::1]:9/mine?tls=yes&shards=3&replicas=0")
    assert address == Address("https://[::1]:9", "me", "p@ss", "mine", 3, 0)
    assert parse_address("opensearch://h") == Address("http://h:9200", "", "", "skep", 1, None)


async def test_a_password_is_in_no_message(db: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    searcher = await find_engine("index", "opensearch:")("opensearch://me:secret@127.0.0.1:9/x", data=tmp_path, db=db)
    with pytest.raises(Unavailable) as caught:
        await searcher.start()
    assert "127.0.0.1:9" in caught.value.message
    assert "secret" not in f"{caught.value.message} {caplog.text}"
    await searcher.close()
