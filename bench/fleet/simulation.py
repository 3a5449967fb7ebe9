"""Ten thousand workers and a million sources, with joins, leaves and flaps, in simulated time: the coordinator's own
decisions (fleet/plan.py), everything else a model. A worker that fails is back after minutes, or after hours; what is
moved from a worker that is there takes a minute.

python -m bench.fleet.simulation [--sources 1000000] [--workers 10000] [--minutes 60]
"""

import argparse
import random
import resource
import statistics
import time
from collections import Counter, deque

from skep.fleet.events import UNSTABLE_SECONDS
from skep.fleet.ring import Change, Holding, Member, plan

GRACE, BEAT = 10, 10.0  # minutes, seconds: as the settings
#: minutes between failures of one worker, and how long most of them, and the others, take
EVERY, SHORT, LONG, SELDOM = 24 * 60, 3.0, 600.0, 0.1


class Worker:
    def __init__(self, n: int, chance: random.Random) -> None:
        self.id, self.capacity = f"wrk_{n:06}", 1.0 + n % 3
        self._chance = chance
        self.back = 0
        self.since = 0
        self.downs: deque[int] = deque()

    def state(self, now: int) -> str:
        if now >= self.back:
            return "alive"
        return "grace" if now < self.since + GRACE else "gone"

    def member(self, now: int) -> Member:
        while self.downs and self.downs[0] < now - UNSTABLE_SECONDS / 60:
            self.downs.popleft()
        return Member(self.id, "", self.state(now), self.capacity, draining=False, downs=len(self.downs))

    def live(self, now: int) -> None:
        if now >= self.back and self._chance.random() < 1 / EVERY:
            mean = LONG if self._chance.random() < SELDOM else SHORT
            self.since, self.back = now, now + 1 + int(self._chance.expovariate(1 / mean))
            self.downs.append(now)


class Fleet:
    def __init__(self, sources: int, workers: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.workers = {one.id: one for one in (Worker(n, self.chance) for n in range(workers))}
        self.born = workers
        self.holders: dict[str, str | None] = dict.fromkeys((f"src_{n:07}" for n in range(sources)), None)
        self.copying: list[Change] = []
        self.moved = self.lost = self.orders = 0
        #: sources that had to move: of whom is gone, and the share of whom is new
        self.ideal = 0.0
        self.seconds: list[float] = []

    def minute(self, now: int, each: float) -> None:
        """`each`: workers that join, and that leave for good, in a minute."""
        for change in self.copying:
            self._move(change)
        for worker in self.workers.values():
            worker.live(now)
        for _ in range(int(each) + (self.chance.random() < each % 1)):
            del self.workers[self.chance.choice(list(self.workers))]
            new = Worker(self.born, self.chance)
            self.workers[new.id], self.born = new, self.born + 1
            self.ideal += new.capacity / sum(one.capacity for one in self.workers.values()) * len(self.holders)
        self._decide([one.member(now) for one in self.workers.values()])

    def _decide(self, members: list[Member]) -> None:
        there = {one.id for one in members if one.state != "gone"}
        holdings = [Holding(source, holder) for source, holder in self.holders.items()]
        began = time.process_time()
        changes = plan(members, holdings).changes
        self.seconds.append(time.process_time() - began)
        self.copying = [one for one in changes if one.old in there]
        for one in changes:
            if one.old not in there:
                self.lost += one.old is not None
                self._move(one)

    def _move(self, change: Change) -> None:
        self.holders[change.source] = change.new
        self.moved += change.old is not None
        self.orders += 2 if change.old else 1

    def spread(self) -> float:
        """The largest load beside its share, of those that are there."""
        loads = Counter(self.holders.values())
        able = [one for one in self.workers.values() if len(one.downs) < 3]
        share = len(self.holders) / sum(one.capacity for one in self.workers.values())
        return max(loads[one.id] / (one.capacity * share) for one in able)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sources", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    fleet = Fleet(args.sources, args.workers, args.seed)
    fleet.minute(0, 0.0)
    first = max(Counter(fleet.holders.values()).values())
    fleet.moved = fleet.orders = 0
    for now in range(1, args.minutes + 1):
        fleet.minute(now, args.workers / 10_000)
    fleet.minute(args.minutes + 1, 0.0)
    must, seconds = fleet.lost + fleet.ideal, args.minutes * 60
    beats, orders = len(fleet.workers) / BEAT, fleet.orders / seconds
    print(f"{args.sources:,} sources, {args.workers:,} workers, {args.minutes} minutes; first largest load {first}")
    print(
        f"moved {fleet.moved:,} ({fleet.moved / args.sources:.2%}), that had to {must:,.0f}: {fleet.moved / must:.2f}x"
    )
    print(f"largest load beside its share: {fleet.spread():.3f}")
    print(f"messages a second: {beats:,.0f} beats, {orders:,.1f} orders")
    print(f"a plan: {statistics.median(fleet.seconds):.2f} s of CPU, at most {max(fleet.seconds):.2f}")
    print(f"memory of the simulation: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


if __name__ == "__main__":
    main()
