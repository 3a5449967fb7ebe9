"""Pictures: well-formed whatever names come from outside, and they say what they should."""

import math
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.benchmarks.api import Step
from skep.benchmarks.change_points import locate, supported
from skep.benchmarks.evaluations import compare_plot, distribution_plot, series_plot, shown
from skep.benchmarks.step_detection import Found
from skep.results.api import Result, Series

SERIES = Series("speed", "src_1", "main", "parse <b>", "time", "cpu&co", "s")
SVG = "{http://www.w3.org/2000/svg}"


def point(n: int, value: float, kind: str = "measure", **tags: str) -> Result:
    values = (value * 0.99, value, value * 1.01)
    given: dict[str, Any] = {"author": "Eve <script>alert(1)</script>", "subject": '"><x', **tags}
    place = ("tsk_1", 1, n, "ctx_1", "speed", "src_1", "main", f"{n:040x}", float(n), "cpu&co", 0.0)
    return Result(f"res_{n}", kind, "time", value, "s", values, "parse", given, *place)


def step(n: int, change: float) -> Step:
    names = ("stp_1", "speed", "src_1", "main", "parse", "time", "cpu", "s", f"{n:040x}", f"{n - 1:040x}")
    return Step(*names, float(n), "Eve", "slow & sad", 1.0, 1.0 + change, change, 0.0001, "told", 0.0)


def test_a_series_has_dots_steps_failures_and_links() -> None:
    points = [point(n, 1.0 if n < 5 else 1.1) for n in range(10) if n != 3]
    drawn = series_plot(SERIES, points, [step(5, 0.1)], [point(3, 0.0, "failure", reason="build: no")], "/commit/")
    picture = ET.fromstring(drawn)
    assert len(picture.findall(f".//{SVG}circle")) == 9
    titles = [title.text or "" for title in picture.iter(f"{SVG}title")]
    assert any("+10.0% at" in title and "slow & sad" in title for title in titles)
    assert any("build: no" in title for title in titles)
    assert any("Eve <script>" in title and "1.1 s" in title for title in titles)
    links = [link.get("href") for link in picture.iter(f"{SVG}a")]
    assert f"/commit/{5:040x}" in links
    assert "<script" not in drawn
    assert "style" not in drawn


def test_before_and_after_and_how_often() -> None:
    one = point(2, 1.1, base="f" * 40, base_values="1.0 1.01 0.99", ratio="1.1", p="0.25")
    assert "+10.0%, p = 0.25" in compare_plot(SERIES, one)
    assert len(ET.fromstring(compare_plot(SERIES, one)).findall(f".//{SVG}circle")) == 6
    assert "nothing to compare with" in compare_plot(SERIES, point(1, 1.0))
    bars = ET.fromstring(distribution_plot(SERIES, [point(n, 1.0 + n / 10) for n in range(9)])).findall(f".//{SVG}rect")
    assert bars
    for drawn in (series_plot(SERIES, ()), distribution_plot(SERIES, ())):
        assert "nothing was measured yet" in drawn


@given(st.lists(st.floats(min_value=1e-12, max_value=1e15), min_size=1, max_size=30), st.text(max_size=20))
def test_any_values_and_names_give_a_picture(values: list[float], name: str) -> None:
    printable = "".join(c for c in name if c.isprintable())
    points = [point(n, value, subject=printable) for n, value in enumerate(values)]
    for drawn in (series_plot(SERIES, points), distribution_plot(SERIES, points), compare_plot(SERIES, points[0])):
        ET.fromstring(drawn)
        assert "nan" not in drawn.lower()


def test_numbers_as_people_write_them() -> None:
    assert [shown(value, "s") for value in (1.5, 0.25, 0.00125, 3e-8)] == ["1.5 s", "250 ms", "1.25 ms", "30 ns"]
    assert shown(12.0, "MB") == "12 MB"


def test_pairs_settle_where_a_series_leaves_a_doubt() -> None:
    def pair(n: int, ratio: float, p: float) -> Result:
        return point(n, 1.0, base=f"{n - 1:040x}", ratio=f"{ratio}", p=f"{p}")

    found = Found(5, 4, 6, 1.0, 1.1, 0.0001)
    flat = [pair(n, 1.0, 0.9) for n in range(10)]
    clear = [pair(n, 1.09 if n == 6 else 1.0, 0.01 if n == 6 else 0.9) for n in range(10)]
    assert not supported(flat, found)
    assert supported(clear, found)
    assert supported([point(n, 1.0) for n in range(10)], found), "nothing took turns"
    assert (locate(flat, found), locate(clear, found)) == (5, 6)
    assert math.isclose(Found(5, 4, 6, 1.0, 0.9, 0.1).change, -0.1)
    down = Found(5, 4, 6, 1.0, 0.9, 0.0001)
    assert not supported(clear, down)


@pytest.mark.parametrize("count", [1, 2, 500])
def test_pictures_stay_small(count: int) -> None:
    assert len(series_plot(SERIES, [point(n, 1.0) for n in range(count)])) < 2000 + 700 * count
