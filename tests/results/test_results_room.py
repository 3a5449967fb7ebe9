"""Results are recorded once, keep their curve's unit, and are found by what they are about."""

import asyncio
import csv
import io
from typing import Any

import msgspec
import pytest

from skep.base.caller import SYSTEM, Caller, Visibility
from skep.base.errors import BadInput, Conflict, NotAllowed, NotFound, TooLarge
from skep.results.api import KINDS, Draft, ResultQuery, Series
from skep.results.fields import checked, lines
from skep.tasks.model import TaskSpec
from tests.tasks.house import Engine, hand

PUBLIC = Caller("reader", frozenset({"read"}))


async def task(engine: Engine, **properties: Any) -> str:
    """One that nobody runs; `made_at=1` is the property `skep.made_at`."""
    named = {f"skep.{name}": str(value) for name, value in properties.items()}
    context = await engine.submit(TaskSpec("one", argv=("nothing",), properties=named))
    return (await engine.tasks(context))["one"].id


async def found(engine: Engine, *where: str, caller: Caller = SYSTEM, **more: Any) -> list[float]:
    return [one.value for one in (await engine.core.results.query(caller, ResultQuery(where, **more))).items]


async def test_what_a_task_is_about_is_what_its_results_are_about(engine: Engine) -> None:
    id = await task(engine, benchmark="nightly", commit="c0ffee", made_at=12.5, ref="main", machine="big")
    drafts = [Draft("time", values=(3.0, 1.0, 2.0), unit="s", group="parse", tags={"size": "10"}), Draft("n", 7.0)]
    assert await engine.core.results.record(SYSTEM, id, None, drafts) == 2
    first = (await engine.core.results.query(SYSTEM, ResultQuery(("metric=time",)))).items[0]
    assert (first.value, first.values, first.unit, first.group) == (2.0, (3.0, 1.0, 2.0), "s", "parse")
    assert (first.benchmark, first.commit, first.made_at, first.ref, first.machine) == (
        "nightly", "c0ffee", 12.5, "main", "big",
    )  # fmt: skip
    assert (first.task, first.attempt, first.number, first.tags) == (id, 0, 0, {"size": "10"})
    assert await engine.core.results.show(SYSTEM, first.id) == first
    with pytest.raises(NotFound, match="no result"):
        await engine.core.results.show(SYSTEM, "res_x")


async def test_a_repeat_is_known_by_its_number(engine: Engine) -> None:
    id, room = await task(engine), engine.core.results
    drafts = [Draft("time", float(n)) for n in range(5)]
    assert await room.record(SYSTEM, id, None, drafts[:3], first=0) == 3
    assert await room.record(SYSTEM, id, None, drafts, first=0) == 2
    assert await room.record(SYSTEM, id, None, drafts, first=0) == 0
    assert await room.record(SYSTEM, id, None, [Draft("time", 9.0)]) == 1
    assert sorted(await found(engine)) == [0, 1, 2, 3, 4, 9]


async def test_many_at_once_lose_nothing(engine: Engine) -> None:
    """Each curve is met by several transactions, in different order."""
    ids = [await task(engine, benchmark="b") for _ in range(4)]
    drafts = [Draft(f"m{n}", 1.0) for n in range(20)]
    orders = [drafts, drafts[::-1]] * 2
    record = engine.core.results.record
    made = await asyncio.gather(*(record(SYSTEM, id, None, some) for id, some in zip(ids, orders, strict=True)))
    assert made == [20] * 4
    assert len(await engine.core.results.series(SYSTEM)) == 20


async def test_a_retry_takes_the_place_of_the_try_before(engine: Engine) -> None:
    id, room = await task(engine), engine.core.results
    await room.record(SYSTEM, id, None, [Draft("time", 1.0, tags={"a": "b"}), Draft("time", 2.0)])
    async with hand(engine):
        await engine.core.contexts.wait(SYSTEM, (await engine.core.tasks.show(SYSTEM, id)).task.context, 60)
    with pytest.raises(Conflict, match=r"attempt 0 of task .* is over"):
        await room.record(SYSTEM, id, 0, [Draft("time", 3.0)])
    with pytest.raises(Conflict, match="is over"):
        await room.record(SYSTEM, id, 1, [Draft("time", 3.0)], member="wrk_other")
    assert await room.record(SYSTEM, id, 1, [Draft("time", 4.0)], first=0, member="wrk_1", machine="small") == 1
    assert await found(engine) == [4.0]
    assert await found(engine, "tags.a=b") == []
    assert await found(engine, "machine=small") == [4.0]


async def test_a_curve_keeps_its_unit(engine: Engine) -> None:
    id, room = await task(engine, benchmark="nightly"), engine.core.results
    await room.record(SYSTEM, id, None, [Draft("time", kind="failure", tags={"reason": "does not build"})])
    assert [one.unit for one in await room.series(SYSTEM)] == [None]
    await room.record(SYSTEM, id, None, [Draft("time", 1.0, "s")])
    with pytest.raises(Conflict, match=r"'nightly time' is measured in 's', and this result is in 'ms'"):
        await room.record(SYSTEM, id, None, [Draft("other", 1.0), Draft("time", 1000.0, "ms")])
    with pytest.raises(Conflict, match="measured in"):
        await room.record(SYSTEM, id, None, [Draft("new", 1.0, "s"), Draft("new", 1.0, "B")])
    assert {one.unit for one in await room.series(SYSTEM)} == {"s"}
    assert [one.kind for one in await room.points(SYSTEM, Series("nightly", metric="time"))] == ["failure", "measure"]


@pytest.mark.parametrize(
    ("draft", "says"),
    [
        (Draft("time", float("nan")), "is nan"),
        (Draft("time", float("inf")), "is inf"),
        (Draft("time", values=(1.0, float("-inf"))), "is -inf"),
        (Draft("time"), "neither a value nor values"),
        (Draft("", 1.0), "without a metric"),
        (Draft("time", 1.0, kind="guess"), "'guess' is no kind of result"),
        (Draft("time", 1.0, "s" * 41), "more than 40 characters"),
        (Draft("ti\nme", 1.0), "nobody can read"),
        (Draft("time", values=(1.0,) * 10_001), "10,001 values"),
        (Draft("time", 1.0, tags={str(n): "" for n in range(33)}), "33 tags"),
        (Draft("time", 1.0, tags={"a": "\0"}), "the tag a"),
    ],
)
def test_bad_drafts(draft: Draft, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        checked(draft, KINDS)
    if draft.kind == "guess":
        assert "measure, failure" in refused.value.message


async def test_who_may_record_and_how_much(engine: Engine) -> None:
    room, id = engine.core.results, await task(engine)
    with pytest.raises(NotAllowed):
        await room.record(PUBLIC, id, None, [Draft("time", 1.0)])
    with pytest.raises(BadInput, match="is nan"):
        await room.record(SYSTEM, id, None, [Draft("time", 1.0), Draft("time", float("nan"))])
    assert await found(engine) == []
    with pytest.raises(NotFound, match="no task 'tsk_x'"):
        await room.record(SYSTEM, "tsk_x", None, [Draft("time", 1.0)])
    with pytest.raises(TooLarge, match="10,001 results at once"):
        await room.record(SYSTEM, id, None, [Draft("time", 1.0)] * 10_001)
    with pytest.raises(TooLarge, match="more than 1,000,000"):
        await room.record(SYSTEM, id, None, [Draft("time", 1.0)], first=1_000_000)
    with pytest.raises(BadInput, match=r"skep\.made_at is 'yesterday'"):
        await room.record(SYSTEM, await task(engine, made_at="yesterday"), None, [Draft("time", 1.0)])


async def filled(engine: Engine) -> None:
    """Values 0 to 9 of two groups on two refs, later commits first."""
    for n in range(10):
        id = await task(engine, benchmark="b", ref=("main", "next")[n % 2], made_at=100 - n, commit=f"c{n}")
        group = "parse big_file" if n < 5 else "Print 100%"
        tags = {"size": str(n % 3)}
        await engine.core.results.record(SYSTEM, id, None, [Draft("time", float(n), "s", group=group, tags=tags)])


FILTERS: list[tuple[tuple[str, ...], set[int]]] = [
    ((), set(range(10))),
    (("ref=main",), {0, 2, 4, 6, 8}),
    (("ref!=main",), {1, 3, 5, 7, 9}),
    (("ref=main|next", "value<3"), {0, 1, 2}),
    (("commit=c1|c2|c9",), {1, 2, 9}),
    (("commit!=c1|c2|c9", "value <= 3"), {0, 3}),
    (("group~PARSE*",), {0, 1, 2, 3, 4}),
    (("group!~parse*",), {5, 6, 7, 8, 9}),
    (("group~parse big?file",), {0, 1, 2, 3, 4}),
    (("group~*100%",), {5, 6, 7, 8, 9}),
    (("group~*100_",), set()),
    (("value>=2.5", "value<7"), {3, 4, 5, 6}),
    (("tags.size=1",), {1, 4, 7}),
    (("tags.size!=1", "value<5"), {0, 2, 3}),
    (("tags.size>=1", "value<5"), {1, 2, 4}),
    (("tags.none=1",), set()),
    (("made_at>97",), {0, 1, 2}),
    (("attempt=0", "kind=measure", "unit=s", "metric=time", "benchmark=b"), set(range(10))),
    (("group=' OR 1=1 --",), set()),
]


async def test_filters_orders_pages_and_fields(engine: Engine) -> None:
    await filled(engine)
    for where, wanted in FILTERS:
        assert set(map(int, await found(engine, *where))) == wanted, where
    assert await found(engine, order="value", limit=3) == [0, 1, 2]
    assert await found(engine, order="-value", limit=3) == [9, 8, 7]
    room, seen, page = engine.core.results, list[float](), None
    while page != "":
        got = await room.select(SYSTEM, ResultQuery((), ("value", "tags"), "-ref", page or "", 3))
        seen += [row["value"] for row in got.items]
        page = got.next_page
    assert sorted(seen) == list(range(10))
    assert {int(value) % 2 for value in seen[:5]} == {1}
    assert got.items[-1].keys() == {"value", "tags"}


BAD_QUERIES = [
    (ResultQuery(("value",)), "'value' is no filter"),
    (ResultQuery(("size=1",)), "no field 'size'"),
    (ResultQuery(("values=1",)), "no field 'values'"),
    (ResultQuery(("value>=fast",)), "'fast' is no number"),
    (ResultQuery(("value~1*",)), "is a number and has no pattern"),
    (ResultQuery(("value=1",) * 51), "51 filters"),
    (ResultQuery(order="tags"), "no field 'tags'"),
    (ResultQuery(order="value; DROP TABLE result"), "no field"),
    (ResultQuery(fields=("value", "id; --")), "no field 'id; --'"),
    (ResultQuery(page="x"), "no page of results"),
    (ResultQuery(page="WzEsICJhIl0=", order="-at", where=("at<x",)), "'x' is no number"),
]


async def test_bad_queries(engine: Engine) -> None:
    for query, says in BAD_QUERIES:
        with pytest.raises(BadInput, match=says):
            await engine.core.results.select(SYSTEM, query)


async def test_aggregates_over_groups(engine: Engine) -> None:
    await filled(engine)
    id, room = await task(engine), engine.core.results
    await room.record(SYSTEM, id, None, [Draft("memory", float(n), "B") for n in range(1, 101)])
    await room.record(SYSTEM, id, None, [Draft("memory", kind="failure")])
    by_ref = {one.by["ref"]: one for one in await room.aggregate(SYSTEM, ["metric=time"], ["ref"])}
    main = by_ref["main"]
    assert (main.count, main.min, main.max, main.mean, main.median, main.p95) == (5, 0, 8, 4, 4, 8)
    memory, time = await room.aggregate(SYSTEM)
    assert (memory.metric, memory.unit, memory.count, memory.median, memory.p95) == ("memory", "B", 100, 50.5, 95)
    assert (time.unit, time.count, time.median) == ("s", 10, 4.5)
    with pytest.raises(BadInput, match="no field 'values'"):
        await room.aggregate(SYSTEM, by=["values"])


async def test_curves_run_from_the_oldest_commit(engine: Engine) -> None:
    await filled(engine)
    room = engine.core.results
    curves = await room.series(SYSTEM, ["group~parse*"])
    assert [(one.ref, one.group, one.unit) for one in curves] == [
        ("main", "parse big_file", "s"), ("next", "parse big_file", "s"),
    ]  # fmt: skip
    assert [one.value for one in await room.points(SYSTEM, curves[0])] == [4, 2, 0]
    assert [one.value for one in await room.points(SYSTEM, curves[0], limit=2)] == [2, 0]
    assert await room.points(SYSTEM, Series("other")) == []
    with pytest.raises(BadInput, match="a series has no such field"):
        await room.series(SYSTEM, ["value>1"])


async def test_a_private_source_keeps_its_results(engine: Engine) -> None:
    room, ids = engine.core.results, []
    visibilities: tuple[Visibility, ...] = ("public", "private")
    for n, visibility in enumerate(visibilities):
        added = await engine.core.sources.add(SYSTEM, f"https://127.0.0.{n + 1}/a", visibility=visibility)
        source = added.source
        ids.append(source.id)
        for name in (source.id, source.name):
            id = await task(engine, source=name)
            await room.record(SYSTEM, id, None, [Draft("time", float(n))])
    await room.record(SYSTEM, await task(engine, source="src_gone"), None, [Draft("time", 2.0)])
    await room.record(SYSTEM, await task(engine), None, [Draft("time", 3.0)])
    assert sorted(await found(engine)) == [0, 0, 1, 1, 2, 3]
    assert sorted(await found(engine, caller=PUBLIC)) == [0, 0, 3]
    assert len(await room.series(PUBLIC)) == 3
    assert (await room.aggregate(PUBLIC))[0].max == 3
    assert await room.points(PUBLIC, Series(source=ids[1], metric="time")) == []
    assert len(await room.points(SYSTEM, Series(source=ids[1], metric="time"))) == 1
    hidden = await engine.submit(TaskSpec("one", argv=("nothing",), source=ids[1]))
    writer = Caller("writer", frozenset({"read", "write"}))
    with pytest.raises(NotFound, match="no task"):
        await room.record(writer, (await engine.tasks(hidden))["one"].id, None, [Draft("time", 1.0)])


async def test_export(engine: Engine) -> None:
    await filled(engine)
    room, query = engine.core.results, ResultQuery(("value<3",), order="value")
    rows = b"".join([piece async for piece in lines(room.every(SYSTEM, query), "jsonl")])
    assert [msgspec.json.decode(line)["value"] for line in rows.splitlines()] == [0, 1, 2]
    chosen = msgspec.structs.replace(query, fields=("value", "group", "tags"))
    text = b"".join([piece async for piece in lines(room.every(SYSTEM, chosen), "csv", chosen.fields)]).decode()
    assert list(csv.reader(io.StringIO(text)))[:2] == [
        ["value", "group", "tags"],
        ["0.0", "parse big_file", '{"size":"0"}'],
    ]
