"""A table of field -> places, applied to a document. A bad value costs that value and leaves a note, never the rest.

Places are XPaths from the root, of names without namespaces: those of real documents are not those of their schemas.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec
from lxml import etree

from skep.storage.records.base import Field, FieldType, Kind, Value

# The fields of DataONE's index, once: what they hold, and how they are searched.

#: of what resource maps say: whose field names whom, and where the other one in turn names it
LINKS = {
    "documents": "isDocumentedBy",
    "hasPart": "isPartOf",
    "prov_wasDerivedFrom": "prov_hasDerivations",
    "prov_hasSources": "",
    "prov_hasDerivations": "",
    "prov_wasGeneratedBy": "prov_generated",
    "prov_generatedByProgram": "prov_generated",
    "prov_generatedByUser": "",
    "prov_usedByExecution": "prov_used",
    "prov_usedByProgram": "prov_used",
    "prov_usedByUser": "",
    "prov_wasExecutedByExecution": "",
    "prov_wasExecutedByUser": "",
    "prov_wasInformedBy": "",
    "prov_instanceOfClass": "",
}
#: by type; a star: holds several values
_NAMES: dict[FieldType, str] = {
    "text": "title abstract",
    "keyword": """
        identifier seriesId fileName mediaType formatId formatType checksum checksumAlgorithm submitter rightsHolder
        authoritativeMN datasource replicaMN* replicationStatus* preferredReplicationMN* blockedReplicationMN*
        obsoletes obsoletedBy readPermission* writePermission* changePermission* dataUrl
        resourceMap*
        author authorGivenName* authorSurName* authorLastName* origin* investigator* contactOrganization* keywords*
        project* funding* awardNumber* funderName* site* scientificName*
        kingdom* phylum* class* order* family* genus* species*
        attributeName* attributeLabel* attributeDescription* attributeUnit* licenseName* licenseUrl sem_annotation*
        serviceTitle* serviceDescription* serviceType* serviceEndpoint* serviceInput* serviceOutput* serviceCoupling*
        titlestr note*
        geohash_1 geohash_2 geohash_3 geohash_4 geohash_5 geohash_6 geohash_7 geohash_8 geohash_9""",
    "int": "size numberReplicas serialVersion",
    "bool": "isPublic archived replicationAllowed",
    "date": "dateUploaded dateModified updateDate replicaVerifiedDate* pubDate datePublished beginDate endDate",
    "float": "northBoundCoord southBoundCoord eastBoundCoord westBoundCoord",
}
#: words of these keywords are found as well, under another name
TEXTS = {f"{name}Text": name for name in ("origin", "keywords", "site", "project", "scientificName")}


def _declared() -> Iterator[Field]:
    for type, names in _NAMES.items():
        for name in names.split():
            yield Field(name.rstrip("*"), type, name.endswith("*"), faceted=type in ("keyword", "int", "bool"))
    for name in dict.fromkeys(filter(None, (*LINKS, *LINKS.values()))):
        yield Field(name, "keyword", many=True, faceted=True)
    for name in TEXTS:
        yield Field(name, "text", many=True, stored=False)
    yield Field("text", "text", stored=False)
    # who may read it: not what the policy says, which is readPermission, but what follows from it
    yield Field("readers", "keyword", many=True, stored=False)
    # which state of the object this is a record of
    yield Field("state", "keyword")
    # a number for each identifier, by which all records can be gone through in parts
    yield Field("place", "int", stored=False)


KIND = Kind("records", tuple(_declared()), words=("title", "abstract", "text"))
BY_NAME = {field.name: field for field in KIND.fields}
#: what callers neither see nor ask for
HIDDEN = frozenset(("readers", "state", "place"))
PLACES = 1 << 32


#: documents larger than this are found by their system metadata alone
MOST_BYTES = 32_000_000
#: of one field; the full text has more
_MOST_VALUES, _MOST_LETTERS = 2_000, 32_000
_MOST_TEXT = 1_000_000
_MOST_NOTES = 20

#: of lxml, which has no types
Element = Any
#: how the text of an element is read: as it stands, or by a function; None: this one says nothing
How = Callable[[Element], str | None]
Place = str | tuple[str, How]
Table = Mapping[str, Sequence[Place]]

_DATE = re.compile(
    r"(\d{4})(?:-?(\d\d)(?:-?(\d\d)(?:[T ](\d\d):?(\d\d)(?::?(\d\d)(\.\d+)?)?\s*(Z|[+-]\d\d:?\d\d)?)?)?)?"
    r"(?:Z|[+-]\d\d:\d\d)?",
    re.ASCII,
)
#: the years that a date can name, in seconds
_FIRST, _END = datetime.min.replace(tzinfo=UTC).timestamp(), datetime(9999, 12, 31, tzinfo=UTC).timestamp() + 86_400
#: where a document says several times what its record holds once
_LOWEST = {"beginDate", "southBoundCoord", "westBoundCoord"}
_HIGHEST = {"endDate", "northBoundCoord", "eastBoundCoord"}
_LIMITS = {"northBoundCoord": 90, "southBoundCoord": 90, "eastBoundCoord": 180, "westBoundCoord": 180}


class Read(msgspec.Struct):
    fields: dict[str, Value | list[Value]] = {}
    #: what was left out, and why
    notes: list[str] = []

    def note(self, text: str) -> None:
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text[:300])


def read(table: Table, body: bytes, tree: Callable[[bytes], Element] | None = None) -> Read:
    """`tree`: of what is no XML."""
    done = Read({}, [])
    try:
        root = (tree or document)(body)
    except ValueError as error:
        done.note(str(error))
        return done
    for name, places in {"text": ((".", whole),), **table}.items():
        field = BY_NAME[name]
        values = list(dict.fromkeys(_converted(done, field, _texts(done, name, root, places))))
        if values:
            done.fields[name] = _one(field, values) if not field.many else values[:_MOST_VALUES]
    _check_box(done)
    return done


def document(body: bytes) -> Element:
    """ValueError for what is no XML, or brings entities of its own: bombs, and files of whoever reads it."""
    if len(body) > MOST_BYTES:
        raise ValueError(f"the document has {len(body)} bytes; at most {MOST_BYTES} are read")
    try:
        root = etree.fromstring(body, etree.XMLParser(**SAFE, remove_comments=True, remove_pis=True))
    except (etree.XMLSyntaxError, ValueError) as error:
        raise ValueError(f"the document is no XML: {error}") from None
    inside = root.getroottree().docinfo.internalDTD
    if inside is not None and next(iter(inside.iterentities()), None) is not None:
        raise ValueError("the document declares entities, which are not read")
    if _path("boolean(.//*[namespace-uri()])")(root):
        for element in root.iter("*"):
            element.tag = element.tag.rpartition("}")[2]
    return root


SAFE = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}


def words(element: Element) -> str:
    """All text below, blanks as one."""
    text = "".join(element.itertext()) if len(element) else element.text or ""
    return " ".join(text.split())


def whole(element: Element) -> str:
    """For the full text: apart where elements are apart."""
    return " ".join(" ".join(element.itertext()).split())


def prose(element: Element) -> str:
    """Paragraphs as lines, where there are any."""
    lines = [] if (element.text or "").strip() else [words(one) for one in element]
    return "\n".join(lines) or words(element)


def child(element: Element, path: str) -> str:
    """The text of the first such element, or none."""
    found = element.find(path)
    return "" if found is None else words(found)


_path = cache(etree.XPath)


def _texts(done: Read, name: str, root: Element, places: Sequence[Place]) -> Iterable[str]:
    for place in places:
        path, how = (place, words) if isinstance(place, str) else place
        for element in _path(path)(root):
            try:
                text = how(element)
            except (ValueError, LookupError) as error:
                done.note(f"{name}: {error}")
            else:
                if text:
                    yield text


def _converted(done: Read, field: Field, texts: Iterable[str]) -> Iterable[Value]:
    for text in texts:
        try:
            yield _value(field, text)
        except ValueError as error:
            done.note(f"{field.name}: {error}")


def _value(field: Field, text: str) -> Value:
    if field.type == "date":
        return instant(text)
    if field.type == "float":
        number, limit = float(text), _LIMITS.get(field.name, math.inf)
        if not abs(number) <= limit:
            raise ValueError(f"{text[:100]!r} is no such coordinate")
        return number
    return text[: _MOST_TEXT if field.name == "text" else _MOST_LETTERS]


def _one(field: Field, values: list[Value]) -> Value:
    if field.name in _LOWEST:
        return min(values)
    if field.name in _HIGHEST:
        return max(values)
    if field.name == "abstract":
        return "\n".join(map(str, values))[:_MOST_LETTERS]
    return values[0]


def instant(text: str) -> float:
    """Seconds since 1970 of a date as people write it; without a zone it is UTC, without a day the first."""
    found = _DATE.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text[:100]!r} is no date")
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    date = datetime(int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), tzinfo=UTC)
    away = timedelta(0)
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "")
        away = (1 if zone[0] == "+" else -1) * timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    # (finer parts of the last second of all years would be rounded up, into a year that nobody can write)
    seconds = date.timestamp() - away.total_seconds() + int(second or 0) + float((fraction or "0")[:4])
    if not _FIRST <= seconds < _END:
        raise ValueError(f"{text[:100]!r} is in no year that can be written")
    return seconds


def _check_box(done: Read) -> None:
    """A box upside down is no box; its sides east and west may cross the date line."""
    south, north = done.fields.get("southBoundCoord"), done.fields.get("northBoundCoord")
    if isinstance(south, float) and isinstance(north, float) and south > north:
        done.note(f"southBoundCoord: {south} is north of {north}")
        for name in _LIMITS:
            done.fields.pop(name, None)
