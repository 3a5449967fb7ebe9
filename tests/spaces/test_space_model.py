"""A space against a plain list: whatever is put, taken, ended, lapses or released, and however often it starts anew."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from skep.access.tokens import Access
from skep.base.caller import SYSTEM
from skep.base.errors import Conflict
from skep.spaces.api import template_of
from skep.spaces.service import Spaces
from skep.storage.sqlite import open_memory
from tests.rooms.house import MovedClock

heads = st.sampled_from(["job", 1, True, 1.0])
tuples = st.tuples(heads, st.sampled_from([0, 1, "x"])) | st.tuples(heads)
templates = st.tuples(heads | st.sampled_from([str, int, float, bool, any]), st.sampled_from([0, 1, str, int, any]))
takers = st.sampled_from(["", "man/1", "man/2", "wrk/1"])


class Row:
    def __init__(self, seq: int, fields: tuple[Any, ...], id: str) -> None:
        self.seq, self.fields, self.id = seq, fields, id
        self.taker, self.ticket, self.until = "", "", 0.0


def match(template: tuple[Any, ...], fields: tuple[Any, ...]) -> bool:
    if len(template) != len(fields):
        return False
    return all(
        part is any or type(field) is part or (type(field) is type(part) and field == part)
        for part, field in zip(template, fields, strict=True)
    )


class SpaceMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = MovedClock()
        self.rows: list[Row] = []
        self.tickets: list[tuple[int, str]] = []
        self.boot = 0

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    @initialize()
    def open(self) -> None:
        self.db = self.run(open_memory("memory:", data=Path(), durability="full"))
        with tempfile.TemporaryDirectory() as folder:
            self.run(Access(self.db, self.clock, Path(folder), open_read=True).start())
        self.begin()

    def begin(self) -> None:
        async def begin() -> Spaces:
            spaces = Spaces(self.db, self.clock)
            await spaces.start()
            return spaces

        self.clock.time += 0.01  # a later start is a later boot
        self.spaces: Spaces = self.run(begin())

    def teardown(self) -> None:
        if hasattr(self, "spaces"):
            self.run(self.spaces.close())
            self.run(self.db.close())
        self.loop.close()

    def free(self, template: tuple[Any, ...]) -> list[Row]:
        now = self.clock.time
        return [row for row in self.rows if row.until <= now and match(template, row.fields)]

    def of(self, seq: int, ticket: str) -> Row | None:
        return next((row for row in self.rows if row.seq == seq and row.ticket == ticket), None)

    @rule(fields=tuples, id=st.sampled_from(["", "", "a", "b"]))
    def put(self, fields: tuple[Any, ...], id: str) -> None:
        seq = self.run(self.spaces.put(SYSTEM, "s", fields, id))
        there = [row.seq for row in self.rows if id and row.id == id]
        if there:
            assert seq == there[0]
        else:
            assert all(seq > row.seq for row in self.rows)
            self.rows.append(Row(seq, fields, id))

    @rule(template=templates, lease=st.sampled_from([5.0, 50.0]), taker=takers)
    def get(self, template: tuple[Any, ...], lease: float, taker: str) -> None:
        taken = self.run(self.spaces.get(SYSTEM, "s", template_of(template), lease=lease, taker=taker))
        found = self.free(template)
        if not found:
            assert taken is None
            return
        row = found[0]
        assert (taken.seq, taken.fields, taken.id) == (row.seq, row.fields, row.id)
        assert [type(field) for field in taken.fields] == [type(field) for field in row.fields]
        row.taker, row.ticket, row.until = taker or f"here/{self.boot}", taken.ticket, self.clock.time + lease
        self.tickets.append((row.seq, row.ticket))

    @rule(template=templates)
    def get_all(self, template: tuple[Any, ...]) -> None:
        gone = self.free(template)
        taken = self.run(self.spaces.get_all(SYSTEM, "s", template_of(template)))
        assert [one.seq for one in taken] == [row.seq for row in gone]
        self.rows = [row for row in self.rows if row not in gone]

    @rule(template=templates, fields=tuples)
    def replace(self, template: tuple[Any, ...], fields: tuple[Any, ...]) -> None:
        gone = self.free(template)[:1]
        seq = self.run(self.spaces.replace(SYSTEM, "s", template_of(template), fields))
        self.rows = [row for row in self.rows if row not in gone] + [Row(seq, fields, "")]

    @rule(n=st.integers(0, 9), verb=st.sampled_from(["acknowledge", "give_back", "keep"]))
    def end(self, n: int, verb: str) -> None:
        if not self.tickets:
            return
        seq, ticket = self.tickets[-1 - n % len(self.tickets)]
        row = self.of(seq, ticket)
        try:
            self.run(getattr(self.spaces, verb)(SYSTEM, "s", seq, ticket))
            assert row is not None or verb == "give_back"
        except Conflict:
            assert row is None
        if row is None:
            return
        if verb == "acknowledge":
            self.rows.remove(row)
        elif verb == "give_back":
            row.taker, row.ticket, row.until = "", "", 0.0
        else:
            row.taker, row.until = f"here/{self.boot}", self.clock.time + 60.0

    @rule(seconds=st.sampled_from([1.0, 6.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.time += seconds

    @rule(taker=st.sampled_from(["man/1", "man/2", "man", "wrk/1"]))
    def goes(self, taker: str) -> None:
        self.run(self.spaces.release(taker))
        self.forget(taker)

    def forget(self, taker: str) -> None:
        for row in self.rows:
            if row.taker == taker or row.taker.startswith(f"{taker}/"):
                row.taker, row.until = "", 0.0

    @rule()
    def starts_anew(self) -> None:
        self.run(self.spaces.close())
        self.boot += 1
        self.forget("here")
        self.begin()

    @invariant()
    def everything_free_is_seen_in_order(self) -> None:
        if not hasattr(self, "spaces"):
            return
        for template in ((any,), (any, any)):
            seen = self.run(self.spaces.query_all(SYSTEM, "s", template_of(template)))
            assert [one.seq for one in seen] == [row.seq for row in self.free(template)]


TestSpaceAgainstAList = SpaceMachine.TestCase
TestSpaceAgainstAList.settings = settings(max_examples=40, stateful_step_count=40)
