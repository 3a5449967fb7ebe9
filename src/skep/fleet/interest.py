"""Which sources people searched or cloned lately. In memory and bounded: to forget one costs nothing but freshness."""

from collections import OrderedDict
from collections.abc import Iterable

MOST = 1_000


class Interest:
    def __init__(self) -> None:
        self._count = 0
        #: source -> count when it was last of interest, oldest first
        self._at: OrderedDict[str, int] = OrderedDict()

    def note(self, sources: Iterable[str]) -> None:
        for source in sources:
            self._count += 1
            self._at[source] = self._count
            self._at.move_to_end(source)
        while len(self._at) > MOST:
            self._at.popitem(last=False)

    def since(self, after: int) -> tuple[int, list[str]]:
        """The count now, and the sources noted after the count `after`."""
        return self._count, [source for source, at in self._at.items() if at > after]
