"""FGDC's Content Standard for Digital Geospatial Metadata, with its biological profile."""

from skep.dataone.science.eml import ranked
from skep.dataone.science.reading import Table

_ABOUT = "idinfo"
_CITED = f"{_ABOUT}/citation/citeinfo"
_TIME = f"{_ABOUT}/timeperd/timeinfo"
_BOX = f"{_ABOUT}/spdom/bounding"
_TAXON = f"{_ABOUT}/taxonomy//taxoncl"

FGDC: Table = {
    "title": (f"{_CITED}/title",),
    "abstract": (f"{_ABOUT}/descript/abstract",),
    "author": (f"{_CITED}/origin",),
    "origin": (f"{_CITED}/origin",),
    "investigator": (f"{_CITED}/origin",),
    "contactOrganization": (f"{_ABOUT}/ptcontac//cntorg",),
    "keywords": (f"{_ABOUT}/keywords//themekey", f"{_ABOUT}/keywords//placekey", f"{_ABOUT}/keywords//tempkey"),
    "pubDate": (f"{_CITED}/pubdate",),
    "beginDate": (f"{_TIME}/rngdates/begdate", f"{_TIME}//sngdate/caldate"),
    "endDate": (f"{_TIME}/rngdates/enddate", f"{_TIME}//sngdate/caldate"),
    "northBoundCoord": (f"{_BOX}/northbc",),
    "southBoundCoord": (f"{_BOX}/southbc",),
    "eastBoundCoord": (f"{_BOX}/eastbc",),
    "westBoundCoord": (f"{_BOX}/westbc",),
    "site": (f"{_ABOUT}/keywords/place/placekey",),
    "scientificName": ((_TAXON, ranked("species", "taxonrn", "taxonrv")),),
    **{
        rank: ((_TAXON, ranked(rank, "taxonrn", "taxonrv")),)
        for rank in ("kingdom", "phylum", "class", "order", "family", "genus", "species")
    },
    "attributeName": ("eainfo//attr/attrlabl",),
    "attributeLabel": ("eainfo//attr/attrlabl",),
    "attributeDescription": ("eainfo//attr/attrdef",),
    "attributeUnit": ("eainfo//attr//attrunit",),
    "licenseName": (f"{_ABOUT}/useconst",),
}
