"""Log lines: lower case, no full stop, fields instead of templates. One line each, to stderr."""

import logging
import sys
import time
from typing import Any

from skep.link.lines import LineBuffer

_OWN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class Text(logging.Formatter):
    """Without time and level, which the log of all processes keeps beside it."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{k}={_quoted(v)}" for k, v in record.__dict__.items() if k not in _OWN)
        trace = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return f"{record.name} {record.getMessage()} {fields}".rstrip() + trace


class Whole(Text):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{at}.{int(record.msecs):03d}Z {record.levelname.lower():7} {super().format(record)}"


def _quoted(value: Any) -> str:
    text = str(value)
    # a control character from an upstream must not forge a line of its own
    return repr(text) if not text or not text.isprintable() or " " in text else text


def set_up_logs(level: str) -> LineBuffer:
    """Returns what gathers the lines for the log of all processes; whoever runs the process sends them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Whole())
    lines = LineBuffer(Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger().addHandler(lines)
    # its starts and stops are ours, told by ourselves
    logging.getLogger("uvicorn").setLevel("WARNING")
    # a database that is away is told, in a line, by whoever needs it
    logging.getLogger("asyncpg.pool").setLevel("ERROR")
    return lines
