"""Kinds of tasks: internal ones are the server's own, and no text of a task becomes a path unchecked."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.base.caller import SYSTEM
from skep.base.clock import SystemClock
from skep.base.errors import BadInput
from skep.config.settings import Settings
from skep.fleet.api import Offer
from skep.indexing.worker import Indexing
from skep.rpc.messages import AnswerBody, AskBody
from skep.rules.api import RuleSpec
from skep.sources.git.mirror import folder_of
from skep.tasks.contexts import compose
from skep.tasks.model import Call, ContextSpec, Renewed, Reported, Run, TaskSpec
from skep.tasks.task_types import CALLER_KINDS, check_arguments, check_kind, checked_source
from skep.tasks.worker import Doer
from tests.tasks.hostile import INTERNAL, PATHS, VALID, arguments, submissions
from tests.tasks.house import Engine, Hand, command, hand

NAMES_THEM = "kinds that can be submitted: command, evaluate, fsck, noop"


def spec(kind: str, **given: Any) -> TaskSpec:
    return TaskSpec("a", kind, arguments=given)


def test_kinds_for_callers_are_those_that_touch_no_files_by_name() -> None:
    assert CALLER_KINDS == ("command", "evaluate", "fsck", "noop")


@pytest.mark.parametrize("kind", INTERNAL)
def test_internal_kind_from_a_caller_is_refused_and_from_the_server_accepted(kind: str) -> None:
    context = ContextSpec("c", (spec(kind, **arguments(kind)),))
    with pytest.raises(BadInput, match="is for the server itself") as refused:
        compose(context)
    assert refused.value.hint == NAMES_THEM
    (task,) = compose(context, internal=True)
    assert task.kind == kind


@pytest.mark.parametrize("kind", ["", "juggle", "INDEX", "index ", "report\0", "../report"])
def test_kind_that_is_not_known_is_refused_from_everyone(kind: str) -> None:
    for internal in (True, False):
        with pytest.raises(BadInput) as refused:
            check_kind(TaskSpec("a", kind), internal=internal)
        assert refused.value.hint == NAMES_THEM


def test_internal_kind_of_a_template_is_refused() -> None:
    templates = {"t": spec("report", plan=VALID, epoch=1)}
    with pytest.raises(BadInput, match="is for the server itself"):
        compose(ContextSpec("c", (TaskSpec("a", template="t"),), templates=templates))


@pytest.mark.parametrize("kind", [*INTERNAL, *CALLER_KINDS])
def test_arguments_that_a_kind_does_not_take_are_refused(kind: str) -> None:
    with pytest.raises(BadInput, match="are not those of the kind"):
        check_arguments(spec(kind, **arguments(kind), more=1))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [kind for kind in INTERNAL if {"plan", "source"} & set(arguments(kind))])
def test_id_that_is_a_path_is_refused_also_from_the_server(kind: str, path: str) -> None:
    if kind == "replicate" and path == VALID.lower():
        pytest.skip("that could be the id of a source")
    with pytest.raises(BadInput, match="are not those of the kind"):
        check_kind(spec(kind, **arguments(kind, path)), internal=True)


@given(st.text())
def test_folder_of_a_source_stays_in_the_folder_of_mirrors(source: str) -> None:
    mirrors = Path("/data/mirrors")
    try:
        folder = folder_of(mirrors.parent, checked_source(source))
    except BadInput:
        return
    assert folder.is_relative_to(mirrors) and ".." not in folder.parts and folder.name == f"{source}.git"


@pytest.mark.parametrize("source", ["../../etc", "/etc", "..", "a/b", "a\0", "a\n", "."])
def test_source_that_is_a_path_is_refused(source: str) -> None:
    with pytest.raises(BadInput, match="is not the id of a source"):
        folder_of(Path("/data"), source)
    with pytest.raises(BadInput, match="is not the id of a source"):
        compose(ContextSpec("c", (TaskSpec("a", argv=("true",), source=source),)))


async def test_running_task_cannot_add_an_internal_kind(engine: Engine) -> None:
    refused: list[str] = []
    one: list[Hand] = []

    async def add(run: Run) -> None:
        for task in submissions():
            try:
                await one[0].client.ask(Call(run.task, run.attempt, "task.add", value=task))
            except BadInput as error:
                refused.append(error.hint)

    async with hand(engine, command=add) as worker:
        one.append(worker)
        context = await engine.ended(await engine.submit(command("a")))
    assert (context.state, context.tasks) == ("FINISHED", 1)
    assert refused == [NAMES_THEM] * len(submissions())


async def test_rule_with_an_internal_kind_is_refused(engine: Engine) -> None:
    for kind in INTERNAL:
        rule = RuleSpec("r", ContextSpec("c", (spec(kind, **arguments(kind)),)), cron="* * * * *")
        with pytest.raises(BadInput, match="is for the server itself"):
            await engine.core.rules.create(SYSTEM, rule)


# the worker: what reaches it by whatever way


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """The folder of a worker with files that no task may touch; a plan that one may use."""
    kept = [tmp_path / "data" / name for name in ("worker/worker.db", "worker/books/book", "mirrors/x", "own")]
    kept += [tmp_path / "data" / "worker" / "deltas" / other / "plan" for other in ("other", VALID[:-1] + "B")]
    for path in (*kept, tmp_path / "outside"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept")
    yield tmp_path / "data"
    assert [path for path in (*kept, tmp_path / "outside") if not path.exists()] == []


class Boss:
    """A coordinator that grants every lease, and remembers what it hears."""

    def __init__(self) -> None:
        self.reported: dict[str, str] = {}
        self.reasons: list[str] = []

    async def ask(self, body: AskBody) -> AnswerBody:
        for report in body.reports if isinstance(body, Reported) else ():
            self.reported[report.task] = report.state
            if report.state == "FAILED":
                self.reasons.append(report.reason)
        return Renewed(1000.0)


async def looked_at(source: str) -> Any:
    held = SimpleNamespace(epoch=1, number=1)
    return SimpleNamespace(source=source, last_looked=1.0, held=held, failure=None, failures=0)


async def test_worker_given_hostile_runs_fails_them_and_touches_nothing(data: Path, tmp_path: Path) -> None:
    boss = Boss()
    poller: Any = SimpleNamespace(find=looked_at)
    store: Any = SimpleNamespace(tell=_tell)
    indexing = Indexing(store, poller, Settings(), data, SystemClock(), boss.ask, lambda: None)
    paths = [*PATHS, str(tmp_path / "outside"), str(data), "../../../outside", "other"]
    kinds = ("report", "analyse", "index.batch", "index.publish")
    runs = [
        Run(f"tsk_{kind}_{n}", 1, "ctx_1", "a", TaskSpec("a", kind, arguments=arguments(kind, path), source="src_1"))
        for kind in kinds
        for n, path in enumerate(paths)
    ]
    doer = Doer(indexing.kinds, boss.ask, Offer, lambda run: "", SystemClock())
    working = asyncio.create_task(doer.run())
    try:
        doer.begin(runs)
        async with asyncio.timeout(120):
            while sum(state == "FAILED" for state in boss.reported.values()) < len(runs):
                assert "FINISHED" not in boss.reported.values()
                await asyncio.sleep(0.01)
        # past the checks of the doer as well
        for run in runs:
            with pytest.raises(BadInput, match="are not those of the kind"):
                await indexing.kinds[run.spec.kind](run)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await indexing.close()
    assert all("are not those of the kind" in reason for reason in boss.reasons)


async def _tell(*_: object, **__: object) -> None:
    """The failure of a source is told to nobody here."""
