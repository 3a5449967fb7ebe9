"""Who should have copies: a fleet is led through random events, by its plan alone, until nothing is left to do."""

from collections import Counter
from collections.abc import Iterable

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skep.fleet.ring import Change, Holding, Member, Plan, plan


def member(id: str, state: str = "alive", **more: bool) -> Member:
    return Member(id, f"called {id}", state, 1.0, draining=more.get("draining", False))


class House:
    """Does at once what a plan wants, as the coordinator does step by step; checks each step."""

    def __init__(self, members: list[Member], sources: int, count: int) -> None:
        self.members = {one.id: one for one in members}
        self.holdings = {f"src_{n}": Holding(f"src_{n}", None) for n in range(sources)}
        self.count = count
        self.changes: list[Change] = []

    def state(self, id: str | None) -> str:
        return self.members[id].state if id in self.members else "gone"

    def step(self) -> Plan:
        found = plan(list(self.members.values()), list(self.holdings.values()), self.count)
        copies = {(source, one) for source, one in found.copies}
        for change in found.changes:
            one = self.holdings[change.source]
            assert self.members[change.new].places and change.old == one.member
            if change.ready or self.state(change.old) == "gone":
                self.take_over(one, change)
        for source, id in found.spare:
            one = self.holdings[source]
            assert (source, id) not in copies and id != one.member
            self.put(one, [copy for copy in one.copies if copy != id], [copy for copy in one.making if copy != id])
        for source, id in found.copies:
            one = self.holdings[source]
            if one.member != id:
                assert self.members[id].places
                self.put(one, one.copies, (*one.making, id))
        self.changes += found.changes
        return found

    def take_over(self, one: Holding, change: Change) -> None:
        assert not change.keep or self.state(change.old) != "gone"
        having = [*one.copies, change.old] if change.keep and change.old else one.copies
        self.put(
            msgspec.structs.replace(one, member=change.new),
            [copy for copy in having if copy != change.new],
            [copy for copy in one.making if copy != change.new],
        )

    def put(self, one: Holding, copies: Iterable[str], making: Iterable[str]) -> None:
        self.holdings[one.source] = msgspec.structs.replace(one, copies=tuple(copies), making=tuple(making))

    def finish(self) -> None:
        """Those who are there have copied what they were asked to."""
        for one in list(self.holdings.values()):
            if self.state(one.member) == "alive":
                done = [id for id in one.making if self.state(id) == "alive"]
                self.put(one, (*one.copies, *done), [id for id in one.making if id not in done])

    def rest(self) -> None:
        for _ in range(60):
            found = self.step()
            self.check()
            # a copy that is under way may make another one needless
            if not (found.changes or found.copies or found.spare or any(one.making for one in self.holdings.values())):
                return
            self.finish()
        raise AssertionError(found)

    def check(self) -> None:
        for one in self.holdings.values():
            having = [*one.copies, *one.making, *([one.member] if one.member else [])]
            assert len(set(having)) == len(having), one


MEMBERS = [member(f"wrk_{n}") for n in range(4)]


def settled(count: int, sources: int = 200) -> House:
    house = House(MEMBERS, sources, count)
    house.rest()
    house.changes.clear()
    return house


def test_a_second_copy_moves_no_holder() -> None:
    house = settled(1)
    before = {one.source: one.member for one in house.holdings.values()}
    house.count = 2
    house.rest()
    assert {one.source: one.member for one in house.holdings.values()} == before
    assert all(len(one.copies) == 1 for one in house.holdings.values())
    assert max(Counter(one.copies[0] for one in house.holdings.values()).values()) <= 200 / 4 * 1.15
    house.count = 1
    house.rest()
    assert {one.source: one.member for one in house.holdings.values()} == before
    assert not any(one.copies for one in house.holdings.values())


def test_who_has_a_copy_takes_over_and_another_copy_is_made() -> None:
    house = settled(2)
    lost = {one.source: one for one in house.holdings.values() if one.member == "wrk_0"}
    others = {one.source: one for one in house.holdings.values() if one.member != "wrk_0"}
    house.members["wrk_0"] = member("wrk_0", "grace")
    assert house.step() == Plan([], [], [])  # it may come back
    house.members["wrk_0"] = member("wrk_0", "gone")
    first = house.step()
    heirs = {one.source: one.new for one in first.changes if one.old == "wrk_0"}
    assert heirs == {id: one.copies[0] for id, one in lost.items()}
    house.finish()
    house.rest()
    for one in house.holdings.values():
        assert len(one.copies) == 1 and "wrk_0" not in (one.member, *one.copies)
    moved = sum(house.holdings[id].member != one.member for id, one in others.items())
    assert moved <= 0.15 * len(lost)  # only to even out what the heirs have


def test_a_member_that_is_emptied_gives_its_copies_away_after_others_have_them() -> None:
    house = settled(2)
    house.members["wrk_3"] = member("wrk_3", draining=True)
    while any("wrk_3" in (one.member, *one.copies) for one in house.holdings.values()):
        house.step()
        assert all(len(one.copies) >= 1 for one in house.holdings.values())  # two have it at any moment
        house.finish()


def test_a_pin_says_who_holds_it_and_nothing_is_copied_for_that_where_it_has_a_copy() -> None:
    house = settled(2)
    (least, _) = Counter(one.member for one in house.holdings.values()).most_common()[-1]
    one = next(one for one in house.holdings.values() if one.copies == (least,))
    house.holdings[one.source] = msgspec.structs.replace(one, pins=(f"called {least}",))
    found = house.step()
    assert [(change.new, change.ready) for change in found.changes] == [(least, True)]
    assert found.copies == found.spare == []
    assert house.holdings[one.source].copies == (one.member,)
    assert house.step() == Plan([], [], [])


def test_a_copy_that_is_not_wanted_any_more_is_let_go_though_it_is_not_complete() -> None:
    house = settled(1, 20)
    house.holdings["src_1"] = msgspec.structs.replace(house.holdings["src_1"], making=("wrk_9",))
    assert house.step() == Plan([], [], [("src_1", "wrk_9")])


def test_without_members_nothing_is_let_go() -> None:
    house = settled(2, 20)
    house.members.clear()
    assert house.step() == Plan([], [], [])


EVENTS = st.tuples(
    st.integers(0, 4), st.sampled_from(["alive", "grace", "gone", "draining", "join", "forget"]), st.booleans()
)


@settings(max_examples=20, deadline=None)
@example(count=3, later=3, events=[(0, "alive", False), (0, "alive", True), (0, "alive", False)])
@given(count=st.integers(1, 4), later=st.integers(1, 4), events=st.lists(EVENTS, max_size=8))
def test_whatever_happens_each_source_has_one_holder_and_as_many_copies_as_there_can_be(
    count: int, later: int, events: list[tuple[int, str, bool]]
) -> None:
    house = House(MEMBERS, 24, count)
    for n, what, copied in events:
        id = f"wrk_{n}"
        if what == "forget":
            house.members.pop(id, None)
        else:
            state = what if what in ("grace", "gone") else "alive"
            house.members[id] = member(id, state, draining=what == "draining")
        house.step()
        house.check()
        if copied:
            house.finish()
    house.count = later
    house.members |= {one.id: one for one in (member("wrk_0"), member("wrk_1"))}
    for id, one in list(house.members.items()):
        if one.state == "grace":  # either comes back, or is gone in the end
            house.members[id] = member(id)
    house.rest()
    able = sum(one.places for one in house.members.values())
    for held in house.holdings.values():
        assert held.member and house.members[held.member].places
        assert not held.making and len(held.copies) == min(later, able) - 1, held
        assert all(house.members[copy].places for copy in held.copies)
