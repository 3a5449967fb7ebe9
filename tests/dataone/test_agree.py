"""What two Coordinating Nodes know of an object, put together: in whatever order, it is the same."""

from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from skep.dataone.decision import Circumstances, Decision, agree, decide, merged, taken
from skep.dataone.types import Checksum, Replica, ReplicaStatus, SystemMetadata
from tests.dataone.objects import PUBLIC, meta_of

MN, OTHER, CN, US = "urn:node:A", "urn:node:B", "urn:node:cnA", "urn:node:cnB"
OURS = meta_of("p", b"x", serial_version=5)
STATES = {
    "older": meta_of("p", b"x", date_sys_metadata_modified=900, archived=True),
    "newer": meta_of("p", b"x", date_sys_metadata_modified=2_000, rights_holder="new", obsoletes="o"),
    "twin": meta_of("p", b"x", rights_holder="somebody"),
    "obsolete": meta_of("p", b"x", obsoleted_by="q", series_id="s"),
}
#: a node said one thing and then another, without another date
CONTRARY = [
    meta_of("p", b"x", obsoleted_by="q", obsoletes="m"),
    meta_of("p", b"x", obsoleted_by="r", obsoletes="l"),
    meta_of("p", b"x", obsoleted_by="s", date_sys_metadata_modified=900),
]


def copy(urn: str, status: ReplicaStatus = "completed", at: int = 10) -> Replica:
    return Replica(urn, status, at)


def told(offered: SystemMetadata, *ours: Replica, known: SystemMetadata | None = OURS, **more: Any) -> Decision:
    copies = {one.replica_member_node: one for one in ours}
    return agree(offered, Circumstances(node=CN, known=known, copies=copies, coordinators={CN, US}, **more))


def test_the_order_in_which_they_hear_of_states_does_not_matter() -> None:
    ends = []
    for order in permutations([OURS, *STATES.values()]):
        end = order[0]
        for state in (*order[1:], *order):
            end = merged(end, state)
        ends.append(replace(end, serial_version=None))
    assert all(end == ends[0] for end in ends)
    assert ends[0].rights_holder == "new" and ends[0].archived, "the newest, and nothing that happened is undone"
    assert (ends[0].obsoletes, ends[0].obsoleted_by, ends[0].series_id) == ("o", "q", "s")


def test_of_two_links_of_one_date_both_sides_take_the_same() -> None:
    """They would exchange them without end."""
    for theirs, ours in permutations(CONTRARY, 2):
        here, there = told(theirs, known=ours).meta or ours, told(ours, known=theirs).meta or theirs
        assert replace(here, serial_version=None) == replace(there, serial_version=None)
        assert told(there, known=here).verdict == told(here, known=there).verdict == "unchanged"
    ends = set()
    for order in permutations(CONTRARY):
        end = order[0]
        for state in (*order[1:], *order):
            end = merged(end, state)
        ends.add((end.obsoletes, end.obsoleted_by))
    assert len(ends) == 1


def test_what_one_hides_under_its_date_the_other_hides_and_gives_again_with_it() -> None:
    """Its node refused it, which has no date; whichever of the two has the greater digest."""
    for n in range(20):
        public = meta_of("p", b"x", rights_holder=f"r{n}", access_policy=PUBLIC, serial_version=1)
        hidden = replace(public, access_policy=None, serial_version=2)
        assert not (told(hidden, known=public).meta or public).public
        assert told(public, known=hidden).verdict == "unchanged"
        again = decide(public, Circumstances(node=MN, known=hidden)).meta
        assert again is not None and again.public
        assert (told(again, known=hidden).meta or hidden).public
        assert told(hidden, known=again).verdict == "unchanged"
        for _ in range(3):
            hidden = replace(again, access_policy=None)
            again = decide(public, Circumstances(node=MN, known=hidden)).meta
            assert again is not None and (told(again, known=hidden).meta or hidden).public, "once more"


@pytest.mark.parametrize("name", STATES)
def test_both_sides_take_the_same_and_then_nothing_more(name: str) -> None:
    theirs = replace(STATES[name], serial_version=9)
    here, there = told(theirs).meta or OURS, told(OURS, known=theirs).meta or theirs
    assert replace(here, serial_version=None) == replace(there, serial_version=None)
    assert told(there, known=here).verdict == told(here, known=there).verdict == "unchanged"


def test_what_is_new_keeps_its_nodes_its_number_and_its_copies() -> None:
    theirs = replace(OURS, replica=(copy(MN), copy(CN)))
    found = told(theirs, known=None)
    assert (found.verdict, found.meta, found.copies) == ("new", OURS, theirs.replica)


def test_the_number_rises_with_every_change_on_either_side() -> None:
    newer = STATES["newer"]
    for theirs, expected in ((1, 6), (5, 6), (9, 9)):
        found = told(replace(newer, serial_version=theirs))
        assert found.meta is not None and found.meta.serial_version == expected


def test_of_copies_the_newer_word_counts() -> None:
    ours = {MN: copy(MN, at=10), OTHER: copy(OTHER, "invalidated", at=20)}
    assert taken(ours, [copy(MN, at=10), copy(OTHER, at=15)]) == ()
    gone, back, more = copy(MN, "invalidated", at=11), copy(OTHER, at=21), copy(CN)
    assert taken(ours, [gone, back, more]) == (gone, back, more)
    found = told(replace(OURS, replica=(more,)), *ours.values())
    assert (found.verdict, found.meta, found.copies) == ("replica", None, (more,))


def test_other_bytes_are_not_taken_from_anybody() -> None:
    assert told(meta_of("p", b"y", date_sys_metadata_modified=9_000)).verdict == "duplicate"
    assert told(replace(OURS, checksum=Checksum("aa", "MD5"))).verdict == "poison"


def test_what_is_deleted_lives_again_when_a_node_has_it() -> None:
    lost = copy(MN, "invalidated", at=20)
    stale = replace(STATES["newer"], replica=(copy(MN, at=10), copy(CN, at=30)))
    assert told(stale, lost, deleted=True).verdict == "unchanged", "it has not heard yet; what it keeps is no reason"
    again = replace(stale, replica=(copy(MN, at=10), copy(OTHER, at=1)))
    assert told(again, lost, deleted=True).verdict == "new"
