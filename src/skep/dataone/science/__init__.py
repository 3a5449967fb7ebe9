"""Science metadata to fields of the index. Pure: bytes in, fields and notes out; nothing here raises for a document."""

from skep.dataone.science.datacite import DATACITE
from skep.dataone.science.dc import DC
from skep.dataone.science.eml import EML
from skep.dataone.science.fgdc import FGDC
from skep.dataone.science.iso import ISO
from skep.dataone.science.jsonld import SCHEMA_ORG, dataset
from skep.dataone.science.reading import Read, Table, read

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
