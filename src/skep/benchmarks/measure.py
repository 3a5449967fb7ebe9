"""Run by a worker as a child of its own: one commit is measured beside the commit before it.

Both are checked out from the mirror and built; then their runs take turns, so that whatever disturbs the machine
disturbs both alike. What was measured is written as the last step, so that a kill leaves all of it or nothing.
"""

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from skep.base.globs import compile_globs
from skep.benchmarks.api import Measure
from skep.benchmarks.step_detection import compare
from skep.results.api import Draft
from skep.results.fields import read

_OUT = "results.jsonl"
_MOST_VALUES = 50
#: what the measured program is no business of
_OWN = ("SKEP_MEASURE", "SKEP_MIRROR", "SKEP_VARIABLES")
#: nothing that a repository, a task or this machine configures has a say in our own calls of git
_GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false")
_GIT_ALONE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "LANG": "C.UTF-8"}
#: the mirror belongs to the worker, whose user may be another
_GIT_CONFIG = "[safe]\n\tdirectory = *\n"
#: group, metric and unit
Key = tuple[str, str, str]


class Failed(Exception):
    """A stage did not work; the text is for people."""


class Side:
    """A checkout of one commit, and what was measured in it."""

    def __init__(self, job: Measure, mirror: str, name: str, commit: str) -> None:
        self._job = job
        self._folder = Path(name).absolute()
        given = {key: value for key, value in os.environ.items() if key not in _OWN}
        variables = msgspec.json.decode(os.environ.get("SKEP_VARIABLES", "{}"), type=dict[str, str])
        self._environment = given | variables | {"SKEP_COMMIT": commit}
        self.commit = commit
        self.samples: dict[Key, list[float]] = {}
        clone = ("clone", "--quiet", "--shared", "--no-checkout", "--template=", mirror, str(self._folder))
        with tempfile.TemporaryDirectory() as home:
            config = Path(home, "config")
            config.write_text(_GIT_CONFIG)
            alone = _GIT_ALONE | {"PATH": given["PATH"], "HOME": home, "GIT_CONFIG_GLOBAL": str(config)}
            self._do("checkout", [*_GIT, *clone], Path(), alone)
            self._do("checkout", [*_GIT, "checkout", "--quiet", commit, "--"], environment=alone)
        if job.build:
            self._do("build", job.build)

    def run(self, *, counts: bool) -> None:
        job, file = self._job, self._folder / self._job.read
        if job.read:
            file.unlink(missing_ok=True)
        began = time.perf_counter()
        self._do("run", job.command)
        seconds = time.perf_counter() - began
        if not counts:
            return
        if not job.read:
            self.samples.setdefault(("", "time", "s"), []).append(seconds)
            return
        try:
            drafts = read(job.read, file.read_bytes())
        except OSError as error:
            raise Failed(f"run: {job.read} cannot be read: {error.strerror}") from error
        for draft in drafts:
            value = draft.value if draft.value is not None else median(draft.values)
            self.samples.setdefault((draft.group, draft.metric, draft.unit), []).append(value)

    def _do(
        self,
        stage: str,
        argv: Sequence[str],
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        variables = self._environment if environment is None else environment
        try:
            done = subprocess.run(
                argv, cwd=folder or self._folder, env=variables, stdin=subprocess.DEVNULL, check=False
            )
        except OSError as error:
            raise Failed(f"{stage}: {argv[0]}: {error.strerror}") from error
        if done.returncode:
            raise Failed(f"{stage}: {' '.join(argv)[:200]} ended with {done.returncode}")


def measure(job: Measure, mirror: str) -> list[Draft]:
    """Failed when the commit cannot be measured; when only the one before it cannot, it is measured alone."""
    side, base = Side(job, mirror, "commit", job.commit), None
    if job.base:
        try:
            base = Side(job, mirror, "base", job.base)
            for _ in range(job.warmup):
                base.run(counts=False)
        except Failed as error:
            print(f"nothing to compare with: {error}", file=sys.stderr)  # noqa: T201  # the task's own output
            base = None
    for _ in range(job.warmup):
        side.run(counts=False)
    for n in range(job.repetitions):
        pair = [side] if base is None else [base, side] if n % 2 else [side, base]
        for one in pair:
            one.run(counts=True)
    return list(drafts_of(job, side, base))


def drafts_of(job: Measure, side: Side, base: Side | None) -> Iterable[Draft]:
    wanted = compile_globs(job.metrics, "metrics") if job.metrics else None
    for (group, metric, unit), values in side.samples.items():
        if wanted is not None and wanted.fullmatch(metric) is None:
            continue
        others = base.samples.get((group, metric, unit), []) if base else []
        tags = {"author": job.author, "subject": job.subject}
        if base and len(others) == len(values) and min(*values, *others) > 0:
            found = compare(others, values)
            tags |= {name: f"{getattr(found, name):.6g}" for name in ("ratio", "low", "high", "p")}
            tags |= {"base": base.commit, "base_values": " ".join(f"{one:.6g}" for one in others[:_MOST_VALUES])}
        name = f"{group} [{job.variant}]".strip() if job.variant else group
        if all(map(math.isfinite, values)):
            yield Draft(metric, None, unit, tuple(values), name, tags=_printable(tags))


def _printable(tags: dict[str, str]) -> dict[str, str]:
    return {name: "".join(c if c.isprintable() else " " for c in text)[:1000] for name, text in tags.items()}


def main() -> int:
    job = msgspec.json.decode(os.environ["SKEP_MEASURE"], type=Measure)
    # files of a package lie here, beside the checkouts
    command = tuple(str(Path(word).absolute()) if Path(word).is_file() else word for word in job.command)
    job = msgspec.structs.replace(job, command=command)
    if job.pin:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    try:
        drafts, code = measure(job, os.environ["SKEP_MIRROR"]), 0
    except Failed as error:
        print(error, file=sys.stderr)  # noqa: T201
        tags = {"reason": str(error), "author": job.author, "subject": job.subject}
        drafts, code = (
            [Draft(group=f"[{job.variant}]" if job.variant else "", kind="failure", tags=_printable(tags))],
            1,
        )
    Path(_OUT).write_bytes(b"".join(msgspec.json.encode(draft) + b"\n" for draft in drafts))
    return code


if __name__ == "__main__":
    sys.exit(main())
