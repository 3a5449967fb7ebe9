"""Documents from and to XML, by the structs in `types`. Whoever sends one may be hostile: there are no DTDs, no
entities, and bounds for size and depth."""

import re
import secrets
from calendar import monthrange
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.parser import BytesParser
from email.policy import HTTP
from functools import cache, lru_cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape, quoteattr

import msgspec
from lxml import etree

from skep.base.errors import BadInput
from skep.dataone import types as d1

# multipart/form-data, as DataONE's calls carry it: short values and whole documents as parts.


def read_form(media: str, body: bytes) -> dict[str, bytes]:
    """Parts by name; of several with one name the first. BadInput when it is no form."""
    if not media.lower().startswith("multipart/form-data"):
        raise BadInput(f"the body is {media[:100]!r}", hint="send multipart/form-data")
    try:
        parts = _parts(b"content-type: " + media.encode("latin-1", "replace") + b"\r\n\r\n" + body)
    except (LookupError, ValueError, AttributeError, TypeError):
        # so the parser stumbles over some headers, instead of saying that they are bad
        raise BadInput("the form cannot be read", hint="is each part's content-disposition a proper one?") from None
    if not parts:
        raise BadInput("the form has no parts", hint="is its boundary the one that its content-type names?")
    return parts


def _parts(message: bytes) -> dict[str, bytes]:
    whole = BytesParser(policy=HTTP).parsebytes(message)
    parts: dict[str, bytes] = {}
    for part in whole.iter_parts() if whole.is_multipart() else ():
        name = part.get_param("name", header="content-disposition")
        payload = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(payload, bytes):
            parts.setdefault(name, payload)
    return parts


def write_form(parts: Mapping[str, str | bytes]) -> tuple[str, bytes]:
    """Its media type and body; bytes travel as files, text as values."""
    boundary = secrets.token_hex(16)
    lines: list[bytes] = []
    for name, value in parts.items():
        file = f'; filename="{name}.xml"\r\nContent-Type: text/xml' if isinstance(value, bytes) else ""
        data = value if isinstance(value, bytes) else value.encode()
        lines += [f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n'.encode(), data]
    return f"multipart/form-data; boundary={boundary}", b"\r\n".join([*lines, f"--{boundary}--\r\n".encode()])


# Identifiers in paths. They are opaque: never normalised, encoded once, and one segment whatever they hold.

LONGEST = 800
_BLANK = re.compile(r"[\s\x00-\x1f\x7f]")
_SAFE = ":@$!*()',~&="


def check(pid: str) -> str:
    """BadInput when it cannot be an identifier."""
    if not pid or len(pid) > LONGEST or _BLANK.search(pid):
        raise BadInput(f"{pid[:80]!r} is no identifier", hint="1 to 800 characters, none of them blank")
    return pid


@lru_cache(1_000)  # each is asked for twice
def encode(pid: str) -> str:
    """As one segment of a path. Dots alone would be taken for a folder."""
    return quote(pid, safe=_SAFE) if pid not in (".", "..") else pid.replace(".", "%2E")


def decode(segment: str) -> str:
    """BadInput when the segment holds no identifier."""
    try:
        return check(unquote(segment, errors="strict"))
    except UnicodeDecodeError:
        raise BadInput(f"{segment[:80]!r} is not UTF-8") from None


LARGEST = 10 << 20
_NAMESPACE = "http://ns.dataone.org/service/types/"
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: milliseconds: the years that a document can name
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999
#: what a database, and whoever reads a document, can hold
_MOST = (1 << 63) - 1
#: refuses more than 256 elements within each other, texts of more than 10 MB, and whatever grows while it is read
_PARSER = etree.XMLParser(
    resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_comments=True, remove_pis=True
)
T = TypeVar("T", bound=d1.Doc)

#: class -> its root element, and whether version 2 has a type of its own for it
ROOTS: Mapping[type[d1.Doc], tuple[str, bool]] = {
    d1.SystemMetadata: ("systemMetadata", True),
    d1.Node: ("node", True),
    d1.NodeList: ("nodeList", True),
    d1.ObjectFormat: ("objectFormat", True),
    d1.ObjectFormatList: ("objectFormatList", True),
    d1.ObjectList: ("objectList", False),
    d1.ObjectLocationList: ("objectLocationList", False),
    d1.Checksum: ("checksum", False),
    d1.ChecksumAlgorithmList: ("checksumAlgorithmList", False),
    d1.Identifier: ("identifier", False),
    d1.Replica: ("replica", False),
    d1.ReplicationPolicy: ("replicationPolicy", False),
    d1.AccessPolicy: ("accessPolicy", False),
}


class _Field(NamedTuple):
    #: of the struct
    name: str
    #: in the document
    word: str
    place: Literal["attribute", "text", "element", "aside"]
    read: Callable[[str], Any]
    show: Callable[[Any], str]
    part: type[d1.Doc] | None
    many: bool
    required: bool
    v2: bool
    #: it is nothing but its parts
    list: bool


class _Plan(NamedTuple):
    """Of a struct, worked out once."""

    #: in order
    whole: tuple[_Field, ...]
    by_word: dict[str, _Field]
    #: attributes and text
    others: tuple[_Field, ...]
    #: names
    many: frozenset[str]
    required: frozenset[str]
    #: where it is said what could not be read; empty: then none of it is
    aside: str


def parse(kind: type[T], data: bytes, *, largest: int = LARGEST) -> T:
    """BadInput says what is wrong with it."""
    if len(data) > largest:
        raise BadInput(f"the document has more than {largest} bytes")
    root = _tree(data)
    word, _ = ROOTS.get(kind, ("error", False))
    namespace, _, name = root.tag.rpartition("}")
    if name != word or not (kind is d1.D1Error or namespace.startswith(f"{{{_NAMESPACE}")):
        raise BadInput(f"this is no {word} of DataONE, but {root.tag[:160]}")
    return _build(kind, root)


def render(value: d1.Doc, version: int = 2) -> bytes:
    """As a document of this version, valid by its schema."""
    word, own = ROOTS.get(type(value), ("error", False))
    parts = ['<?xml version="1.0" encoding="UTF-8"?>\n']
    if isinstance(value, d1.D1Error):
        _write(value, word, "", version, parts)
    else:
        namespace = _NAMESPACE + ("v2.0" if own and version == 2 else "v1")
        _write(value, f"d1:{word}", f' xmlns:d1="{namespace}"', version, parts)
    return printable("".join(parts)).encode()


def printable(text: str) -> str:
    """What XML cannot hold becomes a mark."""
    return _UNPRINTABLE.sub("\ufffd", text)


def read_time(text: str) -> int:
    """Milliseconds since 1970; without a zone it is UTC. What is finer is cut off."""
    try:
        time = datetime.fromisoformat(text.strip())
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
        found = (time - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        found = _LAST + 1
    if not _FIRST <= found <= _LAST:
        raise BadInput(f"{text[:40]!r} is no time", hint="such as 2026-01-31T12:00:00.000Z")
    return found


def show_time(time: int) -> str:
    return (_EPOCH + timedelta(milliseconds=time)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _tree(data: bytes) -> Any:
    """The root. Elements below may be qualified or not: their names are unique."""
    try:
        root = etree.fromstring(data, _PARSER)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise BadInput(f"this is not XML: {error}") from None
    if root.getroottree().docinfo.doctype:
        raise BadInput("a document with a DOCTYPE is not read", hint="DataONE's documents have none")
    return root


def _build(kind: type[T], element: Any) -> T:
    """No schema knows empty texts, nor lists of nothing: they are as good as not there."""
    found: dict[str, Any] = {}
    plan = _plan(kind)
    for child in element:
        field = plan.by_word.get(child.tag) or plan.by_word.get(child.tag.rpartition("}")[2])
        if field is None or (field.list and not len(child)):
            continue
        try:
            value = _build(field.part, child) if field.part else field.read(child.text or "")
        except BadInput as error:
            if not plan.aside:
                raise
            first = (child[0].text or "").strip() if len(child) else ""
            found.setdefault(plan.aside, []).append(f"{first[:100]!r}: {error.message}")
            continue
        if not field.part and value == "":
            continue
        if field.many:
            found.setdefault(field.name, []).append(value)
        else:
            found[field.name] = value
    for field in plan.others:
        if field.place == "text":
            found[field.name] = field.read(element.text or "")
        elif field.place == "attribute" and (given := element.get(field.word)) is not None:
            found[field.name] = field.read(given)
    for name in plan.many & found.keys():
        found[name] = tuple(found[name])
    if missing := plan.required - found.keys():
        words = ", ".join(field.word for field in plan.whole if field.name in missing)
        raise BadInput(f"<{etree.QName(element).localname[:80]}> has no {words}")
    return kind(**found)


def _write(value: d1.Doc, word: str, more: str, version: int, parts: list[str]) -> None:
    inner: list[str] = []
    for field in _plan(type(value)).whole:
        given = getattr(value, field.name)
        if given is None or field.place == "aside" or (field.v2 and version < 2):
            continue
        if field.place == "attribute":
            more += f" {field.word}={quoteattr(field.show(given))}"
        elif field.place == "text":
            inner.append(escape(field.show(given)))
        else:
            for one in given if field.many else (given,):
                if field.part:
                    _write(one, field.word, "", version, inner)
                else:
                    inner.append(f"<{field.word}>{escape(field.show(one))}</{field.word}>")
    parts += (f"<{word}{more}>", *inner, f"</{word}>") if inner else (f"<{word}{more}/>",)


@cache
def _plan(kind: type[d1.Doc]) -> _Plan:
    hints = get_type_hints(kind, include_extras=True)
    whole = tuple(_field(one, hints[one.name]) for one in msgspec.structs.fields(kind))
    return _Plan(
        whole,
        {field.word: field for field in whole if field.place == "element"},
        tuple(field for field in whole if field.place != "element"),
        frozenset(field.name for field in whole if field.many),
        frozenset(field.name for field in whole if field.required),
        next((field.name for field in whole if field.place == "aside"), ""),
    )


def _field(one: msgspec.structs.FieldInfo, hint: Any) -> _Field:
    marks: dict[str, Any] = {}
    many = False
    while True:
        if get_origin(hint) is Annotated:
            for meta in hint.__metadata__:
                marks |= meta.extra
            hint = hint.__origin__
        elif get_origin(hint) in (Union, UnionType):
            hint = next(option for option in get_args(hint) if option is not type(None))
        elif get_origin(hint) is tuple:
            hint, many = get_args(hint)[0], True
        else:
            break
    part = hint if isinstance(hint, type) and issubclass(hint, d1.Doc) else None
    read, show = _SIMPLE.get(marks.get("as", hint)) or (_chooser(get_args(hint)), str)
    place = marks.get("xml", "element")
    list = part is not None and all(inner.place == "element" for inner in _plan(part).whole)
    return _Field(one.name, one.encode_name, place, read, show, part, many, one.required, "v2" in marks, list)


def _whole(text: str) -> int:
    try:
        if 0 <= (number := int(text)) <= _MOST and "_" not in text and text.isascii():
            return number
    except ValueError:
        pass
    raise BadInput(f"{text[:40]!r} is no whole number that can be kept")


def _truth(text: str) -> bool:
    if (word := text.strip()) in ("true", "1", "false", "0"):
        return word in ("true", "1")
    raise BadInput(f"{text[:40]!r} is neither true nor false")


def _chooser(options: tuple[str, ...]) -> Callable[[str], str]:
    def choose(text: str) -> str:
        if (word := text.strip()) not in options:
            raise BadInput(f"{word[:40]!r} is none of {', '.join(options)}")
        return word

    return choose


_SIMPLE: dict[Any, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    "time": (read_time, show_time),
    "pid": (check, str),
    int: (_whole, str),
    bool: (_truth, lambda value: "true" if value else "false"),
    str: (str.strip, str),
}


# Dates as Solr reads and writes them. Pure.

_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_SECONDS = (0, 0, 86_400, 3_600, 60, 1)
_STEP = re.compile(rf"([+-](?=\d)|/)(\d{{0,6}})({'|'.join(_UNITS)})S?")
_MOMENT = re.compile(rf"(?P<from>NOW|\d{{4}}-\d\d-\d\dT[\d:.]+Z)(?P<steps>(?:{_STEP.pattern})*)")


def instant(seconds: float) -> str:
    """As Solr writes it."""
    date = datetime.fromtimestamp(seconds, UTC)
    return date.isoformat(timespec="milliseconds" if date.microsecond else "seconds").replace("+00:00", "Z").zfill(20)


def moment(text: str, now: float) -> str:
    """`NOW-1MONTH/DAY` as a date; what is none stays."""
    found = _MOMENT.fullmatch(text)
    if not found or not (found["steps"] or found["from"] == "NOW"):
        return text
    try:
        return instant(_stepped(now if found["from"] == "NOW" else read_time(found["from"]) / 1000, found["steps"]))
    except (ValueError, OverflowError):
        raise BadInput(f"{text[:40]!r} is no date") from None


def _stepped(seconds: float, steps: str) -> float:
    """`+1MONTH` goes on, `/DAY` back to the beginning of it."""
    date = datetime.fromtimestamp(seconds, UTC)
    for way, count, unit in _STEP.findall(steps):
        place = _UNITS.index(unit)
        if way == "/":
            parts = (*date.timetuple()[: place + 1], 1, 1)[: max(3, place + 1)]
            date = datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]  # year to second
        elif place > 1:
            date += timedelta(seconds=int(way + count) * _SECONDS[place])
        else:
            months = date.year * 12 + date.month - 1 + int(way + count) * (1 if place else 12)
            year, month = months // 12, months % 12 + 1
            date = date.replace(year=year, month=month, day=min(date.day, monthrange(year, month)[1]))
    return date.timestamp()
