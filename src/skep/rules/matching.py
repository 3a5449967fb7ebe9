"""Which changes a rule is about, and what it submits for them. Pure."""

import re
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from skep.base.caller import Visibility
from skep.base.cron import Cron
from skep.base.errors import BadInput, TooLarge
from skep.base.globs import compile_globs
from skep.rules.api import Occasion, RuleSpec
from skep.sources.model import Source
from skep.tasks.contexts import compose
from skep.tasks.model import ContextSpec, TaskSpec
from skep.topics.service import valid_name

#: bytes of a rule
LARGEST = 100_000
_BRANCH = "refs/heads/"
_SAMPLE = Occasion("src_0", "example.org/a", "refs/heads/main", "0" * 40, "1" * 40, "bat_0")


class Told(msgspec.Struct, frozen=True):
    """A change as it stands in the topic."""

    source: str
    entry: str
    old: str | None
    new: str | None
    batch: str
    first: bool
    visibility: Visibility = "public"


class Matcher:
    """A rule with its patterns compiled; BadInput says what is wrong with one."""

    def __init__(self, spec: RuleSpec) -> None:
        self.spec = spec
        self.cron = Cron(spec.cron) if spec.cron else None
        self._source = compile_globs([spec.source], "source") if spec.source else None
        full = [ref if ref.startswith("refs/") else _BRANCH + ref for ref in spec.refs]
        self._refs = compile_globs(full, "refs") if full else None
        self._paths = compile_globs(spec.paths, "paths") if spec.paths else None
        self._labels = frozenset(spec.labels)
        # what stands before the first wildcard: a cheap no for most rules of many
        self._prefix = re.split(r"[*?\[]", spec.source)[0]

    def about(self, source: Source) -> bool:
        if not source.name.startswith(self._prefix) or not self._labels.issubset(source.labels):
            return False
        return self._source is None or self._source.fullmatch(source.name) is not None

    def candidates(self, source: Source, changes: Sequence[Told]) -> list[Occasion]:
        """The changes of one batch that fit but for their paths: the default branch first, then the newest.

        What was deleted leaves nothing to run on, and HEAD only names a branch. A context names its ref to whoever sees
        the source: it is not made for one that they may not know of.
        """
        default = _BRANCH + source.default_branch
        fits = [
            change
            for change in changes
            if change.new is not None
            and change.entry.startswith("refs/")
            and change.visibility == "public"
            and (self.spec.first or not change.first)
            and (self._refs.fullmatch(change.entry) is not None if self._refs else change.entry == default)
        ]
        fits.sort(key=lambda change: change.entry == default)
        name = source.name if source.visibility == "public" else ""
        return [
            Occasion(source.id, name, change.entry, change.old or "", change.new or "", change.batch)
            for change in reversed(fits)
        ]

    @property
    def wants_paths(self) -> bool:
        return self._paths is not None

    def touched(self, paths: Collection[str] | None) -> bool:
        """None: too many to tell, or nothing to compare with; then any may be among them."""
        return paths is None or self._paths is None or any(self._paths.fullmatch(path) for path in paths)


def check(spec: RuleSpec) -> Matcher:
    """Everything that can be wrong with a rule is said when it is made."""
    valid_name(spec.name, "rule")
    if len(msgspec.json.encode(spec)) > LARGEST:
        raise TooLarge(
            f"rule {spec.name!r} has more than {LARGEST:,} bytes", hint="let a task add tasks to its context"
        )
    of_changes = bool(spec.source or spec.labels)
    if not spec.cron and not of_changes:
        raise BadInput(f"rule {spec.name!r} says neither source, labels nor cron", hint='source = "**" is every source')
    if spec.cron and (of_changes or spec.refs or spec.paths or spec.first):
        raise BadInput(
            f"rule {spec.name!r}: cron waits for no change", hint="leave out source, labels, refs, paths and first"
        )
    if spec.source and "/" not in spec.source and "**" not in spec.source:
        raise BadInput(
            f"source {spec.source!r} matches no name: each has several parts",
            hint="such as github.com/org/*, **/name, or ** for every source",
        )
    matcher = Matcher(spec)
    composed(spec, Occasion() if spec.cron else _SAMPLE)
    return matcher


def composed(spec: RuleSpec, occasion: Occasion) -> tuple[ContextSpec, list[TaskSpec]]:
    """The rule's context for one occasion.

    What changed is given as properties and never put into arguments: a name from outside must not become a command.
    A task that names no source is about the one that changed, so that its holder comes first.
    """
    context = spec.context
    given: dict[str, Any] = {**msgspec.to_builtins(occasion), "rule": spec.name}
    named = {name for name, template in context.templates.items() if template.source}
    tasks = tuple(
        msgspec.structs.replace(task, source=task.source or ("" if task.template in named else occasion.source))
        for task in context.tasks
    )
    whole = msgspec.structs.replace(context, tasks=tasks, properties={**context.properties, **given})
    return whole, compose(whole)
