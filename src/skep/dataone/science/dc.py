"""Dublin Core, simple and qualified: oai_dc, and the records of DataONE's own application profile."""

from skep.dataone.science.reading import Element, How, Table, words


def part(name: str) -> How:
    """`northlimit=5; units=…` and `start=2001; end=2002`: what DCMI writes into one element."""

    def of(element: Element) -> str | None:
        pieces = (piece.partition("=") for piece in words(element).split(";"))
        return next((value.strip() for key, _, value in pieces if key.strip().lower() == name), None)

    return of


def prose(element: Element) -> str | None:
    """What is written for people."""
    text = words(element)
    return None if "=" in text and ";" in text else text


_TIMES = (".//temporal", ".//coverage")
_BOXES = (".//spatial", ".//coverage")

DC: Table = {
    "title": (".//title",),
    "abstract": (".//abstract", ".//description"),
    "author": (".//creator",),
    "origin": (".//creator",),
    "investigator": (".//creator", ".//contributor"),
    "contactOrganization": (".//publisher",),
    "keywords": (".//subject",),
    "pubDate": (".//issued", ".//available", ".//created", ".//date"),
    "beginDate": tuple((path, part("start")) for path in _TIMES),
    "endDate": tuple((path, part("end")) for path in _TIMES),
    "northBoundCoord": tuple((path, part("northlimit")) for path in _BOXES),
    "southBoundCoord": tuple((path, part("southlimit")) for path in _BOXES),
    "eastBoundCoord": tuple((path, part("eastlimit")) for path in _BOXES),
    "westBoundCoord": tuple((path, part("westlimit")) for path in _BOXES),
    "site": tuple((path, prose) for path in _BOXES),
    "licenseName": (".//license", ".//rights"),
}
