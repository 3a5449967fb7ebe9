"""Resource maps (OAI-ORE in RDF/XML): which objects belong together, and which of them document which.

Read as it streams in: of a map with tens of thousands of members no more is kept than their names.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from urllib.parse import unquote

import msgspec
from lxml import etree

from skep.dataone.pids import LONGEST
from skep.dataone.science.reading import SAFE, Element

MOST_STATEMENTS = 500_000
#: of one kind, of what follows from statements
_MOST_DERIVED = 100_000
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
#: predicates by name, whatever their namespace says: (kind, is the subject the object)
_LINKS = {
    "aggregates": ("member", False),
    "isAggregatedBy": ("member", True),
    "documents": ("documents", False),
    "isDocumentedBy": ("documents", True),
    "hasPart": ("hasPart", False),
    "isPartOf": ("hasPart", True),
    "wasDerivedFrom": ("derived", False),
    "wasGeneratedBy": ("made", False),
    "used": ("used", False),
    "wasInformedBy": ("informed", False),
    "wasAssociatedWith": ("user", False),
    "qualifiedAssociation": ("association", False),
    "hadPlan": ("plan", False),
    "type": ("class", False),
}
#: of PROV and ProvONE: what makes others
_CLASSES = ("http://www.w3.org/ns/prov#", "http://purl.dataone.org/provone/")
#: paths of resolve and object URLs, behind which a name stands in one segment
_CALLS = ("/resolve/", "/object/", "/meta/")


Pairs = Collection[tuple[str, str]]


class ResourceMap(msgspec.Struct):
    members: list[str]
    #: by kind, which is one of `fields.LINKS`: who is linked to whom
    links: dict[str, list[tuple[str, str]]]


def resource_map(chunks: Iterable[bytes]) -> ResourceMap:
    """ValueError when it is no RDF/XML, or holds entities or too much."""
    names: dict[str, str] = {}
    links: dict[str, dict[tuple[str, str], None]] = {kind: {} for kind, _ in _LINKS.values()}
    said = 0
    try:
        for node in _nodes(chunks):
            subject = _name(node)
            if (class_ := node.tag[1:].replace("}", "")).startswith(_CLASSES):
                links["class"][subject, class_] = None
            for property in node:
                word = etree.QName(property).localname
                if word == "identifier" and property.text:
                    names[subject] = property.text.strip()
                elif word in _LINKS and (other := _target(property)):
                    kind, turned = _LINKS[word]
                    links[kind][(other, subject) if turned else (subject, other)] = None
                said += 1
            if said > MOST_STATEMENTS:
                raise ValueError(f"the map says more than {MOST_STATEMENTS} things")
    except etree.XMLSyntaxError as error:
        raise ValueError(f"the map is no XML: {error}") from None
    named = {kind: [(pid(names, one), pid(names, other)) for one, other in pairs] for kind, pairs in links.items()}
    members = dict.fromkeys(member for _, member in named["member"] if _possible(member))
    derived = {
        kind: list(dict.fromkeys(pair for pair in pairs if all(map(_possible, pair))))
        for kind, pairs in _derived(named).items()
    }
    return ResourceMap(list(members), derived)


def _possible(name: str) -> bool:
    """No object has a longer name, or one that holds a NUL; and not every database could keep it."""
    return len(name) <= LONGEST and "\0" not in name


def _derived(said: Mapping[str, Pairs]) -> dict[str, Pairs]:
    """What follows from the statements of a map: an execution stands between data, programs and people."""
    plans = _joined(said["association"], said["plan"])
    sources, after = said["derived"], [(old, new) for new, old in said["derived"]]
    return {
        "documents": said["documents"],
        "hasPart": said["hasPart"],
        "prov_wasDerivedFrom": sources,
        "prov_hasSources": _joined(said["documents"], sources),
        "prov_hasDerivations": _joined(said["documents"], after),
        "prov_wasGeneratedBy": said["made"],
        "prov_generatedByProgram": _joined(said["made"], plans),
        "prov_generatedByUser": _joined(said["made"], said["user"]),
        "prov_usedByExecution": [(data, run) for run, data in said["used"]],
        "prov_usedByProgram": _joined([(data, run) for run, data in said["used"]], plans),
        "prov_usedByUser": _joined([(data, run) for run, data in said["used"]], said["user"]),
        "prov_wasExecutedByExecution": [(program, run) for run, program in plans],
        "prov_wasExecutedByUser": _joined([(program, run) for run, program in plans], said["user"]),
        "prov_wasInformedBy": said["informed"],
        "prov_instanceOfClass": [pair for pair in said["class"] if pair[1].startswith(_CLASSES)],
    }


def _joined(left: Pairs, right: Pairs) -> Pairs:
    """(a, c) where there is a b with (a, b) and (b, c)."""
    if not left or not right:
        return []
    after: dict[str, list[str]] = {}
    for one, other in right:
        after.setdefault(one, []).append(other)
    pairs = ((one, far) for one, other in left for far in after.get(other, ()))
    return list(islice(pairs, _MOST_DERIVED))


def pid(names: dict[str, str], uri: str) -> str:
    """What the map itself calls it, else the name in its URL, else the URI."""
    if uri in names:
        return names[uri]
    path = next((uri.partition(call)[2] for call in _CALLS if call in uri), "")
    return unquote(path) or uri


def _nodes(chunks: Iterable[bytes]) -> Iterable[Element]:
    """Everything that is said something about. What was read goes: the parser would keep it."""
    parser = etree.XMLPullParser(events=("start", "end"), **SAFE, remove_comments=True, remove_pis=True)
    depth = 0
    for chunk in chunks:
        parser.feed(chunk)
        for event, element in parser.read_events():
            depth += 1 if event == "start" else -1
            if event == "start":
                if depth == 1 and element.getroottree().docinfo.internalDTD is not None:
                    raise ValueError("the map declares entities, which are not read")
                continue
            if depth % 2 == 1 and isinstance(element.tag, str):
                yield element
            if depth == 1:
                element.clear()
                while element.getprevious() is not None:
                    del element.getparent()[0]
    parser.close()


def _name(node: Element) -> str:
    return str(node.get(f"{_RDF}about") or node.get(f"{_RDF}ID") or node.get(f"{_RDF}nodeID") or "")


def _target(property: Element) -> str:
    """The resource it names, or describes in place."""
    named = property.get(f"{_RDF}resource") or property.get(f"{_RDF}nodeID")
    return str(named or (_name(property[0]) if len(property) else ""))
