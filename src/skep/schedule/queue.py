"""What is due next: a heap of times in which any key can be moved or taken out."""

import heapq

_SLACK = 64


class DueQueue:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        #: key -> the one ticket of it that counts; others in the heap are leftovers
        self._tickets: dict[str, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, key: str) -> bool:
        return key in self._tickets

    def put(self, key: str, due: float) -> None:
        """Add the key, or move it to another time."""
        self._next += 1
        self._tickets[key] = self._next
        heapq.heappush(self._heap, (due, self._next, key))
        if len(self._heap) > 2 * len(self._tickets) + _SLACK:
            self._heap = [item for item in self._heap if self._tickets.get(item[2]) == item[1]]
            heapq.heapify(self._heap)

    def discard(self, key: str) -> None:
        self._tickets.pop(key, None)

    def due(self) -> float | None:
        """When the first one is due."""
        heap, tickets = self._heap, self._tickets
        while heap and tickets.get(heap[0][2]) != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now: float) -> str | None:
        """Take the one that is due longest; of the same time, the one that was put first."""
        due = self.due()
        if due is None or due > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._tickets[key]
        return key
