"""Times as cron writes them, in UTC: minute, hour, day of the month, month, day of the week. Pure.

Own lines instead of a dependency: what is needed is only the newest due minute in a span, found day by day.
"""

from datetime import UTC, datetime, timedelta

from skep.base.errors import BadInput

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NAMES = {
    "month": {name: number for number, name in enumerate(_MONTHS, 1)},
    "day of the week": {name: number for number, name in enumerate(_DAYS)},
}
#: days after which every date that exists has come: 29 February is on each day of the week within 28 years
_LONGEST = 29 * 366


class Cron:
    def __init__(self, text: str) -> None:
        words = text.lower().split()
        if len(words) != len(_FIELDS):
            raise BadInput(
                f"cron {text[:80]!r} has {len(words)} fields, not 5",
                hint="minute, hour, day of the month, month, day of the week; such as '0 3 * * mon-fri'",
            )
        parsed = [_field(word, *field) for word, field in zip(words, _FIELDS, strict=True)]
        self._minutes, self._hours, self._days, self._months, weekdays = parsed
        self._weekdays = {day % 7 for day in weekdays}
        # with both day fields set either will do, as cron has always had it
        self._either = not words[2].startswith("*") and not words[4].startswith("*")
        leap = datetime(2096, 2, 29, tzinfo=UTC).timestamp()
        if self.newest(leap - _LONGEST * 86_400, leap) is None:
            raise BadInput(f"cron {text[:80]!r} never comes", hint="no month has such a day")

    def newest(self, after: float, until: float) -> float | None:
        """The last due minute in (after, until]."""
        day = datetime.fromtimestamp(until, UTC).replace(second=0, microsecond=0)
        for _ in range(_LONGEST + 1):
            if day.timestamp() <= after:
                return None
            if self._on(day) and (found := self._last_of(day)) is not None:
                return found if found > after else None
            day = day.replace(hour=23, minute=59) - timedelta(days=1)
        return None

    def next(self, after: float) -> float:
        """The first due minute later than that."""
        low, span = after, 3_600.0
        while self.newest(after, low + span) is None:
            low, span = low + span, span * 2
        high = low + span
        while high - low > 60.0:
            middle = (low + high) / 2
            low, high = (low, middle) if self.newest(after, middle) is not None else (middle, high)
        return self.newest(after, high) or high

    def _on(self, day: datetime) -> bool:
        in_month, in_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        fits = in_month or in_week if self._either else in_month and in_week
        return fits and day.month in self._months

    def _last_of(self, until: datetime) -> float | None:
        """The last time of that day that is no later."""
        for hour in sorted(self._hours, reverse=True):
            minutes = [minute for minute in self._minutes if (hour, minute) <= (until.hour, until.minute)]
            if minutes:
                return until.replace(hour=hour, minute=max(minutes)).timestamp()
        return None


def _field(word: str, what: str, low: int, high: int) -> set[int]:
    """`*`, `5`, `1-5`, `mon-fri`, `*/15`, `10-40/5`, and lists of these."""
    found: set[int] = set()
    for part in word.split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isascii() and step.isdigit() and int(step) > 0):
            raise _wrong(what, part, f"{step!r} is no step")
        first, dash, last = span.partition("-")
        start = low if span == "*" else _number(first, what, part, low, high)
        open_end = high if span == "*" or slash else start
        end = _number(last, what, part, low, high) if dash else open_end
        if end < start:
            raise _wrong(what, part, "it runs backwards")
        found.update(range(start, end + 1, int(step) if slash else 1))
    return found


def _number(text: str, what: str, part: str, low: int, high: int) -> int:
    named = _NAMES.get(what, {}).get(text)
    if named is not None:
        return named
    if not (text.isascii() and text.isdigit()):
        raise _wrong(what, part, f"{text!r} is no number")
    if not low <= int(text) <= high:
        raise _wrong(what, part, f"{text} is not between {low} and {high}")
    return int(text)


def _wrong(what: str, part: str, why: str) -> BadInput:
    return BadInput(f"cron, {what} {part[:40]!r}: {why}", hint="such as *, 5, 1-5, */15 or 1,15")
