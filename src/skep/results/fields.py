"""The fields of a result, and filters over them as SQL. Pure."""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from skep.engines.db.base import Value
from skep.errors import BadInput

FROM = "FROM result JOIN series ON series.id = result.series"


def _same(value: Any) -> Any:
    return value


class Field(NamedTuple):
    sql: str
    #: what its values are to a filter
    kind: type = str
    decode: Callable[[Any], Any] = _same


FIELDS = {
    "id": Field("result.id"),
    "kind": Field("result.kind"),
    "metric": Field("series.metric"),
    "value": Field("result.value", float),
    "unit": Field("COALESCE(series.unit, '')"),
    "values": Field("result.samples", tuple, lambda text: msgspec.json.decode(text, type=tuple[float, ...])),
    "group": Field("series.group_name"),
    "tags": Field("result.tags", dict, msgspec.json.decode),
    "task": Field("result.task"),
    "attempt": Field("result.attempt", int),
    "number": Field("result.number", int),
    "context": Field("result.context"),
    "benchmark": Field("series.benchmark"),
    "source": Field("series.source"),
    "ref": Field("series.ref"),
    "commit": Field("result.commit_id"),
    "made_at": Field("result.made_at", float),
    "machine": Field("series.machine"),
    "at": Field("result.at", float),
}
_FILTER = re.compile(r"\s*(?P<field>tags\.[^=!~<>]+|\w+)\s*(?P<op>!=|!~|<=|>=|=|~|<|>)\s?(?P<value>.*)", re.DOTALL)
_MOST_FILTERS = 50
_LIKE = str.maketrans({"%": "!%", "_": "!_", "!": "!!", "*": "%", "?": "_"})
_EXAMPLE = "such as metric=time, group~parse*, value>=1.5 or ref=main|next"


def field(name: str) -> Field:
    """One that can be compared: not a list of values, not all tags."""
    found = FIELDS.get(name)
    if found is None or found.kind in (tuple, dict):
        known = [name for name, one in FIELDS.items() if one.kind not in (tuple, dict)]
        raise BadInput(f"results have no field {name[:80]!r}", hint=f"there are: {', '.join(known)}, tags.NAME")
    return found


def condition(where: Sequence[str]) -> tuple[str, dict[str, Value]]:
    """All of the filters, and their parameters."""
    if len(where) > _MOST_FILTERS:
        raise BadInput(f"{len(where)} filters; at most {_MOST_FILTERS} are allowed")
    params: dict[str, Value] = {}
    parts = [_one(text, params) for text in where]
    return " AND ".join(["1 = 1", *parts]), params


def _one(text: str, params: dict[str, Value]) -> str:
    found = _FILTER.fullmatch(text)
    if found is None:
        raise BadInput(f"{text[:80]!r} is no filter", hint=_EXAMPLE)
    name, op, given = found["field"].strip(), found["op"], found["value"]
    tag = name.removeprefix("tags.") if name.startswith("tags.") else ""
    sql, kind, _ = Field("result_tag.value") if tag else field(name)
    pattern, several = op in ("~", "!~"), op in ("=", "!=")
    if pattern and kind is not str:
        raise BadInput(f"{name} is a number and has no pattern", hint="compare it with =, <, <=, > or >=")
    holders = []
    for part in given.split("|") if several else [given]:
        holders.append(f":w{len(params)}")
        params[f"w{len(params)}"] = part.lower().translate(_LIKE) if pattern else _value(name, part, kind)
    if pattern:
        holds = f"lower({sql}) LIKE {holders[0]} ESCAPE '!'"
    else:
        holds = f"{sql} IN ({', '.join(holders)})" if several else f"{sql} {op} {holders[0]}"
    if tag:
        params[f"w{len(params)}"] = tag
        holds = (
            "EXISTS (SELECT 1 FROM result_tag WHERE result_tag.result = result.id "  # noqa: S608
            f"AND result_tag.name = :w{len(params) - 1} AND {holds})"
        )
    return f"NOT {holds}" if op.startswith("!") else holds


def _value(name: str, text: str, kind: type) -> str | int | float:
    try:
        value: str | int | float = kind(text)
    except ValueError:
        raise BadInput(f"{text[:80]!r} is no number, and {name} is one") from None
    return value


class Order(NamedTuple):
    """By one field, then by id; a page begins after the last of the page before."""

    name: str
    down: bool
    sql: str

    @classmethod
    def of(cls, text: str) -> "Order":
        name = text.removeprefix("-")
        return cls(name, text != name, field(name).sql)

    @property
    def by(self) -> str:
        way = "DESC" if self.down else "ASC"
        return f"ORDER BY {self.sql} {way}, result.id {way}"

    def after(self, page: str) -> tuple[str, dict[str, Value]]:
        if not page:
            return "1 = 1", {}
        try:
            value, id = msgspec.json.decode(base64.urlsafe_b64decode(page), type=tuple[str | int | float, str])
            value = field(self.name).kind(value)
        except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, ValueError):
            raise BadInput(f"{page[:80]!r} is no page of results") from None
        return f"({self.sql}, result.id) {'<' if self.down else '>'} (:page_value, :page_id)", {
            "page_value": value,
            "page_id": id,
        }

    @staticmethod
    def token(value: Any, id: str) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode((value, id))).decode()
