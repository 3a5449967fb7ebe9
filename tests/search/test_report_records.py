"""Reports found by words, fields and ranges: by who may see their sources, and only as long as there is one."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from skep.analysis.model import Hot, LanguageShare, Report, Share
from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadQuery
from skep.storage.code_index.model import Limits
from tests.tasks.house import Engine, MovableClock, coordinator

from .conftest import Library

STRANGER = Caller("somebody", frozenset({"read"}))


def report(language: str, complexity: float, *functions: str) -> Report:
    share = Share(2, 100, 40)
    hot = [Hot(f"src/{name}.x", 3, name, language, 9, 1, 1, 1, 1, 2.0, 4) for name in functions]
    languages = [LanguageShare(language, share)]
    nothing = Share()
    return Report("c" * 40, "MIT", share, languages, {}, nothing, nothing, nothing, 3, 2.0, complexity, hot, [], [])


async def found(engine: Engine, query: str, caller: Caller = SYSTEM) -> list[str]:
    return sorted(hit.name for hit in (await engine.core.search.search(caller, query, Limits())).records)


async def store(engine: Engine, url: str, report: Report) -> str:
    source = (await engine.core.sources.add(SYSTEM, url)).source
    held = await engine.core.sources.held(source.id)
    assert held is not None
    await engine.core.reports.store(held, held.epoch, report)
    return source.id


async def until(engine: Engine, query: str, names: list[str], caller: Caller = SYSTEM) -> None:
    """The follower hears of it by a bell."""
    async with engine.db.listen("nothing") as bell:
        while await found(engine, query, caller) != names:
            await bell.wait(0.05)


async def test_by_words_fields_and_ranges_and_who_may_see(tmp_path: Path) -> None:
    async with coordinator(tmp_path, "sqlite:") as engine:
        first = await store(engine, "https://host.example/tea", report("Go", 12.0, "pour"))
        await store(engine, "https://host.example/pot", report("Python", 2.0, "boil", "pour"))
        both = ["host.example/pot", "host.example/tea"]
        await until(engine, "type:report pour", both)
        assert await found(engine, "type:report boil") == both[:1]
        assert await found(engine, "type:report language:Go") == both[1:]
        assert await found(engine, "type:report complexity:[10 TO 20]") == both[1:]
        for text in ("language:go", "lang:Go", "l:golang", 'lang:"GO"', "lang:(go or rust)", "-lang:py", "lang:Go*"):
            assert await found(engine, f"type:report {text}") == both[1:], text
        for text in ("license:MIT", "licence:mit"):
            assert await found(engine, f"{text} type:report") == both, text

        await engine.core.sources.update(SYSTEM, first, visibility="private")
        await until(engine, "type:report pour", both[:1], STRANGER)
        assert await found(engine, "type:report pour") == both
        await engine.core.sources.remove(SYSTEM, first)
        await until(engine, "type:report pour", both[:1])


async def test_what_is_stored_after_one_that_came_later_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two coordinators have a second between their clocks, and one transaction takes longer than another."""
    async with coordinator(tmp_path, "sqlite:", MovableClock()) as engine:
        await store(engine, "https://host.example/tea", report("Go", 12.0, "pour"))
        await until(engine, "type:report pour", ["host.example/tea"])
        monkeypatch.setattr(engine.clock, "ahead", -1.0)
        await store(engine, "https://host.example/pot", report("Go", 12.0, "boil"))
        async with asyncio.timeout(60):
            await until(engine, "type:report boil", ["host.example/pot"])


async def test_records_are_filled_again_when_they_are_lost(tmp_path: Path) -> None:
    async with coordinator(tmp_path, "sqlite:") as engine:
        await store(engine, "https://host.example/tea", report("Go", 12.0, "pour"))
        await until(engine, "type:report pour", ["host.example/tea"])
    lost = tmp_path / "records"
    lost.rename(tmp_path / "gone")
    async with coordinator(tmp_path, "sqlite:") as engine:
        assert await found(engine, "type:report pour") == ["host.example/tea"]
        assert msgspec.json.encode(await engine.core.reports.show(SYSTEM, "host.example/tea"))


async def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    async with coordinator(tmp_path, "sqlite:") as engine:
        first = await store(engine, "https://host.example/tea", report("Go", 12.0, "pour"))
        await store(engine, "https://host.example/pot", report("Python", 2.0, "pour"))
        await until(engine, "type:report pour", ["host.example/pot", "host.example/tea"])
        async with engine.db.listen("nothing") as bell:
            while not await engine.sql("SELECT name FROM report_place"):  # noted after what was found is there
                await bell.wait(0.05)
        await engine.stop_serving()
        await engine.core.sources.remove(SYSTEM, first)
        await store(engine, "https://host.example/cup", report("C", 2.0, "pour"))
    async with coordinator(tmp_path, "sqlite:") as engine:
        assert await found(engine, "type:report pour") == ["host.example/cup", "host.example/pot"]


@pytest.mark.parametrize(
    ("text", "column", "hint"),
    [
        ("type:report foo nosuch:x", 17, "quotes"),
        ("foo nosuch:x type:report", 5, "quotes"),
        ("foo t:report lagn:go", 14, "did you mean `lang:`"),
        ("type:report lang:pyhton", 18, "did you mean `python`"),
        ("type:report files:many", 19, "whole number"),
        ("  type:report (x", 15, "quotes"),
        ("type:record foo nosuch:x", 17, "quotes"),
    ],
)
async def test_what_is_wrong_is_pointed_at(library: Library, text: str, column: int, hint: str) -> None:
    with pytest.raises(BadQuery) as caught:
        await library.search(text)
    assert (caught.value.column, hint in caught.value.hint) == (column, True), caught.value.hint


async def test_every_field_that_is_offered_is_one(library: Library) -> None:
    complete = library.core.search.complete
    for kind, least in (("report", 9), ("record", 90)):
        offered = [one.text for one in await complete(SYSTEM, f"type:{kind} ", len(f"type:{kind} "))]
        assert len(offered) >= least
        for name in offered:
            assert (await library.search(f"type:{kind} {name}*")).records == []
    assert (await library.search("type:report lang:go")).records == []
