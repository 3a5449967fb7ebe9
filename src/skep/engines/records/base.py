"""The Records face: small structured records (reports, science metadata) found by words, fields and ranges.

A room declares a kind of record with its fields, puts records into it, and can fill it again from what it holds
itself: records are an index of something, never the only copy.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from skep.errors import BadInput

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
