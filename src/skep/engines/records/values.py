"""Values of fields: what a query's text means for a field of a type, and what a record may hold."""

import math
import re
from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from skep.engines.records.base import Field, FieldType, Record, Value
from skep.errors import BadInput, BadQuery

_DATE = re.compile(r"(\d{4})(?:-(\d\d?)(?:-(\d\d?)(?:T(\d\d):(\d\d)(?::(\d\d)(\.\d+)?)?Z?)?)?)?")
_INT_RANGE = range(-(1 << 63), 1 << 63)
_MOST_ID = 1000


class Bounds(msgspec.Struct, frozen=True):
    """From `low` up to, but without, `after`; None: no bound."""

    low: int | float | None
    after: int | float | None

    def is_empty(self, type: FieldType) -> bool:
        """No value of that type can be between: neither engine takes bounds beyond the largest number."""
        least, end = (_INT_RANGE.start, _INT_RANGE.stop) if type == "int" else (-math.inf, math.inf)
        return (least if self.low is None else self.low) >= (end if self.after is None else self.after)


def bounds(field: Field, text: str) -> Bounds:
    """What one value covers: a year all its days, a number only itself. `*` covers everything."""
    if text == "*" and field.type in ("int", "float", "date"):
        return Bounds(None, None)
    try:
        match field.type:
            case "int":
                number = int(text)
                if number in _INT_RANGE:
                    return Bounds(number, number + 1)
            case "float":
                real = float(text)
                if math.isfinite(real):
                    return Bounds(real, math.nextafter(real, math.inf))
            case "date":
                return _period(text)
            case "bool" if text.lower() in ("true", "false", "yes", "no"):
                truth = int(text.lower() in ("true", "yes"))
                return Bounds(truth, truth + 1)
            case "text" | "keyword":
                raise BadQuery(f"`{field.name}:` holds text and has no ranges", hint=f"write {field.name}:word")
    except ValueError:
        pass
    raise BadQuery(f"{text[:100]!r} is no value for `{field.name}:`", hint=f"write {_EXAMPLES[field.type]}")


_EXAMPLES = {"int": "a whole number, such as 42", "float": "a number, such as 1.5", "bool": "true or false"}
_EXAMPLES["date"] = "a date, such as 2001, 2001-05, 2001-05-03 or 2001-05-03T12:00:00Z"


def _period(text: str) -> Bounds:
    """A year, month, day, minute, second or millisecond. ValueError when there is no such day."""
    found = _DATE.fullmatch(text)
    if not found:
        raise ValueError(text)
    *parts, fraction = found.groups()
    year, month, day, hour, minute, second = (int(part) if part else None for part in parts)
    start = datetime(year or 0, month or 1, day or 1, hour or 0, minute or 0, second or 0, tzinfo=UTC).timestamp()
    if fraction:
        # divided, not added up, as whoever put a date in milliseconds has divided it
        whole = int(start) * 1000 + int(fraction[1:4].ljust(3, "0"))
        return Bounds(whole / 1000, (whole + 1) / 1000)
    if month is None:
        days = sum(monthrange(year or 1, nth)[1] for nth in range(1, 13))
    elif day is None:
        days = monthrange(year or 1, month)[1]
    else:
        days = 1
    length = 86400 * days if hour is None else 60 if second is None else 1
    return Bounds(start, start + length)


def listed(value: Value | Sequence[Value]) -> Sequence[Value]:
    return (value,) if isinstance(value, (str, int, float)) else value


def checked(fields: dict[str, Field], record: Record) -> None:
    """BadInput names the record, the field and what is wrong with it."""
    if not 0 < len(record.id) <= _MOST_ID:
        raise BadInput(f"a record's id has 1 to {_MOST_ID} characters, not {len(record.id)}")
    for name, value in record.values.items():
        field = fields.get(name)
        if field is None:
            raise BadInput(f"record {record.id!r} has a field {name[:100]!r} that its kind does not declare")
        values = listed(value)
        if len(values) > 1 and not field.many:
            raise BadInput(f"record {record.id!r} has {len(values)} values in {name!r}, which holds one")
        fits = _FITS[field.type]
        for one in values:
            if not fits(one):
                raise BadInput(f"record {record.id!r} has {str(one)[:100]!r} in {name!r}, which holds {field.type}")


def _is_text(value: Value) -> bool:
    return isinstance(value, str) and (value.isascii() or _is_unicode(value))


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


#: asked of every value of every record
_FITS: dict[FieldType, Callable[[Value], bool]] = {
    "text": _is_text,
    "keyword": _is_text,
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool) and value in _INT_RANGE,
    "float": _is_number,
    "date": _is_number,
}


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
