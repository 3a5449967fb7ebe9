"""A search that waits in the queue of long searches holds no lock that another search needs."""

import asyncio
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import msgspec
import numpy as np
import pytest

from skep.search.query import parse
from skep.storage.code_index.base import Standing
from skep.storage.code_index.trigram import search as module
from skep.storage.code_index.trigram.candidates import Snapshot
from skep.storage.code_index.trigram.matchers import Compiled, Shelf, Watch
from skep.storage.code_index.trigram.search import Lanes, Ride, _Field
from skep.storage.code_index.trigram.searcher import TrigramSearcher
from skep.storage.code_index.trigram.shard import Shard
from tests.index.conftest import EVERYTHING, VISIBLE, Adopt, make_delta

#: seconds of a search; only a search that can never continue uses them up
PATIENCE = 60.0
ROUNDS, AT_ONCE = 4, 8
FILES = {b"src/part%03d/file%d.c" % (n, n): b"int number_%d(void);\n" % n * 50 for n in range(2_000)}


def test_ids_of_a_field_while_another_search_waits_in_the_queue_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONG", -1.0)  # every search is long
    delta = make_delta(tmp_path / "built", FILES, commit="c1")
    snapshot = Snapshot.of([Shard(Path(delta.shards[0].folder))], {1: Standing("src_1", 1, delta.tips, 0.0)})
    queued, computed = Event(), Event()
    with Lanes(2) as lanes:
        owner, waiter = Ride(lanes), Ride(lanes)
        assert all((owner.begin(0.0), owner.go_on(0.0), waiter.begin(0.0)))

        def wait_in_queue() -> None:
            if waiting_thread.ident is not None:  # not while the field is made
                queued.set()
                waiter.go_on(monotonic() + PATIENCE)

        def compute() -> None:
            if len(field(snapshot, lambda: None).ids):
                computed.set()

        waiting_thread, owning_thread = Thread(target=lambda: waiting.ids), Thread(target=compute)
        waiting = field(snapshot, wait_in_queue)
        waiting_thread.start()
        assert queued.wait(PATIENCE)
        owning_thread.start()
        was_computed = computed.wait(PATIENCE / 2)
        owner.end()
        for thread in (waiting_thread, owning_thread):
            thread.join()
        waiter.end()
    assert was_computed, "the owner of the queue waits for a lock that is held by a search waiting for the queue"


def field(snapshot: Snapshot, watch: Watch) -> _Field:
    compiled = Compiled(parse("number file:file199"), Shelf())
    return _Field(compiled, snapshot.parts[0], snapshot, np.ones(2, bool), None, np.zeros(0, np.uint64), watch)


async def test_eight_long_searches_with_file_at_once_over_two_shards_are_all_whole(
    searcher: TrigramSearcher, adopt: Adopt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONG", 0.001)
    limits = msgspec.structs.replace(EVERYTHING, rank=True, look=1_000_000, seconds=PATIENCE / 2)
    for number in (1, 2):
        await adopt(FILES, number=number)

    async def partial(nth: int) -> bool:
        query = parse(f"number_{nth} file:file{nth}")
        hits = searcher.search(query, VISIBLE, limits)
        found = [hit async for hit in hits]
        return hits.partial or not found

    for nth in range(1, 1 + ROUNDS):
        cut = sum(await asyncio.gather(*(partial(nth) for _ in range(AT_ONCE))))
        assert not cut, f"{cut} of {AT_ONCE} searches could not end within {PATIENCE / 2:.0f} s"
