"""ISO 19115 as ISO 19139 writes it, with the additions of NOAA and PANGAEA."""

from skep.dataone.science.reading import Element, Table, child

_ABOUT = "identificationInfo/*"
_CITED = f"{_ABOUT}/citation/CI_Citation"
_SERVICE = "identificationInfo/SV_ServiceIdentification"
_BOX = ".//EX_GeographicBoundingBox"
_TIME = ".//EX_TemporalExtent/extent"
_MAKERS = {"author", "originator", "principalInvestigator", "coAuthor", "owner"}


def _role(element: Element, path: str) -> str:
    code = element.find(path)
    return "" if code is None else code.get("codeListValue", "") or (code.text or "").strip()


def party(element: Element) -> str:
    return child(element, "individualName") or child(element, "organisationName")


def maker(element: Element) -> str | None:
    """Of those who are cited, who made it; where nobody says so, everybody did."""
    role = _role(element, "role/CI_RoleCode")
    return party(element) if role in _MAKERS or not role else None


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
    "title": (f"{_CITED}/title",),
    "abstract": (f"{_ABOUT}/abstract",),
    "author": (f"{_CITED}//CI_ResponsibleParty/individualName", ".//CI_ResponsibleParty/individualName"),
    "origin": ((f"{_CITED}/citedResponsibleParty/CI_ResponsibleParty", maker),),
    "investigator": (f"{_CITED}/citedResponsibleParty/CI_ResponsibleParty/individualName",),
    "contactOrganization": ("contact/CI_ResponsibleParty/organisationName",),
    "keywords": (f"{_ABOUT}/descriptiveKeywords/MD_Keywords/keyword", f"{_ABOUT}/topicCategory/MD_TopicCategoryCode"),
    "pubDate": ((f"{_CITED}/date/CI_Date", published), (f"{_CITED}/date/CI_Date", dated)),
    "beginDate": (
        f"{_TIME}/TimePeriod/beginPosition",
        f"{_TIME}/TimePeriod/begin//timePosition",
        f"{_TIME}/TimeInstant/timePosition",
    ),
    "endDate": (
        f"{_TIME}/TimePeriod/endPosition",
        f"{_TIME}/TimePeriod/end//timePosition",
        f"{_TIME}/TimeInstant/timePosition",
    ),
    "northBoundCoord": (f"{_BOX}/northBoundLatitude",),
    "southBoundCoord": (f"{_BOX}/southBoundLatitude",),
    "eastBoundCoord": (f"{_BOX}/eastBoundLongitude",),
    "westBoundCoord": (f"{_BOX}/westBoundLongitude",),
    "site": (".//EX_GeographicDescription/geographicIdentifier/MD_Identifier/code", ".//EX_Extent/description"),
    "licenseName": (f"{_ABOUT}/resourceConstraints//useLimitation",),
    "serviceTitle": (f"{_SERVICE}/citation/CI_Citation/title",),
    "serviceDescription": (f"{_SERVICE}/abstract",),
    "serviceType": (f"{_SERVICE}/serviceType",),
    "serviceCoupling": ((f"{_SERVICE}/couplingType", coded),),
    "serviceEndpoint": (f"{_SERVICE}/containsOperations/SV_OperationMetadata/connectPoint//URL",),
    "serviceInput": ((f"{_SERVICE}/operatesOn", linked),),
    "serviceOutput": ("distributionInfo//MD_Format/name",),
}
