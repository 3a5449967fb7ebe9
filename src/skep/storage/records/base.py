"""The Records face: small structured records (reports, science metadata) found by words, fields and ranges.

A room declares a kind of record with its fields, puts records into it, and can fill it again from what it holds
itself: records are an index of something, never the only copy.
"""

import math
import re
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, Protocol

import msgspec

from skep.base.errors import BadInput, BadQuery

#: text: words, found one by one; keyword: one value, found whole; date: seconds since 1970, asked for as 2001-05-03
FieldType = Literal["text", "keyword", "int", "float", "date", "bool"]
Value = str | int | float | bool

#: records of one page, and how deep one can leaf
MOST_RECORDS, MOST_DEPTH = 1000, 10_000


class Field(msgspec.Struct, frozen=True):
    name: str
    type: FieldType
    #: holds a list of values
    many: bool = False
    #: given back with a hit
    stored: bool = True
    #: its values can be counted: keyword, int and bool
    faceted: bool = False


class Kind(msgspec.Struct, frozen=True):
    """The records of one room. `id` is a keyword of every kind."""

    name: str
    fields: tuple[Field, ...]
    #: text fields in which a word is searched that names no field
    words: tuple[str, ...]
    #: what a field may be called as well
    also: Mapping[str, str] = {}
    #: of keywords: the value that somebody means by a text; BadQuery when there is none
    meant: Mapping[str, Callable[[str], str]] = {}

    def field(self, name: str) -> Field | None:
        name = self.also.get(name, name)
        return _ID if name == "id" else next((field for field in self.fields if field.name == name), None)

    def need(self, name: str, what: str) -> Field:
        """BadInput names the fields there are."""
        field = self.field(name)
        if field is None:
            known = ", ".join(sorted(field.name for field in self.fields))
            raise BadInput(f"{self.name} have no field {name[:100]!r} to {what}", hint=f"there are: {known}")
        return field


_ID = Field("id", "keyword")


class Record(msgspec.Struct, frozen=True):
    #: putting another record with this id replaces it
    id: str
    values: Mapping[str, Value | Sequence[Value]]


class OneOf(msgspec.Struct, frozen=True):
    """The field (keyword or int) has one of these values. With none of them nothing is found."""

    field: str
    values: Sequence[str] | Sequence[int]


class Ask(msgspec.Struct, frozen=True):
    #: in the language of query.py; empty: everything
    text: str = ""
    #: what the caller may see: all of these hold for whatever is found, counted or faceted
    only: tuple[OneOf, ...] = ()
    facets: tuple[str, ...] = ()
    #: values of one facet, the most frequent ones
    facet_size: int = 20
    #: fields, with commas between; `-field`: the largest first; empty: the best match first. Who has none comes last
    sort: str = ""
    start: int = 0
    limit: int = 50
    seconds: float = 10.0

    @property
    def orders(self) -> list[tuple[str, bool]]:
        """Names of fields; is the largest first?"""
        return [(name.removeprefix("-"), name.startswith("-")) for name in self.sort.split(",") if name]


class Found(msgspec.Struct, frozen=True):
    id: str
    values: dict[str, Value | list[Value]]
    #: how well it matches; 0 when sorted by a field
    score: float


class Page(msgspec.Struct, frozen=True):
    records: list[Found]
    total: int
    #: by field: values and how many records have them
    facets: dict[str, list[tuple[Value, int]]]


class Records(Protocol):
    async def declare(self, kind: Kind) -> bool:
        """Before anything else. True: the room must put every record anew and then say `filled`.

        So it is when the kind is new, was damaged and set aside, or has other fields than before.
        """
        ...

    async def filled(self, kind: str) -> None: ...

    async def put(self, kind: str, records: Sequence[Record]) -> None:
        """Durable, and found by every search that begins later, on return. All of them or none."""
        ...

    async def delete(self, kind: str, which: OneOf) -> None: ...

    async def search(self, kind: str, ask: Ask) -> Page:
        """BadQuery points at the column of what is wrong; Busy when it takes more than `seconds`."""
        ...

    async def check(self, kind: str) -> bool:
        """Read everything and compare checksums. True: it was damaged and is set aside, to be filled as when new."""
        ...

    async def close(self) -> None: ...


# Values of fields: what a query's text means for a field of a type, and what a record may hold.

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
