"""The whole worker: real git over HTTP, a real link, its own file, index processes."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import msgspec

from skep.rpc.messages import FetchNow, Hold, Release
from skep.sources.git.mirror import folder_of
from skep.sources.model import Move
from skep.storage.code_index.model import Tip
from tests.support.forge import Fault, Forge
from tests.worker.conftest import SETTINGS, Running
from tests.worker.desk import RecordingDesk, held


async def test_from_clone_to_index_to_release(forge: Forge, desk: RecordingDesk, worker: Running) -> None:
    repo = forge.create("one", {"a.txt": b"alpha\n", "b.txt": b"beta\n"})
    first = repo.refs()["refs/heads/main"]
    desk.give(Hold(held("src_1", forge.url("one"))))
    await desk.until(lambda: desk.fetched("src_1"))
    clone = desk.fetched("src_1")[0]
    assert clone.first
    assert clone.default_branch == "main"
    assert Move("refs/heads/main", None, first) in clone.moves

    desk.index("src_1", None)
    await desk.until(lambda: desk.built("src_1") and not desk.placed)
    delta = desk.built("src_1")[0]
    assert delta is not None
    assert (delta.tips, delta.base) == ((Tip("main", first),), None)
    assert sum(shard.documents for shard in delta.shards) == 2

    second = repo.commit({"b.txt": b"beta two\n"})
    await desk.until(lambda: desk.moves("src_1", "refs/heads/main")[1:])
    assert not desk.fetched("src_1")[1].first
    desk.index("src_1", first)
    await desk.until(lambda: desk.built("src_1")[1:] and not desk.placed)
    delta = desk.built("src_1")[1]
    assert delta is not None
    assert (delta.commit, delta.base, delta.gone) == (second, (Tip("main", first),), (b"b.txt",))
    assert sum(shard.documents for shard in delta.shards) == 1

    mirror = folder_of(worker.data, "src_1")
    assert mirror.exists()
    desk.give(Release("src_1"))
    await desk.until(lambda: not desk.pending)
    await worker.stop()
    worker.start()
    await desk.until(lambda: len(desk.boots) == 2 and not mirror.exists())
    assert desk.boots[0] < desk.boots[1]
    assert len(set(desk.members)) == 1
    assert list((worker.data / "worker" / "deltas").iterdir()) == []
    assert [report.state for report in desk.reports] == ["ACCEPTED", "RUNNING", "FINISHED"] * 2


async def test_force_push_and_deleted_branch(forge: Forge, desk: RecordingDesk, worker: Running) -> None:
    repo = forge.create("two", {"a": b"1"})
    for name in ("b", "c", "d"):
        repo.branch(name)
    before = repo.refs()["refs/heads/main"]
    desk.give(Hold(held("src_2", forge.url("two"))))
    await desk.until(lambda: desk.fetched("src_2"))
    after = repo.force_push({"z": b"2"})
    repo.delete_branch("b")
    await desk.until(lambda: desk.moves("src_2", "refs/heads/b")[1:] and desk.moves("src_2", "refs/heads/main")[1:])
    assert desk.moves("src_2", "refs/heads/main")[1] == Move("refs/heads/main", before, after)
    assert desk.moves("src_2", "refs/heads/b")[1] == Move("refs/heads/b", before, None)


async def test_an_empty_repository_is_current_and_has_no_index(
    forge: Forge, desk: RecordingDesk, worker: Running
) -> None:
    repo = forge.create("empty")
    desk.give(Hold(held("src_e", forge.url("empty"))))
    await desk.until(lambda: desk.fetched("src_e"))
    assert desk.fetched("src_e")[0].moves == ()
    assert desk.fetched("src_e")[0].first
    desk.index("src_e", None)
    await desk.until(lambda: desk.built("src_e"))
    assert desk.built("src_e")[0] is None
    repo.commit({"a": b"1"})
    await desk.until(lambda: desk.moves("src_e", "refs/heads/main"))


async def test_a_missing_repository_is_told_once_and_again_when_asked(
    forge: Forge, desk: RecordingDesk, worker: Running
) -> None:
    desk.give(Hold(held("src_m", forge.url("missing"))))
    await desk.until(lambda: desk.failed("src_m"))
    assert desk.failed("src_m")[0].failure.kind in {"gone", "auth"}
    forge.create("missing", {"a": b"1"})
    desk.give(FetchNow("src_m", 1))
    await desk.until(lambda: desk.fetched("src_m"))
    assert desk.fetched("src_m")[0].first


async def test_fetch_now_is_answered_though_nothing_moved(forge: Forge, desk: RecordingDesk, worker: Running) -> None:
    forge.create("calm", {"a": b"1"})
    await worker.stop()
    worker.start(msgspec.structs.replace(SETTINGS, poll_min=3600.0, poll_max=3600.0))
    desk.give(Hold(held("src_c", forge.url("calm"))))
    await desk.until(lambda: desk.fetched("src_c"))
    desk.give(FetchNow("src_c", 1))
    await desk.until(lambda: len(desk.fetched("src_c")) == 2)
    assert desk.fetched("src_c")[1].moves == ()
    assert desk.fetched("src_c")[0].batch != desk.fetched("src_c")[1].batch


async def test_a_restart_clones_nothing_again(forge: Forge, desk: RecordingDesk, worker: Running) -> None:
    repo = forge.create("kept", {"a": b"1"})
    desk.give(Hold(held("src_k", forge.url("kept"))))
    await desk.until(lambda: desk.fetched("src_k"))
    await worker.stop()
    second = repo.commit({"a": b"2"})
    worker.start()
    await desk.until(lambda: desk.moves("src_k", "refs/heads/main")[1:])
    assert [body.first for body in desk.fetched("src_k")] == [True, False]
    assert desk.moves("src_k", "refs/heads/main")[1].new == second


async def test_mirror_behind_the_reported_refs_is_not_reported_after_a_failed_fetch(
    forge: Forge, desk: RecordingDesk, worker: Running
) -> None:
    """Another worker had the source meanwhile and reported the second commit."""
    repo = forge.create("behind", {"a": b"1"})
    first = repo.refs()["refs/heads/main"]
    desk.give(Hold(held("src_r", forge.url("behind"))))
    await desk.until(lambda: desk.fetched("src_r"))
    await worker.stop()
    second = repo.commit({"a": b"2"})
    forge.fault("behind", Fault(lie=(b"packfile", b"PACKFILE")))  # refs are listed, and no fetch succeeds
    reported = {"HEAD": "refs/heads/main", "refs/heads/main": second}
    desk.give(Hold(msgspec.structs.replace(held("src_r", forge.url("behind"), epoch=2), told=reported, batches=2)))
    worker.start()
    await desk.until(lambda: desk.failed("src_r"))
    await worker.stop()
    worker.start()
    await desk.until(lambda: len(desk.boots) == 3)
    forge.fault("behind", None)
    third = repo.commit({"a": b"3"})
    desk.give(FetchNow("src_r", 2))
    await desk.until(lambda: any(move.new == third for move in desk.moves("src_r", "refs/heads/main")))
    moves = [(move.old, move.new) for move in desk.moves("src_r", "refs/heads/main")]
    assert moves == [(None, first), (second, third)]


async def test_a_base_the_mirror_does_not_know_is_built_from_nothing(
    forge: Forge, desk: RecordingDesk, worker: Running
) -> None:
    forge.create("based", {"a": b"1", "b": b"2"})
    desk.give(Hold(held("src_b", forge.url("based"))))
    await desk.until(lambda: desk.fetched("src_b"))
    desk.index("src_b", "0123456789" * 4)
    await desk.until(lambda: desk.built("src_b"))
    delta = desk.built("src_b")[0]
    assert delta is not None
    assert delta.base is None
    assert sum(shard.documents for shard in delta.shards) == 2


async def test_a_build_that_is_killed_is_built_again(forge: Forge, desk: RecordingDesk, worker: Running) -> None:
    forge.create("killed", {"a": b"1"})
    desk.give(Hold(held("src_x", forge.url("killed"))))
    await desk.until(lambda: desk.fetched("src_x"))
    desk.index("src_x", None)
    await desk.until(lambda: desk.built("src_x"))
    for pid in _children(b"skep.indexing.build_index"):
        with suppress(ProcessLookupError):  # it had ended
            os.kill(pid, signal.SIGKILL)
    desk.index("src_x", None)
    await desk.until(lambda: desk.built("src_x")[1:])


async def test_a_large_index_is_built_in_batches_and_published_once(
    forge: Forge, desk: RecordingDesk, worker: Running
) -> None:
    forge.create("large", {f"{n}.txt": b"%d\n" % n * 1000 for n in range(40)})
    await worker.stop()
    worker.start(msgspec.structs.replace(SETTINGS, index_batch=30_000, index_analyse=False))
    desk.give(Hold(held("src_l", forge.url("large"))))
    await desk.until(lambda: desk.fetched("src_l"))
    desk.index("src_l", None)
    await desk.until(lambda: desk.built("src_l") and not desk.placed)
    [delta] = desk.built("src_l")
    assert delta is not None
    assert sum(shard.documents for shard in delta.shards) == 40
    finished = [report for report in desk.reports if report.state == "FINISHED"]
    (planned,) = [report.result["batches"] for report in finished if "batches" in report.result]
    assert len(finished) == 2 + planned > 4
    assert list((worker.data / "worker" / "deltas").iterdir()) == []


async def test_an_index_that_cannot_be_adopted_fails_and_at_last_the_source_too(
    forge: Forge, desk: RecordingDesk, worker: Running
) -> None:
    forge.create("stale", {"a": b"1"})
    desk.give(Hold(held("src_t", forge.url("stale"))))
    await desk.until(lambda: desk.fetched("src_t"))
    desk.stale = True
    desk.index("src_t", None)
    await desk.until(lambda: desk.reports and desk.reports[-1].state == "FAILED")
    assert not desk.failed("src_t")
    desk.index("src_t", None, last=True)
    await desk.until(lambda: desk.failed("src_t"))
    assert "its index cannot be built" in desk.failed("src_t")[0].failure.message


async def test_release_ends_a_running_clone(forge: Forge, desk: RecordingDesk, worker: Running) -> None:
    forge.create("slow", {"a": b"1"})
    forge.fault("slow", Fault(clone_delay=60.0))
    desk.give(Hold(held("src_s", forge.url("slow"))))
    await desk.until(lambda: any("src_s" in beat.progress for beat in desk.beats))
    assert desk.beats[-1].status == f"fetching {forge.url('slow')}"
    mirror = folder_of(worker.data, "src_s")
    desk.give(Release("src_s"))
    await desk.until(lambda: not desk.pending and not mirror.exists())
    assert not desk.bodies("src_s")


def _children(word: bytes) -> list[int]:
    """Processes of ours with this word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and word in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
