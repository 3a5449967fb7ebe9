"""What a tuple may be, and when a template matches it (pure). Types are exact: True is no int, 1 is no 1.0."""

import math
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from skep.errors import BadInput, TooLarge
from skep.model.space import Field, Fields, Template, Typed

MOST_FIELDS = 64
MOST_BYTES = 1 << 20
_INT64 = 1 << 63
_TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Fields).decode


def packed(fields: Sequence[Field]) -> bytes:
    """The tuple as it is stored; raises where it is none."""
    _check(fields)
    body = _bytes(tuple(fields))
    if len(body) > MOST_BYTES:
        raise TooLarge(f"a tuple has at most {MOST_BYTES} bytes, not {len(body)}", hint="put a reference to the rest")
    return body


def unpacked(body: bytes) -> Fields:
    return _decode(body)


def head_of(field: Field) -> int:
    """By this tuples are looked up; that two values share one does no harm."""
    return zlib.crc32(_bytes(field + 0.0 if type(field) is float else field))


class Pattern:
    """A template, ready to be tried on many tuples."""

    __slots__ = ("_parts", "arity", "head", "key")

    def __init__(self, template: Template) -> None:
        _check([part for part in template if not isinstance(part, Typed)], least=0)
        if not 1 <= len(template) <= MOST_FIELDS:
            raise BadInput(f"a template has 1 to {MOST_FIELDS} fields, not {len(template)}")
        self.arity = len(template)
        self._parts = [_part(part) for part in template]
        value = self._parts[0][1]
        #: None: its first field may be anything of a type
        self.head: int | None = None if value is None else head_of(value)
        #: equal for templates that match the same
        self.key = _bytes(template)

    def matches(self, fields: Fields) -> bool:
        if len(fields) != self.arity:
            return False
        for field, (kind, value) in zip(fields, self._parts, strict=True):
            if (kind is not None and type(field) is not kind) or (value is not None and field != value):
                return False
        return True


def _bytes(parts: object) -> bytes:
    try:
        return _encode(parts)
    except UnicodeEncodeError as error:
        raise BadInput("a text with half a surrogate pair cannot be in a tuple") from error


def _part(part: Any) -> tuple[type | None, Any]:
    """Its type (None: any) and value (None: any); no field is None."""
    if isinstance(part, Typed):
        return _TYPES.get(part.type), None
    return type(part), part


def _check(fields: Sequence[Field], least: int = 1) -> None:
    if not least <= len(fields) <= MOST_FIELDS:
        raise BadInput(f"a tuple has 1 to {MOST_FIELDS} fields, not {len(fields)}")
    for field in fields:
        kind = type(field)
        if kind is int and not -_INT64 <= field < _INT64:  # type: ignore[operator]
            raise BadInput(f"{field} does not fit 64 bits", hint="put it as text")
        if kind is float and not math.isfinite(field):  # type: ignore[arg-type]
            raise BadInput(f"{field} is no number that can be compared", hint="put it as text")
        if kind not in (str, int, float, bool):
            raise BadInput(f"a field is a str, an int, a float or a bool, never a {kind.__name__}")
