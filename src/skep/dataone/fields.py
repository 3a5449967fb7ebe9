"""The fields of DataONE's index, once: what they hold, and how they are searched."""

from collections.abc import Iterator

from skep.engines.records.base import Field, FieldType, Kind

#: of what resource maps say: whose field names whom, and where the other one in turn names it
LINKS = {
    "documents": "isDocumentedBy",
    "hasPart": "isPartOf",
    "prov_wasDerivedFrom": "prov_hasDerivations",
    "prov_hasSources": "",
    "prov_hasDerivations": "",
    "prov_wasGeneratedBy": "prov_generated",
    "prov_generatedByProgram": "prov_generated",
    "prov_generatedByUser": "",
    "prov_usedByExecution": "prov_used",
    "prov_usedByProgram": "prov_used",
    "prov_usedByUser": "",
    "prov_wasExecutedByExecution": "",
    "prov_wasExecutedByUser": "",
    "prov_wasInformedBy": "",
    "prov_instanceOfClass": "",
}
#: by type; a star: holds several values
_NAMES: dict[FieldType, str] = {
    "text": "title abstract",
    "keyword": """
        identifier seriesId fileName mediaType formatId formatType checksum checksumAlgorithm submitter rightsHolder
        authoritativeMN datasource replicaMN* replicationStatus* preferredReplicationMN* blockedReplicationMN*
        obsoletes obsoletedBy readPermission* writePermission* changePermission* dataUrl
        resourceMap*
        author authorGivenName* authorSurName* authorLastName* origin* investigator* contactOrganization* keywords*
        project* funding* awardNumber* funderName* site* scientificName*
        kingdom* phylum* class* order* family* genus* species*
        attributeName* attributeLabel* attributeDescription* attributeUnit* licenseName* licenseUrl sem_annotation*
        serviceTitle* serviceDescription* serviceType* serviceEndpoint* serviceInput* serviceOutput* serviceCoupling*
        titlestr note*
        geohash_1 geohash_2 geohash_3 geohash_4 geohash_5 geohash_6 geohash_7 geohash_8 geohash_9""",
    "int": "size numberReplicas serialVersion",
    "bool": "isPublic archived replicationAllowed",
    "date": "dateUploaded dateModified updateDate replicaVerifiedDate* pubDate datePublished beginDate endDate",
    "float": "northBoundCoord southBoundCoord eastBoundCoord westBoundCoord",
}
#: words of these keywords are found as well, under another name
TEXTS = {f"{name}Text": name for name in ("origin", "keywords", "site", "project", "scientificName")}


def _declared() -> Iterator[Field]:
    for type, names in _NAMES.items():
        for name in names.split():
            yield Field(name.rstrip("*"), type, name.endswith("*"), faceted=type in ("keyword", "int", "bool"))
    for name in dict.fromkeys(filter(None, (*LINKS, *LINKS.values()))):
        yield Field(name, "keyword", many=True, faceted=True)
    for name in TEXTS:
        yield Field(name, "text", many=True, stored=False)
    yield Field("text", "text", stored=False)
    # who may read it: not what the policy says, which is readPermission, but what follows from it
    yield Field("readers", "keyword", many=True, stored=False)
    # which state of the object this is a record of
    yield Field("state", "keyword")
    # a number for each identifier, by which all records can be gone through in parts
    yield Field("place", "int", stored=False)


KIND = Kind("records", tuple(_declared()), words=("title", "abstract", "text"))
BY_NAME = {field.name: field for field in KIND.fields}
#: what callers neither see nor ask for
HIDDEN = frozenset(("readers", "state", "place"))
PLACES = 1 << 32
