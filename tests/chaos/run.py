"""`make chaos SEED=1 MINUTES=10`: a fleet, faults at times that the seed decides, and a proof that nothing was lost.

The exit code is 0 when the checker finds nothing, 1 when it finds violations, and 77 when this machine cannot make
network namespaces.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.calls import Away, Caller, Refused
from tests.chaos.checker import UNEXPECTED, Violation, check, check_unexpected
from tests.chaos.fleet import EFFECTS, Fleet
from tests.chaos.journal import Entry, FaultBegun, FaultEnded, Journal, Unexpected, of
from tests.chaos.observing import Observer
from tests.chaos.other_loads import ACTIVE_REPOSITORIES, Pushing, Putting, Searching, Submitting, Taking
from tests.chaos.schedule import CLIENT, COORDINATORS, Event, plan
from tests.chaos.topic_loads import (
    CONSUMERS,
    PARTITIONS,
    PRODUCERS,
    TOPIC,
    ChangeReading,
    Consuming,
    Load,
    PlaceWatching,
    Producing,
)
from tests.chaos.world import World, why_not

SKIPPED = 77
#: the recovery is over when nothing changes for so long; pauses before a repeated attempt grow to a minute
SETTLE_SECONDS = 100.0
#: but not later than so many times that
_MOST_SETTLES = 3
_JOIN_SECONDS = 60.0


class Run:
    def __init__(self, seed: int, seconds: float, folder: Path, settle: float, kinds: Sequence[str] = ()) -> None:
        self._seed, self._seconds, self._folder, self._settle, self._kinds = seed, seconds, folder, settle, kinds
        self.journal = Journal(folder / "journal.jsonl")
        #: set when nothing new is made, and when nothing is read any more
        self._made, self._read = threading.Event(), threading.Event()
        self.entries: list[Entry] = []
        self._pending = ""
        self._effects = folder / EFFECTS
        self._effects.mkdir()

    def run(self) -> list[Violation]:
        with World(home=CLIENT) as world, Fleet(world, self._folder, self.journal) as fleet:
            self._say("the fleet is up")
            self._create_topic(fleet)
            makers, readers = self._loads(fleet)
            making, reading = list(map(self._started, makers)), list(map(self._started, readers))
            self._say(f"{len(making) + len(reading)} clients run; faults begin")
            try:
                self._fault(fleet)
                self._made.set()
                self._join(making)
                found = self._settled(fleet)
            finally:
                self._made.set()
                self._read.set()
            self._join(reading)
            left = self._stopped(fleet)
            self.entries = self.journal.read()
            found = [one for one in found if one.kind != UNEXPECTED]
            return [*found, *check_unexpected(of(Unexpected, self.entries)), *left]

    def _create_topic(self, fleet: Fleet) -> None:
        caller = Caller([fleet.processes[COORDINATORS[0]]], seconds=60.0)
        caller.post("topics", {"name": TOPIC, "partitions": PARTITIONS})
        caller.close()

    def _loads(self, fleet: Fleet) -> tuple[list[Load], list[Load]]:
        made, read, seed, journal = self._made, self._read, self._seed, self.journal
        pushing = Pushing(fleet, journal, seed, self._seconds, made)
        for _ in range(ACTIVE_REPOSITORIES):
            pushing.add()
        makers: list[Load] = [Producing(fleet, journal, seed, n, made) for n in range(PRODUCERS)]
        makers += [pushing, Submitting(fleet, journal, seed, self._effects, made), Putting(fleet, journal, seed, made)]
        makers += [Searching(fleet, journal, seed, pushing.words, made)]
        readers: list[Load] = [Consuming(fleet, journal, seed, n, read) for n in range(CONSUMERS)]
        readers += [PlaceWatching(fleet, journal, seed, read), ChangeReading(fleet, journal, seed, read)]
        return makers, [*readers, Taking(fleet, journal, seed, read)]

    def _started(self, load: Load) -> threading.Thread:
        name = type(load).__name__
        thread = threading.Thread(target=self._guarded, args=(name, load.run), name=name, daemon=True)
        thread.start()
        return thread

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        """A client that fails is a violation; the others go on."""
        try:
            work()
        except Exception as error:
            self.journal.write(Unexpected(self.journal.now(), f"{name} failed: {type(error).__name__}: {error}"))

    def _join(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            thread.join(_JOIN_SECONDS)
            if thread.is_alive():
                self.journal.write(Unexpected(self.journal.now(), f"{thread.name} does not end"))

    def _fault(self, fleet: Fleet) -> None:
        """Each event begins at its time and ends in a thread of its own: some take long to begin."""
        events, began, running = plan(self._seed, self._seconds, self._kinds), time.monotonic(), []
        for event in events:
            time.sleep(max(0.0, began + event.at - time.monotonic()))
            thread = threading.Thread(target=self._guarded, args=(str(event), lambda e=event: _last(fleet, e)))
            thread.start()
            running.append(thread)
        for thread in running:
            thread.join()
        time.sleep(max(0.0, began + self._seconds - time.monotonic()))

    def _settled(self, fleet: Fleet) -> list[Violation]:
        """Waits until nothing is pending, or a violation is found that cannot disappear, or there is no progress."""
        self._say("all faults have ended; the fleet recovers")
        fleet.wait_ready()
        observer, began = Observer(fleet, self._effects), time.monotonic()
        changed, pending = began, ""
        found = [Violation("not observed", "no server answered", pending=True)]
        while found and time.monotonic() < min(changed + self._settle, began + _MOST_SETTLES * self._settle):
            time.sleep(1.0)
            found = self._observed(observer, fsck=not any(one.pending for one in found))
            if str(found) != pending:
                changed, pending = time.monotonic(), str(found)
            self._say_pending(found)
            if any(not one.pending for one in found):
                break
        observer.close()
        return found

    def _observed(self, observer: Observer, *, fsck: bool) -> list[Violation]:
        try:
            self.entries = self.journal.read()  # before the observation, which then has all that is in it
            return check(self.entries, observer.observe(self.entries, fsck=fsck))
        except (Away, Refused) as error:
            return [Violation("not observed", f"{type(error).__name__} {error}", pending=True)]

    def _stopped(self, fleet: Fleet) -> list[Violation]:
        self._say("stops all processes")
        return [Violation("process left", one) for one in fleet.stop()]

    def _say_pending(self, found: list[Violation]) -> None:
        """What the fleet is waited for, when that has changed."""
        pending = "; ".join(f"{many} x {kind}" for kind, many in Counter(one.kind for one in found).items())
        if pending and pending != self._pending:
            self._say(f"pending: {pending}, such as {found[0].text[:300]}")
        self._pending = pending

    def _say(self, text: str) -> None:
        print(f"{self.journal.now():7.1f} s  {text}", flush=True)


def _last(fleet: Fleet, event: Event) -> None:
    fleet.apply(event)
    try:
        time.sleep(event.seconds)
    finally:
        fleet.revert(event)


def timeline(entries: list[Entry]) -> list[str]:
    marks = {FaultBegun: "begins", FaultEnded: "ended", Unexpected: "UNEXPECTED"}
    return [
        f"{one.at:7.1f} s  {marks[type(one)]}  {one.what}"
        for one in entries
        if isinstance(one, FaultBegun | FaultEnded | Unexpected)
    ]


def summary(entries: list[Entry]) -> str:
    counts = Counter(type(one).__name__ for one in entries)
    return ", ".join(f"{many} {name}" for name, many in sorted(counts.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument(
        "--settle", type=float, default=SETTLE_SECONDS, help="seconds without progress after which the recovery is over"
    )
    parser.add_argument("--kinds", nargs="*", default=(), help="only faults of these kinds, such as pause")
    options = parser.parse_args()
    if reason := why_not():
        print(f"skipped: {reason}")
        return SKIPPED
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # namespaces and processes are removed on the way out
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="skep-chaos-"))
        run = Run(options.seed, options.minutes * 60, folder, options.settle, options.kinds)
        stack.callback(run.journal.close)
        print(f"SEED={options.seed} MINUTES={options.minutes:g}", flush=True)
        violations = run.run()
        print(summary(run.entries))
        if not violations:
            shutil.rmtree(folder, ignore_errors=True)
            print("no violations")
            return 0
        report(options.seed, options.minutes, folder, run.entries, violations)
        return 1


def report(seed: int, minutes: float, folder: Path, entries: list[Entry], violations: list[Violation]) -> None:
    print(f"\nTimeline of SEED={seed} MINUTES={minutes:g}:")
    print("\n".join(timeline(entries)))
    if certain := [one for one in violations if not one.pending]:
        violations = certain  # the run ended before the others could disappear
    print(f"\n{len(violations)} violations:")
    counts = Counter(one.kind for one in violations)
    for kind, many in counts.most_common():
        print(f"  {kind}: {many}")
        for one in [one for one in violations if one.kind == kind][:5]:
            print(f"    {one.text}")
    print(f"\nThe journal and the logs of all processes are in {folder}")


if __name__ == "__main__":
    sys.exit(main())
