"""Connections that one host permits, divided among workers: never more together, and each has its turn."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from skep.sources.polling.schedule import Hosts, Limit, places

times = st.floats(1.7e9, 1.8e9)


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=60), st.integers(1, 20), times)
def test_together_they_have_what_is_permitted(capacities: list[float], concurrency: int, now: float) -> None:
    cuts = [sum(capacities[:n]) / sum(capacities) for n in range(len(capacities))] + [1.0]
    parts = list(pairwise(cuts))
    assert sum(places(concurrency, part, now) for part in parts) == concurrency
    assert all(places(concurrency, part, now) >= 0 for part in parts)


@given(st.integers(2, 200), st.integers(0, 199), st.integers(1, 4), times)
def test_who_has_none_is_told_when_one_is_its_own(workers: int, which: int, concurrency: int, now: float) -> None:
    part = (which % workers / workers, (which % workers + 1) / workers)
    hosts = Hosts(Limit(concurrency, 1000.0))
    hosts.share = part
    wait = hosts.delay("host", now)
    assert 0.0 <= wait <= 20.0
    if wait:
        assert places(concurrency, part, now) == 0
        assert hosts.delay("host", math.nextafter(now + wait, math.inf)) <= 1e-3
    hosts.enter("host", now)
    if places(concurrency, part, now) <= 1:
        assert hosts.delay("host", now) == math.inf


def test_alone_everything_is_its_own() -> None:
    hosts = Hosts(Limit(3, 1000.0))
    for _ in range(3):
        assert hosts.delay("host", 0.0) == 0.0
        hosts.enter("host", 0.0)
    assert hosts.delay("host", 0.0) == math.inf
