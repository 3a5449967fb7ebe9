"""What may be wrong with a benchmark is said when it is made. Pure."""

import math
import re
from itertools import product
from urllib.parse import urlsplit

import msgspec

from skep.errors import BadInput, TooLarge
from skep.globs import compile_globs
from skep.model.benchmark import BenchmarkSpec
from skep.tasks.selector import parse

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_LARGEST = 100_000
MOST_VARIANTS = 64
#: field -> least and most
_BOUNDS: dict[str, tuple[float, float]] = {
    "points": (0, 9_000),
    "repetitions": (1, 1000),
    "warmup": (0, 100),
    "timeout": (1, 10**7),
    "parallel": (1, 100),
    "per_hour": (1, 9_000),
    "least": (0, 10),
}


def check(spec: BenchmarkSpec) -> None:
    if not _NAME.fullmatch(spec.name):
        raise BadInput(f"{spec.name[:80]!r} is no name for a benchmark", hint="small letters, digits, and . _ - inside")
    if len(msgspec.json.encode(spec)) > _LARGEST:
        raise TooLarge(f"benchmark {spec.name!r} has more than {_LARGEST:,} bytes")
    if bool(spec.command or spec.package) == bool(spec.code):
        raise BadInput(f"benchmark {spec.name!r} needs a command, a package or code", hint="see docs/benchmarks.md")
    if any("\0" in word or not word for word in (*spec.command, *spec.build)):
        raise BadInput(f"benchmark {spec.name!r}: a word of its commands is empty or has a zero byte")
    if (spec.mode == "range") != bool(spec.range) or (spec.range and not all(ends(spec.range))):
        raise BadInput(
            f"benchmark {spec.name!r}: mode range needs a range, and no other does", hint="such as v1.0..main"
        )
    for name, (least, most) in _BOUNDS.items():
        value = getattr(spec, name)
        if not (math.isfinite(value) and least <= value <= most):
            raise BadInput(f"benchmark {spec.name!r}: {name} = {value}; {least:g} to {most:g} are allowed")
    if math.prod(map(len, spec.matrix.values())) not in range(1, MOST_VARIANTS + 1):
        raise BadInput(f"benchmark {spec.name!r}: its matrix has no or more than {MOST_VARIANTS} combinations")
    for variable in (*spec.matrix, *spec.environment):
        if not _VARIABLE.fullmatch(variable) or variable.startswith("SKEP_"):
            raise BadInput(f"{variable[:80]!r} is no variable to be set", hint="letters, digits and _; not SKEP_…")
    if spec.webhook and urlsplit(spec.webhook).scheme not in ("http", "https"):
        raise BadInput(f"webhook {spec.webhook[:80]!r} is no http or https URL")
    if spec.metrics:
        compile_globs(spec.metrics, "metrics")
    parse(spec.selector)


def ends(range: str) -> tuple[str, str]:
    """OLD and NEW of `OLD..NEW`."""
    old, _, new = range.partition("..")
    return old, new


def variants(spec: BenchmarkSpec) -> list[dict[str, str]]:
    """Every combination of the matrix."""
    return [dict(zip(spec.matrix, values, strict=True)) for values in product(*spec.matrix.values())]
