"""Log lines: lower case, no full stop, fields instead of templates. One line each, to stderr."""

import logging
import sys
import time
from typing import Any

_OWN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = " ".join(f"{k}={_quoted(v)}" for k, v in record.__dict__.items() if k not in _OWN)
        line = f"{at}.{int(record.msecs):03d}Z {record.levelname.lower():7} {record.name} {record.getMessage()}"
        trace = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return f"{line} {fields}".rstrip() + trace


def _quoted(value: Any) -> str:
    text = str(value)
    # a control character from an upstream must not forge a line of its own
    return repr(text) if not text or not text.isprintable() or " " in text else text


def set_up_logs(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # its starts and stops are ours, told by ourselves
    logging.getLogger("uvicorn").setLevel("WARNING")
