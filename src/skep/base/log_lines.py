"""Log lines of every process, as they travel to the coordinator and as they are shown."""

import logging
from typing import Literal

import msgspec

Level = Literal["debug", "info", "warning", "error", "critical"]
SEVERITY: dict[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """`n` counts the lines of one process since its start: a repeat is recognised by it."""

    n: int
    at: float
    severity: int
    text: str
    #: the source or task it is about
    about: str = ""


class Lines(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    lines: tuple[Line, ...]


class LogLine(msgspec.Struct, frozen=True):
    n: int
    at: float
    level: Level
    process: str
    about: str
    text: str
