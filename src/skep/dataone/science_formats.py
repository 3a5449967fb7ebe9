"""A Dataset of schema.org in JSON-LD: read as a tree whose elements are its keys, without their prefixes."""

import re
from typing import Any

import msgspec
from lxml import etree

from skep.dataone.science_reader import MOST_BYTES, Element, How, Read, Table, child, read, whole, words
from skep.dataone.science_reader import prose as science_reader_prose

# DataCite's kernel, versions 3 and 4.


def interval(end: int) -> How:
    """`2001-05/2002-01`, or one date for both ends; an open end says nothing."""
    return lambda element: _nth(words(element).split("/"), end)


def corner(nth: int) -> How:
    """Of `south west north east`."""

    def of(element: Element) -> str | None:
        numbers = words(element).replace(",", " ").split()
        return numbers[nth] if len(numbers) == 4 else None

    return of


def _nth(parts: list[str], nth: int) -> str | None:
    text = parts[min(nth, len(parts) - 1)].strip()
    return None if text in ("", "..") else text


_HELPED = "contributors/contributor"
_BOX = "geoLocations/geoLocation/geoLocationBox"
_DATES = "dates/date[@dateType='Collected' or @dateType='Valid']"

DATACITE: Table = {
    "title": ("titles/title[not(@titleType)]", "titles/title"),
    "abstract": ("descriptions/description[@descriptionType='Abstract']", "descriptions/description"),
    "author": ("creators/creator/creatorName",),
    "authorGivenName": ("creators/creator/givenName",),
    "authorSurName": ("creators/creator/familyName",),
    "origin": ("creators/creator/creatorName",),
    "investigator": ("creators/creator/creatorName",),
    "contactOrganization": ("publisher",),
    "keywords": ("subjects/subject",),
    "project": (f"{_HELPED}[@contributorType='ResearchGroup']/contributorName",),
    "funderName": (f"{_HELPED}[@contributorType='Funder']/contributorName", "fundingReferences//funderName"),
    "awardNumber": ("fundingReferences/fundingReference/awardNumber",),
    "pubDate": ("dates/date[@dateType='Issued']", "publicationYear"),
    "beginDate": ((_DATES, interval(0)),),
    "endDate": ((_DATES, interval(1)),),
    "southBoundCoord": (f"{_BOX}/southBoundLatitude", (_BOX, corner(0))),
    "westBoundCoord": (f"{_BOX}/westBoundLongitude", (_BOX, corner(1))),
    "northBoundCoord": (f"{_BOX}/northBoundLatitude", (_BOX, corner(2))),
    "eastBoundCoord": (f"{_BOX}/eastBoundLongitude", (_BOX, corner(3))),
    "site": ("geoLocations/geoLocation/geoLocationPlace",),
    "licenseName": ("rightsList/rights",),
    "licenseUrl": (("rightsList/rights", lambda element: element.get("rightsURI")),),
}


# Dublin Core, simple and qualified: oai_dc, and the records of DataONE's own application profile.


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


# EML 2.0 to 2.2: the element `dataset`, whose paths have not changed since 2.0.

_COVERAGE = "dataset/coverage"
_TIME = f"{_COVERAGE}/temporalCoverage"
_EML_BOX = f"{_COVERAGE}/geographicCoverage/boundingCoordinates"
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
    "abstract": (("dataset/abstract", science_reader_prose),),
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
    "northBoundCoord": (f"{_EML_BOX}/northBoundingCoordinate",),
    "southBoundCoord": (f"{_EML_BOX}/southBoundingCoordinate",),
    "eastBoundCoord": (f"{_EML_BOX}/eastBoundingCoordinate",),
    "westBoundCoord": (f"{_EML_BOX}/westBoundingCoordinate",),
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


# FGDC's Content Standard for Digital Geospatial Metadata, with its biological profile.

_ABOUT = "idinfo"
_CITED = f"{_ABOUT}/citation/citeinfo"
_FGDC_TIME = f"{_ABOUT}/timeperd/timeinfo"
_FGDC_BOX = f"{_ABOUT}/spdom/bounding"
_FGDC_TAXON = f"{_ABOUT}/taxonomy//taxoncl"

FGDC: Table = {
    "title": (f"{_CITED}/title",),
    "abstract": (f"{_ABOUT}/descript/abstract",),
    "author": (f"{_CITED}/origin",),
    "origin": (f"{_CITED}/origin",),
    "investigator": (f"{_CITED}/origin",),
    "contactOrganization": (f"{_ABOUT}/ptcontac//cntorg",),
    "keywords": (f"{_ABOUT}/keywords//themekey", f"{_ABOUT}/keywords//placekey", f"{_ABOUT}/keywords//tempkey"),
    "pubDate": (f"{_CITED}/pubdate",),
    "beginDate": (f"{_FGDC_TIME}/rngdates/begdate", f"{_FGDC_TIME}//sngdate/caldate"),
    "endDate": (f"{_FGDC_TIME}/rngdates/enddate", f"{_FGDC_TIME}//sngdate/caldate"),
    "northBoundCoord": (f"{_FGDC_BOX}/northbc",),
    "southBoundCoord": (f"{_FGDC_BOX}/southbc",),
    "eastBoundCoord": (f"{_FGDC_BOX}/eastbc",),
    "westBoundCoord": (f"{_FGDC_BOX}/westbc",),
    "site": (f"{_ABOUT}/keywords/place/placekey",),
    "scientificName": ((_FGDC_TAXON, ranked("species", "taxonrn", "taxonrv")),),
    **{
        rank: ((_FGDC_TAXON, ranked(rank, "taxonrn", "taxonrv")),)
        for rank in ("kingdom", "phylum", "class", "order", "family", "genus", "species")
    },
    "attributeName": ("eainfo//attr/attrlabl",),
    "attributeLabel": ("eainfo//attr/attrlabl",),
    "attributeDescription": ("eainfo//attr/attrdef",),
    "attributeUnit": ("eainfo//attr//attrunit",),
    "licenseName": (f"{_ABOUT}/useconst",),
}


# ISO 19115 as ISO 19139 writes it, with the additions of NOAA and PANGAEA.

_ISO_ABOUT = "identificationInfo/*"
_ISO_CITED = f"{_ISO_ABOUT}/citation/CI_Citation"
_SERVICE = "identificationInfo/SV_ServiceIdentification"
_ISO_BOX = ".//EX_GeographicBoundingBox"
_ISO_TIME = ".//EX_TemporalExtent/extent"
_MAKERS = {"author", "originator", "principalInvestigator", "coAuthor", "owner"}


def _role(element: Element, path: str) -> str:
    code = element.find(path)
    return "" if code is None else code.get("codeListValue", "") or (code.text or "").strip()


def iso_party(element: Element) -> str:
    return child(element, "individualName") or child(element, "organisationName")


def maker(element: Element) -> str | None:
    """Of those who are cited, who made it; where nobody says so, everybody did."""
    role = _role(element, "role/CI_RoleCode")
    return iso_party(element) if role in _MAKERS or not role else None


def published(element: Element) -> str | None:
    kind = _role(element, "dateType/CI_DateTypeCode")
    return child(element, "date") if kind == "publication" else None


def dated(element: Element) -> str:
    return child(element, "date")


def coded(element: Element) -> str:
    return _role(element, "*")


def linked(element: Element) -> str | None:
    return element.get("{http://www.w3.org/1999/xlink}href")  # type: ignore[no-any-return]  # of lxml


ISO: Table = {
    "title": (f"{_ISO_CITED}/title",),
    "abstract": (f"{_ISO_ABOUT}/abstract",),
    "author": (f"{_ISO_CITED}//CI_ResponsibleParty/individualName", ".//CI_ResponsibleParty/individualName"),
    "origin": ((f"{_ISO_CITED}/citedResponsibleParty/CI_ResponsibleParty", maker),),
    "investigator": (f"{_ISO_CITED}/citedResponsibleParty/CI_ResponsibleParty/individualName",),
    "contactOrganization": ("contact/CI_ResponsibleParty/organisationName",),
    "keywords": (
        f"{_ISO_ABOUT}/descriptiveKeywords/MD_Keywords/keyword",
        f"{_ISO_ABOUT}/topicCategory/MD_TopicCategoryCode",
    ),
    "pubDate": ((f"{_ISO_CITED}/date/CI_Date", published), (f"{_ISO_CITED}/date/CI_Date", dated)),
    "beginDate": (
        f"{_ISO_TIME}/TimePeriod/beginPosition",
        f"{_ISO_TIME}/TimePeriod/begin//timePosition",
        f"{_ISO_TIME}/TimeInstant/timePosition",
    ),
    "endDate": (
        f"{_ISO_TIME}/TimePeriod/endPosition",
        f"{_ISO_TIME}/TimePeriod/end//timePosition",
        f"{_ISO_TIME}/TimeInstant/timePosition",
    ),
    "northBoundCoord": (f"{_ISO_BOX}/northBoundLatitude",),
    "southBoundCoord": (f"{_ISO_BOX}/southBoundLatitude",),
    "eastBoundCoord": (f"{_ISO_BOX}/eastBoundLongitude",),
    "westBoundCoord": (f"{_ISO_BOX}/westBoundLongitude",),
    "site": (".//EX_GeographicDescription/geographicIdentifier/MD_Identifier/code", ".//EX_Extent/description"),
    "licenseName": (f"{_ISO_ABOUT}/resourceConstraints//useLimitation",),
    "serviceTitle": (f"{_SERVICE}/citation/CI_Citation/title",),
    "serviceDescription": (f"{_SERVICE}/abstract",),
    "serviceType": (f"{_SERVICE}/serviceType",),
    "serviceCoupling": ((f"{_SERVICE}/couplingType", coded),),
    "serviceEndpoint": (f"{_SERVICE}/containsOperations/SV_OperationMetadata/connectPoint//URL",),
    "serviceInput": ((f"{_SERVICE}/operatesOn", linked),),
    "serviceOutput": ("distributionInfo//MD_Format/name",),
}


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
_JSONLD_BOX = f"{_WHERE}//box"

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
    "southBoundCoord": ((_JSONLD_BOX, corner(0)), f"{_WHERE}//latitude"),
    "westBoundCoord": ((_JSONLD_BOX, corner(1)), f"{_WHERE}//longitude"),
    "northBoundCoord": ((_JSONLD_BOX, corner(2)), f"{_WHERE}//latitude"),
    "eastBoundCoord": ((_JSONLD_BOX, corner(3)), f"{_WHERE}//longitude"),
    "site": ((_WHERE, named),),
    "attributeName": (("variableMeasured", named),),
    "attributeDescription": ("variableMeasured/description",),
    "attributeUnit": ("variableMeasured/unitText",),
    "licenseUrl": ("license/url", "license/_id", "license[not(*)]"),
    "licenseName": ("license/name",),
}


# Science metadata to fields of the index. Pure: bytes in, fields and notes out; nothing here raises for a document.

#: the beginning of a format's id -> where its fields stand
_TABLES: tuple[tuple[str, Table], ...] = (
    ("eml://ecoinformatics.org/eml-2.", EML),
    ("https://eml.ecoinformatics.org/eml-2.", EML),
    ("http://www.isotc211.org/2005/gm", ISO),
    ("INCITS-453", ISO),
    ("FGDC-STD-001", FGDC),
    ("http://datacite.org/schema/kernel-", DATACITE),
    ("http://www.openarchives.org/OAI/2.0/oai_dc", DC),
    ("http://ns.dataone.org/metadata/schema/onedcx", DC),
    ("http://purl.org/dryad/terms", DC),
)


def science(format_id: str, body: bytes) -> Read:
    """What a document says about its data. Of a format without a table nothing but its text is known."""
    if format_id.startswith("science-on-schema.org/"):
        return read(SCHEMA_ORG, body, dataset)
    table = next((table for prefix, table in _TABLES if format_id.startswith(prefix)), {})
    return read(table, body)
