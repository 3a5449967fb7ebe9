"""Windows: every object is listed, moments stay whole, and windows stay small where they can."""

from hypothesis import given
from hypothesis import strategies as st

from skep.dataone.client import OVERLAP, Window, begin, choose


def count(times: list[int], window: Window) -> int:
    return sum(window.since <= time and (window.until is None or time < window.until) for time in times)


def search(times: list[int], since: int, now: int, most: int, span: int | None = None) -> tuple[Window, int]:
    probes = choose(since, now, most, span)
    asked, window = 1, next(probes)
    try:
        while True:
            window = probes.send(count(times, window))
            asked += 1
    except StopIteration as end:
        return end.value, asked


@given(st.lists(st.integers(0, 5_000), max_size=60), st.integers(1, 10), st.integers(1, 5_000))
def test_windows_cover_everything_and_split_no_moment(times: list[int], most: int, now: int) -> None:
    since, span, listed = 0, None, 0
    for _ in range(200):
        window, probes = search(times, since, now, most, span)
        assert probes <= 16
        listed += count(times, window)
        if window.until is None:
            break
        assert window.until > since
        alone = window.until == since + 1
        assert count(times, window) <= most or alone
        span, since = window.until - since, window.until
    else:
        raise AssertionError("it does not end")
    assert listed == len(times)


def test_a_small_node_is_one_window() -> None:
    assert search([5, 5, 9], 0, 100, 10) == (Window(0, None), 1)


def test_the_place_stays_behind_the_node() -> None:
    assert Window(0, None).place(1_000_000) < 1_000_000
    assert Window(0, 77).place(1_000_000) == 77
    assert begin(1_000_000) == 1_000_000 - OVERLAP and begin(3) == 0


def test_a_first_harvest_of_many_years_needs_few_probes() -> None:
    day = 86_400_000
    times = [day * 20_000 + n * 60_000 for n in range(20_000)]
    window, probes = search(times, 0, day * 20_600, 5_000)
    assert 2_500 <= count(times, window) <= 5_000 and probes < 40
    _, later = search(times, window.until or 0, day * 20_600, 5_000, 5_000 * 60_000)
    assert later < 5
