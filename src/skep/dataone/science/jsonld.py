"""A Dataset of schema.org in JSON-LD: read as a tree whose elements are its keys, without their prefixes."""

import re
from typing import Any

import msgspec
from lxml import etree

from skep.dataone.science.datacite import corner, interval
from skep.dataone.science.reading import MOST_BYTES, Element, Table, child, words

_MOST_DEPTH = 50
_STRANGE = re.compile(r"^[^A-Za-z_]|[^\w.-]", re.ASCII)
_CONTROLS = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def dataset(body: bytes) -> Element:
    """ValueError when there is none."""
    if len(body) > MOST_BYTES:
        raise ValueError(f"the document has {len(body)} bytes; at most {MOST_BYTES} are read")
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"the document is no JSON: {error}") from None
    graph = said.get("@graph", said) if isinstance(said, dict) else said
    nodes = [one for one in (graph if isinstance(graph, list) else [graph]) if isinstance(one, dict)]
    found = next((one for one in nodes if "Dataset" in str(one.get("@type"))), None)
    if found is None:
        raise ValueError("there is no Dataset in it")
    root = etree.Element("Dataset")
    _fill(root, found, 0)
    return root


def _fill(into: Element, value: Any, depth: int) -> None:
    if depth > _MOST_DEPTH:
        raise ValueError("the document is nested too deeply")
    if not isinstance(value, dict):
        into.text = "" if value is None else _CONTROLS.sub(" ", str(value))
        return
    for key, inside in value.items():
        if key in ("@value", "@list", "@set") and not isinstance(inside, list):
            _fill(into, inside, depth + 1)
            continue
        name = _STRANGE.sub("_", key.rpartition(":")[2].rpartition("/")[2]) or "_"
        # keywords are often one text
        several = inside.split(",") if name == "keywords" and isinstance(inside, str) else inside
        while isinstance(several, dict) and several.keys() & {"@list", "@set"}:
            several = several.get("@list", several.get("@set"))
        for one in several if isinstance(several, list) else [several]:
            _fill(etree.SubElement(into, name), one, depth + 1)


def named(element: Element) -> str:
    """A person, an organisation or a term: by its name, or the text that stands for it."""
    whole = " ".join(filter(None, (child(element, "givenName"), child(element, "familyName"))))
    return child(element, "name") or whole or ("" if len(element) else words(element))


_WHERE = "spatialCoverage"
_BOX = f"{_WHERE}//box"

SCHEMA_ORG: Table = {
    "title": ("name",),
    "abstract": ("description", "abstract"),
    "author": (("creator", named), ("author", named)),
    "authorGivenName": ("creator/givenName", "author/givenName"),
    "authorSurName": ("creator/familyName", "author/familyName"),
    "origin": (("creator", named), ("author", named)),
    "investigator": (("creator", named), ("author", named)),
    "contactOrganization": (("publisher", named), ("provider", named)),
    "keywords": (("keywords", named),),
    "project": ("funding/name",),
    "funderName": (("funder", named), ("funding/funder", named)),
    "awardNumber": ("funding/identifier",),
    "pubDate": ("datePublished", "dateCreated"),
    "beginDate": (("temporalCoverage", interval(0)),),
    "endDate": (("temporalCoverage", interval(1)),),
    "southBoundCoord": ((_BOX, corner(0)), f"{_WHERE}//latitude"),
    "westBoundCoord": ((_BOX, corner(1)), f"{_WHERE}//longitude"),
    "northBoundCoord": ((_BOX, corner(2)), f"{_WHERE}//latitude"),
    "eastBoundCoord": ((_BOX, corner(3)), f"{_WHERE}//longitude"),
    "site": ((_WHERE, named),),
    "attributeName": (("variableMeasured", named),),
    "attributeDescription": ("variableMeasured/description",),
    "attributeUnit": ("variableMeasured/unitText",),
    "licenseUrl": ("license/url", "license/_id", "license[not(*)]"),
    "licenseName": ("license/name",),
}
