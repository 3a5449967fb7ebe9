"""Which span of time a node is asked for next (pure). Times are milliseconds of the node's clock, ends are exclusive.

A window with too many objects is halved, as far down as one millisecond: objects of one moment stay together.
"""

from collections.abc import Generator

import msgspec

#: what a node may commit late, or under an older time than it shows it
OVERLAP = 300_000
#: the newest moments are asked for again next time: others may still join them
SETTLE = 10_000


class Window(msgspec.Struct, frozen=True):
    since: int
    #: None: whatever is newer
    until: int | None

    def place(self, now: int) -> int:
        """Everything before is listed once this window is. `now`: the node's time before it was asked."""
        return max(self.since, now - SETTLE) if self.until is None else self.until


def begin(place: int) -> int:
    return max(0, place - OVERLAP)


#: a probe asks how many there are in a window; the last window it gives is the one to list
Search = Generator[Window, int, Window]


def choose(since: int, now: int, most: int, span: int | None = None) -> Search:
    """Yields windows to be counted, is sent how many objects each has, returns the one to list: the largest found that
    has at most `most`, or a single moment. `span`: what the window before was like."""
    whole = Window(since, None)
    if (yield whole) <= most or since >= now:
        return whole
    low, high = since + 1, max(since + 2, now)
    middle = min(high, since + 2 * span) if span else (low + high) // 2
    best: Window | None = None
    while low < high:
        window = Window(since, middle)
        if (count := (yield window)) > most:
            high = middle - 1
        else:
            best = window
            low = middle
            if 2 * count >= most or middle == high:
                break
        middle = (low + high + 1) // 2
    return best or Window(since, low)
