"""Resource maps (OAI-ORE in RDF/XML): which objects belong together, and which of them document which.

Read as it streams in: of a map with tens of thousands of members no more is kept than their names.
"""

from collections.abc import Iterable
from urllib.parse import unquote

import msgspec
from lxml import etree

from skep.dataone.science.reading import SAFE, Element

MOST_STATEMENTS = 500_000
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
#: predicates by name, whatever their namespace says: (kind, is the subject the object)
_LINKS = {
    "aggregates": ("aggregates", False),
    "isAggregatedBy": ("aggregates", True),
    "documents": ("documents", False),
    "isDocumentedBy": ("documents", True),
}
#: paths of resolve and object URLs, behind which a name stands in one segment
_CALLS = ("/resolve/", "/object/", "/meta/")


class ResourceMap(msgspec.Struct):
    members: list[str]
    #: (metadata, data)
    documents: list[tuple[str, str]]


def resource_map(chunks: Iterable[bytes]) -> ResourceMap:
    """ValueError when it is no RDF/XML, or holds entities or too much."""
    names: dict[str, str] = {}
    links: dict[tuple[str, str, str], None] = {}
    try:
        for node in _nodes(chunks):
            subject = _name(node)
            for property in node:
                word = etree.QName(property).localname
                if word == "identifier" and property.text:
                    names[subject] = property.text.strip()
                elif word in _LINKS and (other := _target(property)):
                    kind, turned = _LINKS[word]
                    links[(kind, other, subject) if turned else (kind, subject, other)] = None
            if len(links) + len(names) > MOST_STATEMENTS:
                raise ValueError(f"the map says more than {MOST_STATEMENTS} things")
    except etree.XMLSyntaxError as error:
        raise ValueError(f"the map is no XML: {error}") from None
    return ResourceMap(
        list(dict.fromkeys(pid(names, other) for kind, _, other in links if kind == "aggregates")),
        [(pid(names, one), pid(names, other)) for kind, one, other in links if kind == "documents"],
    )


def pid(names: dict[str, str], uri: str) -> str:
    """What the map itself calls it, else the name in its URL, else the URI."""
    if uri in names:
        return names[uri]
    path = next((uri.partition(call)[2] for call in _CALLS if call in uri), "")
    return unquote(path) or uri


def _nodes(chunks: Iterable[bytes]) -> Iterable[Element]:
    """Everything that is said something about. What was read goes: the parser would keep it."""
    parser = etree.XMLPullParser(events=("start", "end"), **SAFE)
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
