"""From a submitted ContextSpec to tasks: templates filled in, properties inherited, needs checked. Pure."""

import re
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from skep.errors import BadInput
from skep.model.kinds import check_kind
from skep.model.task import ContextSpec, TaskSpec
from skep.tasks.selector import parse

MOST_TASKS = 100_000
#: tasks of one context that are placed all at once or not at all
MOST_TOGETHER = 256
_NAME = re.compile(r"[\w][\w .:/+@-]{0,199}")
_MOST_RETRIES = 100
_LONGEST = 10**8
_HIGHEST = 10**6
#: fields that are joined with the template's instead of replacing them
_JOINED = ("properties", "environment", "arguments")


def compose(spec: ContextSpec, known: Mapping[str, str] | None = None, *, internal: bool = False) -> list[TaskSpec]:
    """`known` are tasks the context has already (name -> id): new ones may need them and must not bear their names.

    `internal`: the server submits this for itself, so kinds that no caller may submit are allowed."""
    if not _NAME.fullmatch(spec.name):
        raise BadInput(f"{spec.name[:80]!r} is no name for a context", hint="letters, digits, spaces and . : / + @ -")
    if len(spec.tasks) + len(known or ()) > MOST_TASKS:
        raise BadInput(f"a context of {len(spec.tasks)} tasks; at most {MOST_TASKS} are allowed")
    if not spec.tasks:
        raise BadInput("a context without tasks would never end", hint="give at least one task")
    tasks = [_filled(task, spec, number) for number, task in enumerate(spec.tasks, 1)]
    for task in tasks:
        check_kind(task, internal=internal)
    names = {task.name for task in tasks}
    if len(names) < len(tasks) or names & set(known or ()):
        seen: set[str] = set(known or ())
        twice = next(task.name for task in tasks if task.name in seen or seen.add(task.name))  # type: ignore[func-returns-value]  # add answers None, which goes on
        raise BadInput(f"two tasks are called {twice!r}", hint="each task of a context has its own name")
    if spec.together and len(tasks) > MOST_TOGETHER:
        raise BadInput(f"{len(tasks)} tasks placed together; at most {MOST_TOGETHER} are allowed")
    if spec.together and any(task.needs for task in tasks):
        raise BadInput("tasks placed together cannot need each other", hint="let them wait at a checkpoint or a latch")
    _check_needs(tasks, names | set(known or ()))
    return tasks


def _filled(task: TaskSpec, spec: ContextSpec, number: int) -> TaskSpec:
    own: dict[str, Any] = msgspec.to_builtins(task)
    own.pop("template", None)
    base: dict[str, Any] = {}
    if task.template:
        if task.template not in spec.templates:
            raise BadInput(f"there is no template {task.template!r}", hint=f"there are: {', '.join(spec.templates)}")
        base = msgspec.to_builtins(spec.templates[task.template])
    joined = {field: {**base.get(field, {}), **own.get(field, {})} for field in _JOINED}
    joined["properties"] = {**spec.properties, **joined["properties"]}
    merged = {**base, **own, **joined}
    if merged.get("kind", "command") != "command" and merged.get("source"):
        merged["holder"] = True  # what Skep itself does with a source, it does with its mirror
    merged["name"] = merged.get("name") or f"task-{number}"
    return _checked(msgspec.convert(merged, TaskSpec))


def _checked(task: TaskSpec) -> TaskSpec:
    if not _NAME.fullmatch(task.name):
        raise BadInput(f"{task.name[:80]!r} is no name for a task", hint="letters, digits, spaces and . : / + @ -")
    if task.kind == "command" and not task.package and not (task.argv and task.argv[0]):
        raise BadInput(
            f"task {task.name!r} says nothing to run", hint="give argv, a package, or the kind of a built-in task"
        )
    if task.package.count("/") != 2 and (task.package or task.command):
        raise BadInput(f"task {task.name!r}: {task.package!r} is no package", hint="GROUP/NAME/VERSION")
    if task.kind != "command" and (task.argv or task.package):
        raise BadInput(f"task {task.name!r} of kind {task.kind!r} takes no argv", hint="give arguments instead")
    if any("\0" in word for word in (*task.argv, *task.environment, *task.environment.values())):
        raise BadInput(f"task {task.name!r}: a zero byte cannot be passed to a program")
    for pattern in task.results:
        if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
            raise BadInput(f"task {task.name!r}: {pattern!r} is no pattern of files in its folder")
    if not 0 <= task.retries <= _MOST_RETRIES:
        raise BadInput(f"task {task.name!r}: {task.retries} retries; 0 to {_MOST_RETRIES} are allowed")
    _check_lost_workers(task)
    if not 0 <= task.backoff <= _LONGEST or not (task.timeout is None or 0 < task.timeout <= _LONGEST):
        raise BadInput(f"task {task.name!r}: backoff and timeout are positive numbers of seconds, at most {_LONGEST}")
    if abs(task.priority) > _HIGHEST:
        raise BadInput(f"task {task.name!r}: priority {task.priority}; -{_HIGHEST} to {_HIGHEST} are allowed")
    if len({need.task for need in task.needs}) < len(task.needs):
        raise BadInput(f"task {task.name!r} needs the same task twice")
    if task.holder and not task.source:
        raise BadInput(f"task {task.name!r} wants the holder of a source but names none", hint="give its source")
    parse(task.selector)
    return task


def _check_lost_workers(task: TaskSpec) -> None:
    lost = task.lost_worker_retries or 0
    if not 0 <= lost <= _MOST_RETRIES:
        raise BadInput(f"task {task.name!r}: lost_worker_retries is {lost}; 0 to {_MOST_RETRIES} are allowed")
    if task.at_most_once and (task.retries or lost):
        field, value = ("retries", task.retries) if task.retries else ("lost_worker_retries", lost)
        raise BadInput(
            f"task {task.name!r} may run at most once, but {field} is {value}",
            hint=f"leave out {field}, or at_most_once",
        )


def _check_needs(tasks: Sequence[TaskSpec], names: set[str]) -> None:
    """Every need exists and none leads back to where it came from."""
    needs = {task.name: {need.task for need in task.needs} for task in tasks}
    for name, wanted in needs.items():
        if missing := wanted - names:
            raise BadInput(f"task {name!r} needs {min(missing)!r}, which is not in its context")
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = sorted(set(error.args[1]))
        raise BadInput(f"tasks need each other in a circle: {', '.join(circle[:10])}") from None
