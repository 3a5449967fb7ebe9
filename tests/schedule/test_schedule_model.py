import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skep.sources.model import Failure
from skep.sources.polling.schedule import LOCAL, Bounds, Bucket, Hosts, Limit, host_of, interval, pause, worth_telling
from skep.sources.polling.scheduler import DueQueue, Picker

chances = st.floats(0, 1, exclude_max=True)
classes = st.sampled_from(
    [
        "gone",
        "auth",
        "blocked",
        "rate_limited",
        "corrupt",
        "too_big",
        "emptied",
        "not_git",
        "network",
        "disk",
        "internal",
    ]
)
DAY = 86_400.0


@given(st.floats(0, 1e12), st.floats(0.01, 1e4), st.floats(0, 1e6), chances)
def test_an_interval_stays_within_bounds(wait: float, low: float, more: float, chance: float) -> None:
    assert low <= interval(wait, Bounds(low, low + more), chance) <= low + more


@given(st.floats(0, 1e7), st.floats(0, 1e7), chances)
def test_a_longer_wait_is_no_shorter_interval(wait: float, more: float, chance: float) -> None:
    bounds = Bounds(60, 28_800)
    assert interval(wait, bounds, chance) <= interval(wait + more, bounds, chance)


@given(st.sampled_from([0.0, 60.0, 1e9]))
def test_even_at_a_bound_looks_are_spread(wait: float) -> None:
    bounds = Bounds(60, 28_800)
    assert interval(wait, bounds, 0.9) > 1.1 * interval(wait, bounds, 0.1)


@given(classes, st.integers(1, 10_000), st.none() | st.floats(allow_nan=True), chances)
def test_a_failing_source_rests_longer_and_longer_but_never_for_ever(
    kind: str, failures: int, retry_after: float | None, chance: float
) -> None:
    failure = Failure(kind, "", retry_after)  # type: ignore[arg-type]
    rest = pause(failure, failures, chance)
    assert 0 < rest <= 1.1 * DAY
    assert rest <= pause(failure, failures + 1, chance)
    if retry_after is not None and not math.isnan(retry_after):
        assert rest >= min(retry_after, DAY)


def test_network_begins_at_half_a_minute_and_ends_at_an_hour() -> None:
    assert pause(Failure("network", ""), 1, 0.5) == 30
    assert pause(Failure("network", ""), 2, 0.5) == 60
    assert pause(Failure("network", ""), 99, 0.5) == 3600


def test_repeats_are_told_at_powers_of_two() -> None:
    assert [n for n in range(1, 40) if worth_telling(n, "network", "network")] == [1, 2, 4, 8, 16, 32]
    assert worth_telling(3, "network", "auth")


def test_host_of_every_spelling() -> None:
    assert host_of("https://user@GitHub.com/a/b") == "github.com"
    assert host_of("http://127.0.0.1:8080/x") == "127.0.0.1:8080"
    assert host_of("git@github.com:a/b.git") == "github.com"
    assert host_of("ssh://git@host:2222/a") == "host:2222"
    assert {host_of(url) for url in ("/srv/a", "file:///srv/a", "./a:b", "http://[bad")} == {LOCAL}


def test_a_host_that_sent_us_away_is_asked_slower_and_recovers() -> None:
    hosts, now = Hosts(Limit(100, 10.0)), 1.7e9
    for _ in range(30):  # thirty answers of requests that were under way at the same time are one refusal
        rest = hosts.rest("h", now, now + 60)
    assert (rest.until, rest.pace) == (now + 60, 0.5)
    assert hosts.delay("h", now) == 60
    assert _in(hosts, now + 60, 10) == pytest.approx(10 + 5 * 10, abs=2)  # what was saved up, then half the rate
    assert _in(hosts, now + 3600, 10) > _in(hosts, now + 3700, 10) - 20
    again = hosts.rest("h", now + 7200, now + 7300)
    assert again.pace == 0.5, "it had recovered"
    assert hosts.rest("h", now + 7301, now + 7400).pace == pytest.approx(0.25, rel=0.01)
    reborn = Hosts(Limit(100, 10.0))
    reborn.restore("h", now + 7390, again)
    assert reborn.delay("h", now + 7299) == pytest.approx(1)


def _in(hosts: Hosts, start: float, seconds: float) -> int:
    """How many are let in."""
    now, count = start, 0
    while (now := now + hosts.delay("h", now)) < start + seconds:
        hosts.enter("h", now)
        hosts.leave("h")
        count += 1
    return count


def test_hosts_may_have_limits_of_their_own() -> None:
    hosts = Hosts(Limit(100, 10.0), {"slow": Limit(1, 0.5)})
    for name, delay in (("slow", math.inf), ("other", 0.0)):
        hosts.enter(name, 0.0)
        assert hosts.delay(name, 0.0) == delay
    hosts.leave("slow")
    assert hosts.delay("slow", 0.0) == pytest.approx(2.0)


@given(st.floats(0.001, 1e4), st.floats(1.6e9, 1.9e9))
def test_whoever_waits_as_told_is_let_in(rate: float, now: float) -> None:
    """Also where the clock is too coarse to show a wait: else it would be waited for for ever."""
    bucket = Bucket(rate, 1.0, now)
    for _ in range(20):
        bucket.take()
        for _ in range(4):
            now += bucket.delay(now)
        assert bucket.delay(now) == 0.0


class QueueAgainstList(RuleBasedStateMachine):
    """DueQueue beside a list that is searched each time."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = DueQueue()
        self.naive: list[tuple[float, int, str]] = []
        self.n = 0

    @rule(key=st.sampled_from("abcdef"), due=st.integers(0, 20))
    def put(self, key: str, due: int) -> None:
        self.n += 1
        self.naive = [item for item in self.naive if item[2] != key] + [(due, self.n, key)]
        self.queue.put(key, due)

    @rule(key=st.sampled_from("abcdef"))
    def discard(self, key: str) -> None:
        self.naive = [item for item in self.naive if item[2] != key]
        self.queue.discard(key)

    @rule(now=st.integers(0, 20))
    def pop(self, now: int) -> None:
        expected = min((item for item in self.naive if item[0] <= now), default=None)
        if expected:
            self.naive.remove(expected)
        assert self.queue.pop(now) == (expected[2] if expected else None)

    @invariant()
    def same(self) -> None:
        assert len(self.queue) == len(self.naive)
        assert self.queue.due() == min((item[0] for item in self.naive), default=None)


TestQueueAgainstList = QueueAgainstList.TestCase


KEYS = [f"src_{n}" for n in range(12)]


class PickerKeepsItsPromises(RuleBasedStateMachine):
    """Nobody is taken before their time, over a host's limits, twice, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.hosts = Hosts(Limit(2, 1.0))
        self.picker = Picker(self.hosts)
        self.due: dict[str, float] = {}
        self.running: dict[str, str] = {}
        self.rests: dict[str, float] = {}
        self.entered: list[tuple[float, str]] = []

    @rule(key=st.sampled_from(KEYS), host=st.sampled_from("xyz"), wait=st.integers(0, 5))
    def put(self, key: str, host: str, wait: int) -> None:
        """Again with another time, perhaps, or at another host."""
        if key not in self.running:
            self.due[key] = self.now + wait
            self.picker.put(key, host, self.now + wait)

    @rule(key=st.sampled_from(KEYS))
    def discard(self, key: str) -> None:
        self.due.pop(key, None)
        self.picker.discard(key)

    @rule(key=st.sampled_from(KEYS))
    def bump(self, key: str) -> None:
        if key in self.due:
            self.due[key] = min(self.due[key], self.now)
        self.picker.bump(key, self.now)

    @rule(seconds=st.floats(0.1, 3))
    def later(self, seconds: float) -> None:
        self.now += seconds

    @rule(host=st.sampled_from("xyz"), seconds=st.integers(1, 4))
    def rest(self, host: str, seconds: int) -> None:
        self.hosts.rest(host, self.now, self.now + seconds)
        self.rests[host] = max(self.rests.get(host, 0), self.now + seconds)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.left(data.draw(st.sampled_from(sorted(self.running))))

    def left(self, key: str) -> None:
        host = self.running.pop(key)
        self.hosts.leave(host)
        self.picker.freed(host, self.now)

    @rule()
    def take(self) -> None:
        key = self.picker.take(self.now)
        if key is None:
            return
        host = self.picker.entered
        assert self.due.pop(key) <= self.now
        assert self.rests.get(host, 0) <= self.now
        self.running[key] = host
        assert list(self.running.values()).count(host) <= 2
        self.entered.append((self.now, host))
        recent = [at for at, name in self.entered if name == host and at > self.now - 10]
        assert len(recent) <= 12

    @invariant()
    def nobody_lost(self) -> None:
        assert len(self.picker) == len(self.due)

    def teardown(self) -> None:
        """With time and free hosts, everybody comes."""
        while self.due:
            for key in list(self.running):
                self.left(key)
            due = self.picker.due()
            assert due is not None
            self.now = max(self.now + 0.01, due)
            while self.due and (taken := self.picker.take(self.now)) is not None:
                del self.due[taken]
                self.running[taken] = self.picker.entered


TestPickerKeepsItsPromises = PickerKeepsItsPromises.TestCase
