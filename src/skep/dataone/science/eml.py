"""EML 2.0 to 2.2: the element `dataset`, whose paths have not changed since 2.0."""

from skep.dataone.science.reading import Element, How, Table, child, prose, whole, words

_COVERAGE = "dataset/coverage"
_TIME = f"{_COVERAGE}/temporalCoverage"
_BOX = f"{_COVERAGE}/geographicCoverage/boundingCoordinates"
_TAXON = f"{_COVERAGE}/taxonomicCoverage//taxonomicClassification"


def person(element: Element) -> str:
    """`Ada B. Lovelace`, from an individualName."""
    names = [words(one) for part in ("givenName", "surName") for one in element.iterfind(part)]
    return " ".join(filter(None, names))


def party(element: Element) -> str:
    """A person's name, else that of the organisation or position."""
    individual = element.find("individualName")
    name = "" if individual is None else person(individual)
    return name or child(element, "organizationName") or child(element, "positionName")


def ranked(rank: str, name: str = "taxonRankName", value: str = "taxonRankValue") -> How:
    return lambda one: child(one, value) if child(one, name).lower() == rank else None


def species(element: Element) -> str | None:
    """With its genus, which stands one level higher."""
    name, above = ranked("species")(element), element.getparent()
    genus = ranked("genus")(above) if above is not None else None
    return f"{genus} {name}" if name and genus and " " not in name else name


def text(element: Element) -> str:
    """Everything but the descriptions of tables, which drown the rest."""
    return " ".join(whole(one) for one in element if one.tag != "dataTable")


EML: Table = {
    "title": ("dataset/title",),
    "abstract": (("dataset/abstract", prose),),
    "author": (("dataset/creator/individualName", person),),
    "authorGivenName": ("dataset/creator/individualName/givenName",),
    "authorSurName": ("dataset/creator/individualName/surName",),
    "authorLastName": ("dataset/creator/individualName/surName",),
    "investigator": ("dataset/creator/individualName/surName",),
    "origin": (("dataset/creator", party),),
    "contactOrganization": ("dataset/contact/organizationName",),
    "keywords": ("dataset/keywordSet/keyword",),
    "project": ("dataset/project/title",),
    "funding": ("dataset/project/funding",),
    "awardNumber": ("dataset/project/award/awardNumber",),
    "funderName": ("dataset/project/award/funderName",),
    "pubDate": ("dataset/pubDate",),
    "beginDate": (f"{_TIME}/rangeOfDates/beginDate/calendarDate", f"{_TIME}/singleDateTime/calendarDate"),
    "endDate": (f"{_TIME}/rangeOfDates/endDate/calendarDate", f"{_TIME}/singleDateTime/calendarDate"),
    "northBoundCoord": (f"{_BOX}/northBoundingCoordinate",),
    "southBoundCoord": (f"{_BOX}/southBoundingCoordinate",),
    "eastBoundCoord": (f"{_BOX}/eastBoundingCoordinate",),
    "westBoundCoord": (f"{_BOX}/westBoundingCoordinate",),
    "site": (f"{_COVERAGE}/geographicCoverage/geographicDescription",),
    "scientificName": ((_TAXON, species),),
    **{
        rank: ((_TAXON, ranked(rank)),)
        for rank in ("kingdom", "phylum", "class", "order", "family", "genus", "species")
    },
    "attributeName": ("dataset//attribute/attributeName",),
    "attributeLabel": ("dataset//attribute/attributeLabel",),
    "attributeDescription": ("dataset//attribute/attributeDefinition",),
    "attributeUnit": ("dataset//attribute//standardUnit", "dataset//attribute//customUnit"),
    "licenseName": ("dataset/licensed/licenseName",),
    "licenseUrl": ("dataset/licensed/url",),
    "sem_annotation": ("dataset//annotation/valueURI",),
    "text": (("dataset", text),),
}
