"""Few searches run at once, short ones before long ones, and none waits beyond its time."""

from collections.abc import Iterator
from math import inf
from threading import Thread

import pytest

from skep.storage.code_index.trigram import search as module
from skep.storage.code_index.trigram.search import Lanes, Ride


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lanes]:
    monkeypatch.setattr(module, "_LONG", -1.0)  # whoever goes on is long
    with Lanes(2) as made:
        yield made


def test_a_long_one_leaves_its_place_to_short_ones(lanes: Lanes) -> None:
    long, other, *short = (Ride(lanes) for _ in range(4))
    assert long.begin(0.0)
    assert long.go_on(0.0)
    assert other.begin(0.0)
    assert not other.go_on(0.0), "one long search is enough for two processors"
    assert [one.begin(0.0) for one in short] == [True, True], "and neither holds up the short ones"
    assert not Ride(lanes).begin(0.0)
    long.end()
    short[0].end()
    assert Ride(lanes).begin(0.0)


def test_who_waits_goes_on_when_another_ends(lanes: Lanes) -> None:
    first, second, went = Ride(lanes), Ride(lanes), list[bool]()
    assert first.begin(0.0)
    assert first.go_on(0.0)
    assert second.begin(0.0)
    waiting = Thread(target=lambda: went.append(second.go_on(1e9)))
    waiting.start()
    first.end()
    waiting.join()
    assert went == [True]
    assert second.go_on(inf), "it is long already and stays where it is"
