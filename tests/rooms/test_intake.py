"""Reports become changes: counted, fenced, told once, whatever is repeated."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.base.caller import SYSTEM
from skep.base.ids import batch_id
from skep.rpc.messages import Looked
from skep.sources.model import Failure, FailureClass, Move, Source, diff
from skep.sources.report_handler import Accepted, Stale
from skep.storage.code_index.model import Tip
from skep.topics.api import Part
from skep.topics.service import CHANGES, FAILURES, INDEXED
from tests.rooms.house import House

Versions = dict[str, str]


class Holder:
    """Reports as a worker does: diff against what it told."""

    def __init__(self, house: House, source: Source) -> None:
        self.house, self.source = house, source
        self.told: Versions = {}
        self.count = 0

    async def report(self, versions: Versions, *, repeat: int = 1, epoch: int = 1) -> Accepted | Stale:
        self.house.clock.time += 1
        now = self.house.clock.time
        moves, self.count = diff(self.told, versions), self.count + 1
        batch = batch_id(self.source.id, epoch, self.count)
        report = Looked(self.source.id, epoch, now, now + 60)
        for _ in range(repeat):
            verdict = await self.house.intake.fetched(
                report, batch, moves, first=self.count == 1, default_branch="main"
            )
        self.told = dict(versions)
        return verdict


async def told(house: House, topic: str = CHANGES) -> list[dict[str, object]]:
    messages = await house.log.read(Part(topic), 0, 1000)
    return [msgspec.json.decode(message.body) for message in messages]


async def new_source(house: House, url: str = "https://example.org/a") -> Source:
    return (await house.sources.add(SYSTEM, url)).source


async def test_back_and_forth_is_three_changes(house: House) -> None:
    holder = Holder(house, await new_source(house))
    for version in ("a", "b", "a", "b"):
        await holder.report({"refs/heads/main": version})
    bodies = await told(house)
    assert [(b["seq"], b["old"], b["new"], b["first"]) for b in bodies] == [
        (1, None, "a", True),
        (2, "a", "b", False),
        (3, "b", "a", False),
        (4, "a", "b", False),
    ]
    assert len({str(b["id"]) for b in bodies}) == 4


async def test_a_repeated_report_changes_nothing(house: House) -> None:
    holder = Holder(house, await new_source(house))
    await holder.report({"refs/heads/main": "a", "refs/tags/v1": "t"}, repeat=3)
    assert len(await told(house)) == 2


async def test_a_deleted_branch_that_returns_counts_on(house: House) -> None:
    holder = Holder(house, await new_source(house))
    for versions in ({"refs/heads/x": "a"}, {}, {"refs/heads/x": "a"}):
        await holder.report(versions)
    assert [(b["seq"], b["new"]) for b in await told(house)] == [(1, "a"), (2, None), (3, "a")]


async def test_an_older_epoch_and_a_removed_source_are_refused(house: House) -> None:
    source = await new_source(house)
    holder = Holder(house, source)
    assert isinstance(await holder.report({"refs/heads/main": "a"}, epoch=7), Stale)
    await house.sources.remove(SYSTEM, source.id)
    assert isinstance(await holder.report({"refs/heads/main": "b"}), Stale)
    assert await told(house) == []


async def test_failures_show_and_recovery_clears_them(house: House) -> None:
    source = await new_source(house)
    failure = Failure("auth", "a password is wanted")
    report = Looked(source.id, 1, house.clock.now(), house.clock.now() + 600)
    await house.intake.failed(report, failure, 3)
    failing = await house.sources.show(SYSTEM, source.id)
    assert (failing.state, failing.failure, failing.failures) == ("failing", failure, 3)
    await Holder(house, source).report({"refs/heads/main": "a"})
    healed = await house.sources.show(SYSTEM, source.id)
    assert (healed.state, healed.failure, healed.failures) == ("current", None, 0)


async def test_failures_and_recoveries_are_told_once_each(house: House) -> None:
    source = await new_source(house)
    reports: list[tuple[FailureClass, float]] = [("auth", 1.0), ("auth", 2.0), ("network", 3.0), ("network", 3.0)]
    for kind, at in reports:
        await house.intake.failed(Looked(source.id, 1, at, at + 600), Failure(kind, "no"), 1)
    await Holder(house, source).report({"refs/heads/main": "a"}, repeat=2)
    assert [event["kind"] for event in await told(house, FAILURES)] == ["auth", "network", None]


async def test_a_new_searchable_commit_is_told_once(house: House) -> None:
    source = await new_source(house)
    for main, other in ("ax", "ax", "bx", "ax", "ay"):
        await house.intake.indexed(source.id, (Tip("main", main), Tip("other", other)), house.clock.now())
    assert [event["commit"] for event in await told(house, INDEXED)] == ["a", "b", "a", "a"]


async def test_waiting_ends_when_the_newest_commit_is_searchable(house: House) -> None:
    source = await new_source(house)
    await Holder(house, source).report({"refs/heads/main": "a"})
    _, settled = await house.sources.wait(SYSTEM, source.id, timeout=0)
    assert not settled
    await house.intake.indexed(source.id, (Tip("main", "a"),), house.clock.now())
    shown, settled = await house.sources.wait(SYSTEM, source.id, timeout=0)
    assert settled and shown.indexed_commit == "a"
    assert not (await house.sources.wait(SYSTEM, source.id, looked_after=house.clock.now() + 1, timeout=0))[1]


NAMES = st.sampled_from(["refs/heads/main", "refs/heads/x", "refs/tags/v1"])
STATES = st.lists(
    st.tuples(st.dictionaries(NAMES, st.sampled_from(["a", "b", "c"])), st.integers(1, 2)), min_size=1, max_size=8
)
_count = iter(range(1_000_000))


@settings(max_examples=25)
@given(STATES)
async def test_replaying_what_was_told_gives_where_every_entry_stands(
    house: House, states: list[tuple[Versions, int]]
) -> None:
    source = await new_source(house, f"https://example.org/{next(_count)}")
    holder = Holder(house, source)
    for versions, repeat in states:
        await holder.report(versions, repeat=repeat)
    replayed: Versions = {}
    changes = (await house.sources.changes(SYSTEM, source.id, limit=1000)).items
    for change in sorted(changes, key=lambda change: (change.at, change.entry)):
        assert replayed.get(change.entry) == change.old
        replayed.pop(change.entry, None)
        if change.new is not None:
            replayed[change.entry] = change.new
    held = await house.sources.held(source.id)
    assert held is not None
    assert held.told == replayed == states[-1][0]


def test_diff_names_what_moved() -> None:
    assert diff({"a": "1", "b": "1"}, {"b": "2", "c": "1"}) == (
        Move("a", "1", None),
        Move("b", "1", "2"),
        Move("c", None, "1"),
    )


async def test_a_holder_whose_clock_was_behind_changes_no_order(house: House) -> None:
    source = await new_source(house)
    holder = Holder(house, source)
    await holder.report({"refs/heads/main": "a"})
    house.clock.time -= 3600
    await holder.report({"refs/heads/main": "b"})
    house.clock.time += 3600
    newest = (await house.sources.changes(SYSTEM, source.id, limit=10)).items[0]
    assert (newest.seq, newest.new) == (2, "b")
    assert [one["at"] for one in await told(house)] == [1_000_001.0, 1_000_001.0]
