"""Which commit is measured next. Pure: everything follows from the history and from what was measured already."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from skep.benchmarks.api import BenchmarkSpec, Commit, Generated, Measure, Span, Want
from skep.benchmarks.service import variants
from skep.tasks.model import ContextSpec, TaskSpec

#: of a range; a generator remembers a few more
MOST_POINTS = 9_000


class Choice(msgspec.Struct, frozen=True):
    commit: Commit
    ref: str
    #: 1; more when somebody wants it again
    round: int = 1

    @property
    def key(self) -> str:
        return key_of(self.ref, self.commit.id, self.round)


def key_of(ref: str, commit: str, round: int = 1) -> str:
    """A context is known by this: whoever generates it twice generates the same one."""
    return f"{ref}:{commit}:{round}"


class Wanted(msgspec.Struct, frozen=True):
    """A wish with the commits it is about, oldest first."""

    want: Want
    ref: str
    commits: Sequence[Commit]


def choose(
    spec: BenchmarkSpec,
    histories: Mapping[str, Sequence[Commit]],
    generated: Collection[str],
    spans: Sequence[Span] = (),
    wanted: Sequence[Wanted] = (),
) -> tuple[Choice | None, list[str], int]:
    """The next one, the open steps that are as narrow as they get, and how many wishes (the first ones) are fulfilled.

    What people ask for comes first, then new commits, then open steps, then the range.
    """
    fulfilled = 0
    for one in wanted:
        if (choice := _by_wish(one, generated)) is not None:
            return choice, [], fulfilled
        fulfilled += 1
    if spec.mode == "push":
        for ref, commits in histories.items():
            if commits and key_of(ref, commits[-1].id) not in generated:
                return Choice(commits[-1], ref), [], fulfilled
    narrow: list[str] = []
    for span in spans:
        inside = _inside(histories.get(span.ref, ()), span)
        if left := [commit for commit in inside if key_of(span.ref, commit.id) not in generated]:
            return Choice(left[len(left) // 2], span.ref), narrow, fulfilled
        narrow.append(span.step)
    if spec.mode == "range":
        for ref, commits in histories.items():
            for commit in spread(commits, spec.points or MOST_POINTS):
                if key_of(ref, commit.id) not in generated:
                    return Choice(commit, ref), narrow, fulfilled
    return None, narrow, fulfilled


def _by_wish(wanted: Wanted, generated: Collection[str]) -> Choice | None:
    commits = spread(wanted.commits, 2) if wanted.want.bisect else wanted.commits
    for commit in commits:
        choice = Choice(commit, wanted.ref, wanted.want.round)
        if choice.key not in generated:
            return choice
    return None


def _inside(commits: Sequence[Commit], span: Span) -> Sequence[Commit]:
    places = {commit.id: at for at, commit in enumerate(commits)}
    if span.previous not in places or span.commit not in places:
        return ()  # history was rewritten meanwhile
    return commits[places[span.previous] + 1 : places[span.commit]]


def spread(commits: Sequence[Commit], most: int) -> list[Commit]:
    """At most so many, evenly, with both ends; those far from each other first, so that the shape is seen early."""
    if most < 2 or len(commits) < 2:
        return list(commits[-1:])
    count = min(most, len(commits))
    places = list(dict.fromkeys(round(n * (len(commits) - 1) / (count - 1)) for n in range(count)))
    ordered, gaps = [places[-1], places[0]], [(0, len(places) - 1)]
    for low, high in gaps:
        if high - low > 1:
            middle = (low + high) // 2
            ordered.append(places[middle])
            gaps += [(low, middle), (middle, high)]
    return [commits[place] for place in ordered]


# The generator of a declared benchmark: a commit becomes a context. Pure.


def generated(spec: BenchmarkSpec, source: str, choice: Choice) -> Generated:
    """One task for each combination of the matrix, on who holds the source."""
    commit = choice.commit
    tasks = tuple(
        TaskSpec(
            f"measure-{n}",
            argv=spec.command,
            package=spec.package,
            command=spec.program,
            arguments={"measure": _measure(spec, choice, variant)},
            environment={**spec.environment, **variant},
            selector=spec.selector,
            source=source,
            holder=True,
            exclusive=spec.exclusive,
            limits=spec.limits,
            network=spec.network,
            timeout=spec.timeout,
        )
        for n, variant in enumerate(variants(spec), 1)
    )
    properties = {
        "skep.source": source,
        "skep.commit": commit.id,
        "skep.made_at": f"{commit.made_at:.3f}",
        "skep.ref": choice.ref,
    }
    name = f"{spec.name} {commit.id[:12]}"
    return Generated(choice.key, ContextSpec(name, tasks, properties=properties))


def _measure(spec: BenchmarkSpec, choice: Choice, variant: dict[str, str]) -> Measure:
    commit = choice.commit
    return Measure(
        commit.id,
        commit.parent,
        spec.command,
        spec.build,
        spec.read,
        spec.metrics,
        spec.repetitions,
        spec.warmup,
        spec.pin,
        ", ".join(f"{name}={value}" for name, value in variant.items()),
        commit.author,
        commit.subject,
    )
