"""The generator of a declared benchmark: a commit becomes a context. Pure."""

from skep.benchmarks.checking import variants
from skep.benchmarks.choosing import Choice
from skep.model.benchmark import BenchmarkSpec, Generated, Measure
from skep.model.task import ContextSpec, TaskSpec


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
