"""DataCite's kernel, versions 3 and 4."""

from skep.dataone.science.reading import Element, How, Table, words


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
