"""Runs everything once and writes down each surface."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.renames import Rename
from tests.support.postgres import running_postgres

from .lines import document
from .recorders import (
    audit,
    cli,
    client,
    dataone,
    errors,
    explain,
    metrics,
    openapi,
    pages,
    payloads,
    rpc,
    schema,
    settings,
)
from .renames import translate
from .scene import opened
from .script import play

#: those that need nothing but the code
STATIC: Mapping[str, Callable[[Path], Iterable[str]]] = {
    "client": lambda folder: client.record(),
    "rpc": lambda folder: rpc.record(),
    "settings": settings.record,
}
PLAYED = ("audit", "cli", "dataone", "errors", "explain", "metrics", "openapi", "pages", "payloads")
SURFACES = tuple(sorted((*STATIC, *PLAYED, "schema")))


def record(surfaces: Sequence[str] = SURFACES, table: Sequence[Rename] = (), *, renew: bool = False) -> dict[str, str]:
    """The text of each of these surfaces, from the tree as it is. `table` translates the list of statements; with
    `renew`, statements that are not executed any more are replaced in it."""
    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        return asyncio.run(_record(Path(name), surfaces, table, renew))


async def _record(folder: Path, surfaces: Sequence[str], table: Sequence[Rename], renew: bool) -> dict[str, str]:
    found: dict[str, list[str]] = {one: list(STATIC[one](folder)) for one in surfaces if one in STATIC}
    with ExitStack() as stack:
        url = stack.enter_context(running_postgres()) if {"schema", "explain"} & set(surfaces) else ""
        if "schema" in surfaces:
            found["schema"] = [one async for one in schema.record(folder, url)]
        if set(PLAYED) & set(surfaces):
            played, counts, hot = await _played(folder)
            found |= played
            if "explain" in surfaces:
                if renew:
                    explain.write_statements(explain.renewed(explain.read_statements(), counts, hot))
                wanted = _statements(table)
                found["explain"] = [one async for one in explain.record(folder, url, wanted, counts.keys())]
    return {one: document(found[one]) for one in surfaces}


def _statements(table: Sequence[Rename]) -> dict[str, tuple[str, ...]]:
    known = explain.read_statements()
    return dict(zip(translate("explain", known, table), known.values(), strict=True))


async def _played(folder: Path) -> tuple[dict[str, list[str]], explain.Counts, explain.Counts]:
    """The recorded lines, all statements that were executed, and those that the script alone executed."""
    with explain.counting() as counts:
        async with opened(folder / "scene") as scene:
            played = await play(scene)
            hot = explain.copied(counts)
            found = {
                "cli": [*cli.record(), *cli.ended(scene, played)],
                "openapi": await _all(openapi.record(scene)),
                "pages": [*pages.record(), *await _all(pages.shown(scene))],
                "metrics": await _all(metrics.record(scene)),
                "errors": [*errors.record(), *await _all(errors.answers(scene))],
                "dataone": await _all(dataone.record(scene)),
                "audit": [*audit.record(), *await _all(audit.seen(scene))],
            }
            await scene.stop_worker()
            found["payloads"] = await _all(payloads.record(scene))
    return found, counts, hot


def measure() -> dict[str, tuple[str, ...]]:
    """The hottest statements of the scene."""

    async def run(folder: Path) -> explain.Counts:
        return (await _played(folder))[2]

    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        return explain.choose(asyncio.run(run(Path(name))))


async def _all(lines: AsyncIterator[str]) -> list[str]:
    return [one async for one in lines]
