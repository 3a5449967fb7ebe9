"""Times as people write them in a query. Pure."""

import re
from datetime import UTC, datetime

EXAMPLES = ("2026-01-31", "2026-01-31T12:00", "30d")

_AGO = re.compile(r"([0-9]{1,4})([hdwmy])")
_SECONDS = {"h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0, "m": 30 * 86_400.0, "y": 365 * 86_400.0}
#: what a year, or a month of a year, lacks of a day
_REST = {4: "-01-01", 7: "-01"}


def moment(text: str, now: float) -> float | None:
    """A year, month, day or minute, in UTC unless it says otherwise; or so long ago. None: it is no time."""
    if ago := _AGO.fullmatch(text):
        return now - int(ago[1]) * _SECONDS[ago[2]]
    try:
        read = datetime.fromisoformat(text + _REST.get(len(text), ""))
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
