"""What is told of a series while it grows: a step once, wherever more points move it; and why a bisect finds none."""

import numpy as np
import pytest

from skep.base.caller import SYSTEM
from skep.base.clock import SystemClock
from skep.benchmarks.api import BenchmarkSpec
from skep.benchmarks.change_points import Finding
from skep.results.api import Draft
from skep.storage.database import Row
from skep.tasks.model import TaskSpec
from tests.tasks.house import Engine


def commit(place: int) -> str:
    return f"{place:040x}"


class Grown:
    """A benchmark `speed` that tells its steps at once, and whose curve a test draws."""

    def __init__(self, engine: Engine, source: str) -> None:
        self._engine = engine
        self._source = source
        self._points = 0
        self.finding = Finding(engine.db, SystemClock(), engine.core.topics, engine.core.results)

    async def grow(self, *points: tuple[float, ...]) -> None:
        """Each point has the values of its runs."""
        about = {"skep.benchmark": "speed", "skep.source": self._source, "skep.ref": "main"}
        places = range(self._points, self._points + len(points))
        specs = [
            TaskSpec(
                f"t{n}", argv=("nothing",), properties={**about, "skep.commit": commit(n), "skep.made_at": f"{n + 1}"}
            )
            for n in places
        ]
        tasks = await self._engine.tasks(await self._engine.submit(*specs))
        for n, values in zip(places, points, strict=True):
            await self._engine.core.results.record(SYSTEM, tasks[f"t{n}"].id, None, [Draft("time", None, "s", values)])
        self._points += len(points)

    async def told(self) -> list[str]:
        """After a look: the commits of all notices, oldest first."""
        await self.finding.look(await self.row())
        steps = await self._engine.core.benchmarks.steps(SYSTEM, "speed")
        assert {step.state for step in steps} <= {"told"}
        return [step.commit for step in reversed(steps)]

    async def row(self) -> Row:
        return (await self._engine.sql("SELECT * FROM benchmark"))[0]

    async def suspect(self, old: str, new: str) -> str:
        return await self.finding.suspect(await self.row(), "main", old, new)


@pytest.fixture
async def grown(engine: Engine) -> Grown:
    await engine.core.sources.add(SYSTEM, "https://github.com/a/b")
    spec = BenchmarkSpec("speed", "github.com/a/b", ("nothing",), bisect=False)
    return Grown(engine, (await engine.core.benchmarks.add(SYSTEM, spec)).source)


async def test_a_step_that_moves_with_more_points_was_told(grown: Grown) -> None:
    """3 % at a noise of 3 %: where it is stays in doubt for long, from 56 to 31 to 38. Another one is told."""
    dice = np.random.default_rng(5)
    values = np.where(np.arange(70) < 30, 100.0, 103.0) * (1 + 0.03 * dice.standard_normal(70))
    points = [(float(value),) for value in values]
    await grown.grow(*points[:62])
    first = await grown.told()
    assert first == [commit(56)]
    for old, new in ((62, 64), (64, 66)):
        await grown.grow(*points[old:new])
        assert await grown.told() == first
    await grown.grow(*((float(value) * 1.25,) for value in values[:12]))
    assert await grown.told() == [*first, commit(66)]


async def test_two_steps_near_each_other_stay_two(grown: Grown) -> None:
    """Each is the one that was told nearest to it, in whatever order the rows come."""
    dice = np.random.default_rng(1)
    levels = np.repeat([100.0, 110.0, 121.0], [20, 6, 20])
    points = [(float(value),) for value in levels * (1 + 0.003 * dice.standard_normal(46))]
    await grown.grow(*points[:32])
    assert await grown.told() == [commit(20), commit(26)]
    await grown.grow(*points[32:])
    assert await grown.told() == [commit(20), commit(26)]


async def test_a_bisect_between_ends_that_do_not_differ_says_so(grown: Grown) -> None:
    await grown.grow((1.0, 1.01, 0.99), (1.01, 1.0, 0.99), (2.0, 2.01, 1.99))
    ends = [commit(n) for n in range(3)]
    assert await grown.suspect(ends[0], ends[1]) == f"no difference between {ends[0][:12]} and {ends[1][:12]}"
    assert await grown.suspect("v1", ends[1]) == f"v1 or {ends[1]} was not measured"
    assert await grown.suspect(ends[1], ends[2]) == ""
    assert [step.commit for step in await grown.finding.open((await grown.row())["id"])] == [ends[2]]
