"""Spaces hold tuples that are put, taken and looked at by template. Also the requests that ask for it over the link."""

import builtins
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec

from skep.base.errors import BadInput

Field = str | int | float | bool
Fields = tuple[Field, ...]
TypeName = Literal["str", "int", "float", "bool", "any"]


class Typed(msgspec.Struct, frozen=True):
    """Stands in a template for every value of a type; in JSON `{"type": "int"}`."""

    type: TypeName


#: a tuple matches when it has as many fields and each is the value, or of the type, in its place
Template = tuple[str | int | float | bool | Typed, ...]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


def template_of(parts: Iterable[object]) -> Template:
    """As Python writes it: values, the types str, int, float and bool, and `any` or `Any`."""
    return tuple(_part(part) for part in parts)


def _part(part: Any) -> Any:
    if part is Any or part is builtins.any:
        return Typed("any")
    if isinstance(part, type):
        if part not in (str, int, float, bool):
            raise BadInput(f"a field is a str, an int, a float or a bool, never a {part.__name__}")
        return Typed(part.__name__)  # type: ignore[arg-type]
    return part


class Tuple(msgspec.Struct, frozen=True, omit_defaults=True):
    #: place in its space: what was put earlier is lower
    seq: int
    fields: Fields
    #: given by whoever put it; a second put with the id of a tuple that is there is that tuple
    id: str = ""


class Taken(Tuple, frozen=True, kw_only=True):
    """Hidden from others until it is acknowledged, given back or the lease is over."""

    ticket: str
    lease_until: float


class SpaceInfo(msgspec.Struct, frozen=True):
    name: str
    #: tuples in it
    size: int
    #: of these, hidden because somebody has taken them
    taken: int


class SpaceAsk(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Asked over the link. Sent again after a disconnection, so that doing one twice must be doing it once."""

    space: str


class Put(SpaceAsk, frozen=True):
    fields: Fields
    #: a repeat is recognised while the tuple is there
    id: str = ""


class Get(SpaceAsk, frozen=True):
    template: Template
    #: made by who asks: a repeat finds what was taken under it
    ticket: str
    wait: Seconds = 0.0
    lease: Seconds = 60.0


class Query(SpaceAsk, frozen=True):
    template: Template
    wait: Seconds = 0.0


class QueryAll(SpaceAsk, frozen=True):
    template: Template


class Acknowledge(SpaceAsk, frozen=True):
    seq: int
    ticket: str


class GiveBack(SpaceAsk, frozen=True):
    seq: int
    ticket: str


class Keep(SpaceAsk, frozen=True):
    seq: int
    ticket: str
    lease: Seconds = 60.0


class Replace(SpaceAsk, frozen=True):
    template: Template
    fields: Fields


SpaceRequest = Put | Get | Query | QueryAll | Acknowledge | GiveBack | Keep | Replace


class Placed(msgspec.Struct, frozen=True, tag=True):
    seq: int


class Got(msgspec.Struct, frozen=True, tag=True):
    taken: Taken


class Found(msgspec.Struct, frozen=True, tag=True):
    tuples: tuple[Tuple, ...]


class Nothing(msgspec.Struct, frozen=True, tag=True):
    """Done, or nothing came within the time given."""


SpaceAnswer = Placed | Got | Found | Nothing


class PlacedAnswer(msgspec.Struct, frozen=True):
    seq: int


class GotAnswer(msgspec.Struct, frozen=True):
    #: null: nothing came in time
    taken: Taken | None


class FoundAnswer(msgspec.Struct, frozen=True):
    tuples: list[Tuple]
