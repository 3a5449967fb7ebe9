"""The engine against a small model: whatever is submitted, reported, declined, lost, late, cancelled or retried."""

import asyncio
import itertools
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skep.access.tokens import Access
from skep.base.caller import SYSTEM
from skep.base.errors import Conflict
from skep.benchmarks import service as benchmarks
from skep.fleet.api import Offer
from skep.fleet.members import Fleet
from skep.sources import catalogue as sources
from skep.storage.sqlite import open_memory
from skep.tasks.contexts import Contexts
from skep.tasks.dispatcher import Dispatcher, Reports
from skep.tasks.model import ContextSpec, Need, NeedRule, Report, TaskSpec
from skep.tasks.placer import DECLINED_SECONDS, Owners, Placer
from skep.tasks.transitions import ACTIVE, ENDED, legal, moves_of, retry_pause
from tests.rooms.house import WORKER_TOKEN, MovedClock
from tests.tasks.house import context_state

LEASE, SLOTS = 60.0, 2
FAILED = ("FAILED", "ABORTED")
WORKERS = ("wrk_1", "wrk_2", "wrk_3")
picks = st.integers(0, 10**6)
needs = st.lists(st.tuples(picks, st.sampled_from(["finished", "ended"])), max_size=2)
#: retries, lost_worker_retries, at_most_once
budgets = st.one_of(
    st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 2)), st.just(False)),
    st.tuples(st.just(0), st.sampled_from([None, 0]), st.just(True)),
)
tasks = st.lists(st.tuples(needs, budgets, st.sampled_from([None, None, 30.0])), min_size=1, max_size=4)


async def no_benchmarks() -> bool:
    return False


class Model(msgspec.Struct):
    """A task as it should be."""

    id: str
    context: str
    needs: dict[str, NeedRule]
    retries: int
    lost_worker_retries: int
    at_most_once: bool
    deadline: float | None
    state: str = "WAITING"
    attempt: int = 0
    failures: int = 0
    lost_workers: int = 0
    #: times it was accepted, and may have started, since it was submitted or a person wanted it again
    starts: int = 0
    worker: str = ""
    not_before: float = 0.0

    def hopeless(self, spent: set[str]) -> bool:
        return any(need == "finished" and target in spent for target, need in self.needs.items())


class EngineMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = MovedClock()
        self.tasks: dict[str, Model] = {}
        self.boots = dict.fromkeys(WORKERS, 0)
        self.heard = dict.fromkeys(WORKERS, float("-inf"))
        self.resting = dict.fromkeys(WORKERS, float("-inf"))

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    @initialize()
    def open(self) -> None:
        self.db = self.run(open_memory("memory:", data=Path(), durability="full"))
        owners = Owners(self.db, "crd_1")
        placer = Placer(self.clock, owners, LEASE)
        self.fleet = Fleet(self.db, self.clock, token=WORKER_TOKEN, beat_every=5.0)
        self.contexts = Contexts(self.db, self.clock, placer)
        self.reports = Reports(self.db, self.clock, placer)
        self.dispatcher = Dispatcher(self.db, self.clock, owners, placer, LEASE, 3600.0, 3600.0, no_benchmarks)
        with tempfile.TemporaryDirectory() as folder:
            self.run(Access(self.db, self.clock, Path(folder), open_read=True).start())
        for room in (self.fleet, self.contexts, owners):
            self.run(room.start())
        self.run(self.db.migrate("sources", sources.STEPS))
        self.run(self.db.migrate("benchmarks", benchmarks.STEPS))

    # what may happen

    @rule(made=tasks)
    def submit(self, made: list[Any]) -> None:
        specs: list[TaskSpec] = []
        for n, (wanted, (retries, lost, once), timeout) in enumerate(made):
            chosen: dict[str, NeedRule] = {f"t{pick % n}": need for pick, need in wanted} if n else {}
            found = tuple(Need(name, need) for name, need in chosen.items())
            task = TaskSpec(f"t{n}", argv=("true",), needs=found, retries=retries, backoff=10.0, timeout=timeout)
            specs.append(msgspec.structs.replace(task, lost_worker_retries=lost, at_most_once=once))
        context = self.run(self.contexts.submit(SYSTEM, ContextSpec("model", tuple(specs))))
        ids = {task.name: task.id for task in self.run(self.contexts.show(SYSTEM, context.id)).tasks}
        for spec in specs:
            deadline = None if spec.timeout is None else self.clock.now() + spec.timeout
            own = {ids[need.task]: need.rule for need in spec.needs}
            lost = (0 if spec.at_most_once else 5) if spec.lost_worker_retries is None else spec.lost_worker_retries
            budget = (spec.retries, lost, spec.at_most_once)
            self.tasks[ids[spec.name]] = Model(ids[spec.name], context.id, own, *budget, deadline)
        self.settle()

    @rule(worker=st.sampled_from(WORKERS))
    def join(self, worker: str) -> None:
        """A new process of it, which runs nothing yet."""
        self.boots[worker] += 1
        offer = Offer(("command",), {"command": SLOTS})
        join = self.fleet.join(
            worker,
            WORKER_TOKEN,
            self.boots[worker],
            "worker",
            offer,
            also=lambda tx: self.reports.returned(tx, worker, ()),
        )
        self.run(join)
        self.heard[worker] = self.clock.now()
        self.lose(worker)
        self.settle()

    @rule(seconds=st.sampled_from([1.0, 5.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        """Those that live say so."""
        self.clock.time += seconds
        for worker in WORKERS:
            if self.alive(worker):
                self.run(self.fleet.renew(worker, Offer(("command",), {"command": SLOTS})))
                self.heard[worker] = self.clock.now()
        self.settle()

    @rule(worker=st.sampled_from(WORKERS))
    def vanish(self, worker: str) -> None:
        self.heard[worker] = min(self.heard[worker], self.clock.now() - LEASE - 1.0)
        self.run(
            self.db.write(
                lambda tx: tx.rows(
                    "UPDATE member SET last_alive = :at WHERE id = :id", at=self.heard[worker], id=worker
                )
            )
        )
        self.settle()

    def active(self) -> list[Model]:
        return [task for task in self.tasks.values() if task.state in ACTIVE]

    @precondition(lambda self: self.active())
    @rule(pick=picks, ends=st.sampled_from(["begin", "finish", "finish", "fail", "decline", "stale"]))
    def report(self, pick: int, ends: str) -> None:
        task = self.active()[pick % len(self.active())]
        hold = (task.id, task.attempt - (ends == "stale"))
        begun = [] if task.state == "RUNNING" else [Report(*hold, "ACCEPTED"), Report(*hold, "RUNNING")]
        last: dict[str, list[Report]] = {
            "begin": [],
            "finish": [Report(*hold, "FINISHED")],
            "fail": [Report(*hold, "FAILED", "it failed")],
            "decline": [Report(*hold, "SUBMITTED", "not now")],
            "stale": [Report(*hold, "FINISHED")],
        }
        sent = [*([] if ends == "decline" else begun), *last[ends]]
        if not sent:
            return
        worker, boot = task.worker, self.boots[task.worker]
        if begun and ends not in ("decline", "stale"):
            task.starts += 1
        stop, begin = self.run(self.reports.report(worker, boot, sent))
        assert stop == ([hold] if ends == "stale" else [])
        match ends:
            case "begin":
                task.state = "RUNNING"
            case "finish":
                self.end(task, "FINISHED")
            case "fail":
                self.fail(task)
            case "decline" if task.state == "SCHEDULED":
                self.resting[worker] = self.clock.now() + DECLINED_SECONDS
                self.wait(task, self.clock.now() + DECLINED_SECONDS * 1.5)
            case "decline":
                self.lose_one(task)
        self.settle()
        assert all(self.tasks[run.task].attempt == run.attempt for run in begin)

    def contexts_made(self) -> list[str]:
        return sorted({task.context for task in self.tasks.values()})

    @precondition(lambda self: self.tasks)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        context = self.contexts_made()[pick % len(self.contexts_made())]
        self.run(self.contexts.cancel(SYSTEM, context, "no more"))
        for task in self.tasks.values():
            if task.context == context and task.state not in ENDED:
                task.state = "ABORTED"
        self.settle()

    @precondition(lambda self: self.tasks)
    @rule(pick=picks)
    def retry(self, pick: int) -> None:
        context = self.contexts_made()[pick % len(self.contexts_made())]
        failed = {id: one for id, one in self.tasks.items() if one.context == context and one.state in FAILED}
        spent = {id for id, one in failed.items() if one.at_most_once and one.starts}
        while more := {id for id, one in failed.items() if one.hopeless(spent)} - spent:
            spent |= more
        again = [one for id, one in failed.items() if id not in spent]
        try:
            self.run(self.contexts.retry(SYSTEM, context))
        except Conflict:
            assert not again
        for task in again:
            task.failures, task.lost_workers, task.deadline = 0, 0, None
            task.starts = 0
            self.wait(task, 0.0)
        self.settle()

    # what follows from it

    def alive(self, worker: str) -> bool:
        return self.heard[worker] >= self.clock.now() - LEASE

    def wait(self, task: Model, not_before: float) -> None:
        task.state, task.worker, task.not_before = "WAITING", "", not_before

    def fail(self, task: Model) -> None:
        task.failures += 1
        if task.failures > task.retries:
            self.end(task, "FAILED")
        else:
            self.wait(task, self.clock.now() + retry_pause(10.0, task.failures, 0.5))

    def lose_one(self, task: Model) -> None:
        task.lost_workers += 1
        if task.at_most_once or task.lost_workers > task.lost_worker_retries:
            self.end(task, "FAILED")
        else:
            self.wait(task, self.clock.now() + retry_pause(10.0, task.lost_workers, 0.5))

    def lose(self, worker: str) -> None:
        for task in self.active():
            if task.worker == worker and task.state == "SCHEDULED":
                self.wait(task, task.not_before)
            elif task.worker == worker:
                self.lose_one(task)

    def end(self, task: Model, state: str) -> None:
        task.state = state
        for other in self.tasks.values():
            if task.id in other.needs and other.state not in ENDED and not self.met(task, other):
                self.end(other, "ABORTED")

    @staticmethod
    def met(target: Model, task: Model) -> bool:
        return target.state == "FINISHED" or (target.state in ENDED and task.needs[target.id] == "ended")

    def settle(self) -> None:
        """The dispatcher does what there is to do; the model learns whom it chose, and that it chose rightly."""
        now = self.clock.now()
        late = [one for one in self.tasks.values() if one.deadline and one.deadline <= now and one.state not in ENDED]
        for task in late:
            task.state = "FAILED"
        for task in late:
            self.end(task, "FAILED")
        for worker in WORKERS:
            if not self.alive(worker):
                self.lose(worker)
        self.run(self.turn())
        rows = {row["id"]: row for row in self.run(self.db.read("SELECT * FROM task"))}
        ready = sorted(
            (task.not_before, task.id)
            for task in self.tasks.values()
            if task.state == "WAITING"
            and task.not_before <= self.clock.now()
            and all(self.met(self.tasks[target], task) for target in task.needs)
        )
        placed = [task for task in self.tasks.values() if task.state == "WAITING" and rows[task.id]["state"] in ACTIVE]
        free = sum(
            SLOTS - sum(one.worker == worker for one in self.active())
            for worker in WORKERS
            if self.alive(worker) and self.resting[worker] <= self.clock.now()
        )
        assert sorted((task.not_before, task.id) for task in placed) == ready[: min(free, len(ready))]
        for task in placed:
            task.state, task.attempt, task.not_before = "SCHEDULED", task.attempt + 1, 0.0
            task.worker = rows[task.id]["worker"]

    async def turn(self) -> None:
        for _ in range(2):
            self.dispatcher._placer.forget()
            messages, _ = await self.dispatcher._look()
            for message in messages:
                while await self.dispatcher.act(message):
                    pass

    @invariant()
    def agrees(self) -> None:
        rows = self.run(self.db.read("SELECT * FROM task"))
        assert len(rows) == len(self.tasks)
        for row in rows:
            task = self.tasks[row["id"]]
            known = (task.state, task.attempt, task.failures, task.lost_workers)
            assert (row["state"], row["attempt"], row["failures"], row["lost_workers"]) == known, (row, task)
            assert task.starts <= (1 if task.at_most_once else 1 + task.retries + task.lost_worker_retries)
            assert task.state not in ACTIVE or row["worker"] == task.worker
            moves = moves_of(row["moves"])
            for old, new in itertools.pairwise(moves):
                assert legal(old.state, new.state, new.by), (old, new)
        used = [task.worker for task in self.active()]
        assert all(used.count(worker) <= SLOTS for worker in used)
        for row in self.run(self.db.read("SELECT id, state, unended FROM context")) if self.tasks else ():
            states = [task.state for task in self.tasks.values() if task.context == row["id"]]
            assert row["state"] == context_state(states)  # type: ignore[arg-type]
            assert row["unended"] == sum(state not in ENDED for state in states)

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.run(self.db.close())
        self.loop.close()


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(max_examples=25, stateful_step_count=30, print_blob=True)
