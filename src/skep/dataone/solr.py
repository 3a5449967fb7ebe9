"""What clients of DataONE ask a Solr server, asked of records; and its answers. Pure.

Lucene's language becomes ours (engines/records/query.py). Words side by side must all be there, as with `AND`.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from io import StringIO
from xml.sax.saxutils import escape, quoteattr

import msgspec

from skep.base.errors import BadInput
from skep.dataone.encoding import instant, moment, printable
from skep.dataone.science_reader import BY_NAME, HIDDEN
from skep.storage.records.base import MOST_DEPTH, Found, Value

Params = Sequence[tuple[str, str]]
#: every record has it
_EVERYTHING = "identifier:*"
_FACETS, _MOST_FACETS = 100, 1_000
#: what Solr would do with these, and we do not, would be missed in the answer
_NOT_OFFERED = (
    *("group", "stats", "hl", "facet.range", "facet.pivot", "facet.interval", "facet.missing", "facet.offset"),
    *("facet.matches", "facet.excludeTerms", "json.facet", "json.nl"),
)
#: unless this is said of it
_USUAL = ("false", "0", "flat", "")
_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<all>\*:\*)
    |(?P<field>(?:[A-Za-z_]\w*):)(?!\s|$)
    |(?P<quoted>"(?:[^"\\]|\\.)*")(?:[~^][\d.]*)?
    |(?P<range>[\[{]\s*(?P<low>"[^"]*"|\S+)\s+TO\s+(?P<high>"[^"]*"|[^\s\]}]+)\s*[\]}])(?:\^[\d.]*)?
    |(?P<mark>[()]|&&|\|\||[!+-](?=\S))(?:(?<=\))\^[\d.]*)?
    |(?P<word>(?:\\.|[^\s()"\\^~])+)(?:[~^][\d.]*)?""",
    re.VERBOSE,
)
_MARKS = {"&&": " and ", "||": " or ", "!": " -", "+": " ", "-": " -", "(": "(", ")": ")"}
_HAS_ID = re.compile(r"(?<![\w:])id:(?:\*(?=[\s)]|$)|[\[{]\s*\*\s+TO\s+\*\s*[\]}])")
#: (what has a colon would name a field, and what begins with a minus be excluded)
_BARE = re.compile(r"(?!-)[\w./#%@=,;'$-]+")
_LETTER = re.compile(r"\\.|.")


class Facets(msgspec.Struct, frozen=True):
    """Which values of which fields are counted, and in which order they are shown."""

    fields: tuple[str, ...] = ()
    limit: int = _FACETS
    least: int = 1
    prefix: str = ""
    contains: str = ""
    fold: bool = False
    by_name: bool = False

    @property
    def size(self) -> int:
        """So many values are looked at: all of them, where some are chosen by name."""
        return _MOST_FACETS if self.prefix or self.contains or self.by_name else max(1, self.limit)

    def shown(self, counted: Sequence[tuple[Value, int]]) -> list[tuple[Value, int]]:
        found = [one for one in counted if one[1] >= self.least and self._chosen(str(one[0]))]
        return (sorted(found, key=lambda one: str(one[0])) if self.by_name else found)[: self.limit]

    def _chosen(self, value: str) -> bool:
        part, whole = (self.contains.lower(), value.lower()) if self.fold else (self.contains, value)
        return value.startswith(self.prefix) and part in whole


class Asked(msgspec.Struct, frozen=True):
    """`text` in our own language."""

    text: str
    start: int
    rows: int
    sort: str
    fields: tuple[str, ...]
    wt: str
    facets: Facets
    facet_queries: tuple[str, ...]
    params: dict[str, str]


def asked(params: Params, now: float) -> Asked:
    """BadInput for what Solr would understand and we do not."""
    given = dict(params)

    def every(name: str) -> list[str]:
        return [value for key, value in params if key == name]

    wt = given.get("wt", "xml")
    if wt not in ("json", "xml", "csv"):
        raise BadInput(f"answers cannot be written as {wt[:20]!r}", hint="wt is json, xml or csv")
    if "cursorMark" in given:
        raise BadInput("there are no cursors", hint=f"leaf with `start`, up to {MOST_DEPTH} records; narrow the query")
    alone = (name for name in given if name.startswith("f."))  # of one field only
    if refused := [name for name in (*_NOT_OFFERED, *alone) if given.get(name, "") not in _USUAL]:
        raise BadInput(f"`{refused[0]}` is not offered", hint="count by facet.field and facet.query")
    if given.get("q.op", "AND").upper() != "AND":
        raise BadInput("words side by side must all be there", hint="write OR between them instead of `q.op`")
    fields = tuple(name for value in every("fl") for name in re.split(r"[,\s]+", value) if name)
    if strange := [name for name in fields if not re.fullmatch(r"[\w*?]+", name)]:
        raise BadInput(f"{strange[0][:40]!r} is no field", hint="`fl` names fields, also by * and ?")
    queries = [given.get("q") or "*:*", *every("fq")]
    facet = given.get("facet") in ("true", "on")
    if len(every("facet.query")) > _MOST_FACETS:
        raise BadInput(f"at most {_MOST_FACETS} queries are counted at once")
    return Asked(
        " ".join(f"({ours(text, now)})" for text in queries),
        _number(given, "start", 0),
        _number(given, "rows", 10),
        _sort(given.get("sort", "")),
        fields,
        wt,
        _facets(given, every("facet.field")) if facet else Facets(),
        tuple(every("facet.query")) if facet else (),
        given,
    )


def _facets(given: Mapping[str, str], fields: Sequence[str]) -> Facets:
    limit = _MOST_FACETS if given.get("facet.limit") == "-1" else _number(given, "facet.limit", _FACETS)
    return Facets(
        tuple(name for value in fields for name in value.split(",")),
        limit,
        max(1, _number(given, "facet.mincount", 1)),
        given.get("facet.prefix", ""),
        given.get("facet.contains", ""),
        given.get("facet.contains.ignoreCase") == "true",
        given.get("facet.sort") == "index",
    )


def ours(text: str, now: float) -> str:
    """Lucene's language in ours."""
    if text.lstrip().startswith("{!"):
        raise BadInput("parameters inside a query are not offered", hint="`{!…}` chooses another parser")
    text = _HAS_ID.sub(_EVERYTHING, text)
    made: list[str] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found:
            raise BadInput(f"the query cannot be read from {text[at : at + 40]!r} on", column=at + 1)
        at = found.end()
        made.append(_piece(found, made[-1] if made else "", now))
    return "".join(made).strip() or _EVERYTHING


def _piece(found: re.Match[str], before: str, now: float) -> str:
    match found.lastgroup:
        case "space":
            return " "
        case "all":
            return _EVERYTHING
        case "field":
            return found["field"]
        case "quoted":
            return found["quoted"]
        case "range":
            low, high = (_exact(moment(_plain(found[name].strip('"')), now)) for name in ("low", "high"))
            whole = found["range"]
            if low == high == "*" and before.endswith(":"):
                return "* "
            return f"{whole[0]}{low} TO {high}{whole[-1]}"
        case "mark":
            return _MARKS[found["mark"]]
    return _word(found["word"], before)


def _exact(text: str) -> str:
    """A second is its beginning, for Solr; for us it is all of it."""
    return re.sub(r"(T\d\d:\d\d:\d\d)Z$", r"\1.000Z", text)


def _word(word: str, before: str) -> str:
    """Quoted where it holds what our language would read otherwise."""
    if word in ("AND", "OR", "NOT"):
        return f"{word.lower()} "  # a group may follow at once
    if word == "*":
        return "*" if before.endswith(":") else _EVERYTHING
    plain = _plain(word)
    if plain == word and word.endswith(":"):
        raise BadInput(f"nothing follows `{word[:40]}`", hint="write \\: for a colon inside a word")
    letters = _LETTER.findall(word)
    if "*" in letters or "?" in letters:
        return "".join(one if one in ("*", "?") else re.sub(r"\W", r"\\\g<0>", one[-1]) for one in letters)
    return plain if _BARE.fullmatch(plain) else _quoted(plain)


def _quoted(plain: str) -> str:
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _number(given: Mapping[str, str], name: str, usual: int) -> int:
    text = given.get(name) or str(usual)
    if not text.isascii() or not text.isdecimal() or len(text) > 10:
        raise BadInput(f"{name} is a whole number, not {text[:40]!r}")
    return int(text)


def _sort(text: str) -> str:
    """Nothing is told apart by what comes after the score. Titles are sorted as a whole."""
    orders: list[str] = []
    for one in filter(None, map(str.strip, text.split(","))):
        name, _, way = one.partition(" ")
        if name == "score":
            break
        if way.strip().lower() not in ("asc", "desc"):
            raise BadInput(f"{one[:40]!r} is no order", hint="such as `dateUploaded desc, id asc`")
        orders.append(("-" if way.strip().lower() == "desc" else "") + {"title": "titlestr"}.get(name, name))
    return ",".join(orders)


# answers


class Answer(msgspec.Struct):
    found: Sequence[Found]
    total: int
    facets: Mapping[str, Sequence[tuple[Value, int]]]
    queries: Mapping[str, int]
    milliseconds: int


def render(ask: Asked, answer: Answer) -> tuple[str, bytes]:
    """Its media type and body."""
    docs = [dict(_values(ask, one)) for one in answer.found]
    if ask.wt == "csv":
        return "text/csv", _csv(ask, docs).encode("utf-8", "replace")
    if ask.wt == "json":
        return "application/json", _json(ask, answer, docs)
    return "text/xml", _xml(ask, answer, docs).encode("utf-8", "replace")


def _values(ask: Asked, one: Found) -> Iterator[tuple[str, object]]:
    for name, value in {"id": one.id, **one.values, "score": one.score}.items():
        if name in HIDDEN or not _wanted(ask, name):
            continue
        field = BY_NAME.get(name)
        dated = field is not None and field.type == "date"
        if isinstance(value, list):
            yield name, [instant(float(each)) if dated else each for each in value]
        else:
            yield name, instant(float(value)) if dated else value


def _wanted(ask: Asked, name: str) -> bool:
    """The score by its name only."""
    fits = not ask.fields or any(fnmatchcase(name, one) for one in ask.fields)
    return name in ask.fields if name == "score" else fits


def _csv(ask: Asked, docs: Sequence[Mapping[str, object]]) -> str:
    """A column for each field that was asked for, or that any record has; several values have commas between."""
    named = [name for name in ask.fields if not set(name) & set("*?[")]
    columns = dict.fromkeys([*named, *(name for doc in docs for name in doc)])
    file = StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(columns)
    for doc in docs:
        rows.writerow([_cell(doc.get(name, "")) for name in columns])
    return file.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ",".join(_cell(one).replace("\\", "\\\\").replace(",", "\\,") for one in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json(ask: Asked, answer: Answer, docs: Sequence[Mapping[str, object]]) -> bytes:
    body: dict[str, object] = {
        "responseHeader": {"status": 0, "QTime": answer.milliseconds, "params": ask.params},
        "response": {"numFound": answer.total, "start": ask.start, "docs": docs},
    }
    if ask.facets.fields or ask.facet_queries:
        fields = {name: [part for pair in counted for part in pair] for name, counted in answer.facets.items()}
        body["facet_counts"] = {"facet_queries": answer.queries, "facet_fields": fields}
    return msgspec.json.encode(body)


def _xml(ask: Asked, answer: Answer, docs: Sequence[Mapping[str, object]]) -> str:
    header = [_leaf("status", 0), _leaf("QTime", answer.milliseconds), _list("params", _leaves(ask.params))]
    shown = "".join(f"<doc>{''.join(_leaves(doc))}</doc>" for doc in docs)
    parts = [_list("responseHeader", header)]
    parts.append(f'<result name="response" numFound="{answer.total}" start="{ask.start}">{shown}</result>')
    if ask.facets.fields or ask.facet_queries:
        fields = [
            _list(name, (_leaf(str(value), count) for value, count in counted))
            for name, counted in answer.facets.items()
        ]
        counts = [_list("facet_queries", _leaves(answer.queries)), _list("facet_fields", fields)]
        parts.append(_list("facet_counts", counts))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<response>{"".join(parts)}</response>'


def _leaves(values: Mapping[str, object]) -> Iterable[str]:
    return (_leaf(name, value) for name, value in values.items())


def _list(name: str, parts: Iterable[str]) -> str:
    return f"<lst name={quoteattr(printable(name))}>{''.join(parts)}</lst>"


def _leaf(name: str, value: object) -> str:
    named = f" name={quoteattr(printable(name))}" if name else ""
    if isinstance(value, list):
        return f"<arr{named}>{''.join(_leaf('', one) for one in value)}</arr>"
    kind = {bool: "bool", int: "long", float: "float"}.get(type(value), "str")
    if kind == "str" and (field := BY_NAME.get(name)) and field.type == "date":
        kind = "date"
    text = str(value).lower() if kind == "bool" else printable(str(value))
    return f"<{kind}{named}>{escape(text)}</{kind}>"
