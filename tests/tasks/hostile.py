"""Submissions that try to reach files by the arguments of internal kinds."""

from typing import Any

from skep.tasks.task_types import KINDS

INTERNAL = sorted(name for name, kind in KINDS.items() if not kind.for_callers)
VALID = "dlt_01M7QBWGRP09JQQAPR79T9X5XA"
PATHS = (
    "..",
    ".",
    "",
    "../..",
    "../worker",
    "/",
    "/etc",
    "a/../..",
    "..\\..",
    "..%2f..",
    "%2e%2e",
    "..%252f",
    "\u2025",
    "..\0",
    f"{VALID}\0",
    f"{VALID}\n",
    f"{VALID}/..",
    f"../{VALID}",
    f"/{VALID}",
    VALID.lower(),
    f"{VALID}.git",
)


def arguments(kind: str, path: str = VALID) -> dict[str, Any]:
    """What this kind takes, with `path` where an id is wanted."""
    fields = KINDS[kind].arguments.__struct_fields__
    known = {"plan": path, "source": path, "batch": 0, "epoch": 1, "fetched_at": 1.0, "way": "whole"}
    return {name: known[name] for name in fields if name in known}


def submissions() -> list[dict[str, Any]]:
    """Tasks of internal kinds, as a caller would write them."""
    plain = [{"kind": kind, "arguments": arguments(kind)} for kind in INTERNAL]
    plain += [{"kind": kind, "arguments": arguments(kind), "source": "src_1"} for kind in INTERNAL]
    return plain + [{"kind": "report", "arguments": {"plan": path, "epoch": 1}} for path in PATHS]
