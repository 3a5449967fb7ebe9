"""Documents to fields: what is found, and that one bad value costs only itself."""

import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.dataone.resource_maps import resource_map as read_map
from skep.dataone.science_formats import science
from skep.dataone.science_reader import BY_NAME, LINKS, MOST_BYTES, instant
from skep.testing.documents import DC, EML_21, EML_22, ISO, dc, eml, iso, resource_map


def at(*date: int) -> float:
    return datetime(*date, tzinfo=UTC).timestamp()  # type: ignore[arg-type, misc]


@pytest.mark.parametrize("version", ["2.0.0", "2.0.1", "2.1.0", "2.1.1", "2.2.0"])
def test_eml_of_every_version(version: str) -> None:
    namespace = EML_22 if version == "2.2.0" else f"eml://ecoinformatics.org/eml-{version}"
    found = science(namespace, eml("Snow & ice", namespace=namespace, about="Deep cold."))
    assert found.notes == []
    text = found.fields.pop("text")
    assert isinstance(text, str)
    assert "Tarfala valley" in text
    assert "column_3" not in text
    assert found.fields == {
        "title": "Snow & ice",
        "abstract": "Deep cold.\nSecond paragraph.",
        "author": "Ada B. Lovelace",
        "authorGivenName": ["Ada", "B."],
        "authorSurName": ["Lovelace"],
        "authorLastName": ["Lovelace"],
        "investigator": ["Lovelace"],
        "origin": ["Ada B. Lovelace", "Royal Society"],
        "contactOrganization": ["Field Station"],
        "keywords": ["glacier", "ice core"],
        "project": ["Cold Places"],
        "funding": ["Grant 7"],
        "pubDate": at(2011, 5, 1),
        "beginDate": at(1999, 1, 1),
        "endDate": at(2003, 7, 14),
        "northBoundCoord": 68.2,
        "southBoundCoord": 67.5,
        "eastBoundCoord": 18.9,
        "westBoundCoord": 18.1,
        "site": ["Tarfala valley"],
        "genus": ["Dryas"],
        "species": ["octopetala"],
        "scientificName": ["Dryas octopetala"],
        "attributeName": [f"column_{n}" for n in range(20)],
        "attributeLabel": [f"Column {n}" for n in range(20)],
        "attributeDescription": [f"Measured value number {n}" for n in range(20)],
        "attributeUnit": ["meter"],
    }


def test_several_boxes_and_periods_make_one() -> None:
    more = """<coverage><geographicCoverage><boundingCoordinates><westBoundingCoordinate>-4</westBoundingCoordinate>
    <eastBoundingCoordinate>3</eastBoundingCoordinate><northBoundingCoordinate>70</northBoundingCoordinate>
    <southBoundingCoordinate>60</southBoundingCoordinate></boundingCoordinates></geographicCoverage>
    <temporalCoverage><singleDateTime><calendarDate>2010-01-02</calendarDate></singleDateTime></temporalCoverage></coverage>"""
    fields = science(EML_21, eml("t", more=more)).fields
    assert [fields[side + "BoundCoord"] for side in ("west", "east", "south", "north")] == [-4, 18.9, 60, 70]
    assert (fields["beginDate"], fields["endDate"]) == (at(1999, 1, 1), at(2010, 1, 2))


def test_iso() -> None:
    found = science(ISO, iso("Currents"))
    assert found.notes == []
    text = found.fields.pop("text")
    assert isinstance(text, str)
    assert "Alfred Wegener" in text
    assert found.fields == {
        "title": "Currents",
        "abstract": "About Currents",
        "author": "Alfred Wegener",
        "origin": ["Alfred Wegener"],
        "investigator": ["Alfred Wegener"],
        "contactOrganization": ["Data Centre"],
        "keywords": ["drift", "shelf"],
        "pubDate": at(2010, 3, 4),
        "beginDate": at(2001, 1, 1),
        "northBoundCoord": 51,
        "southBoundCoord": 50,
        "eastBoundCoord": 6.5,
        "westBoundCoord": 5,
        "site": ["North Sea"],
    }


def test_dublin_core() -> None:
    found = science(DC, dc("Voyage"))
    assert found.notes == []
    assert found.fields | {"text": ""} == {
        "title": "Voyage",
        "abstract": "About Voyage",
        "author": "Humboldt, A. v.",
        "origin": ["Humboldt, A. v."],
        "investigator": ["Humboldt, A. v."],
        "contactOrganization": ["Cotta"],
        "keywords": ["plants"],
        "pubDate": at(1807, 6, 5),
        "beginDate": at(1799, 6, 5),
        "endDate": at(1804, 8, 3),
        "northBoundCoord": -1.4,
        "southBoundCoord": -1.5,
        "eastBoundCoord": -78.7,
        "westBoundCoord": -78.9,
        "site": ["Chimborazo"],
        "text": "",
    }


def test_namespaces_may_begin_further_down() -> None:
    body = b"""<d:metadata xmlns:d="http://ns.dataone.org/metadata/schema/onedcx/v1.0"><simpleDc><t:title
    xmlns:t="http://purl.org/dc/terms/">Ice</t:title></simpleDc></d:metadata>"""
    assert science("http://ns.dataone.org/metadata/schema/onedcx/v1.0", body).fields["title"] == "Ice"


def test_a_box_upside_down_costs_the_box() -> None:
    found = science(ISO, iso("Currents", box={"southBoundLatitude": 52}))
    assert found.notes == ["southBoundCoord: 52.0 is north of 51.0"]
    assert found.fields["title"] == "Currents"
    assert "westBoundCoord" not in found.fields


@pytest.mark.parametrize("bad", ["north", "nan", "1e999", "91", "--", "5,5"])
def test_a_bad_coordinate_costs_itself(bad: str) -> None:
    found = science(ISO, iso("Currents", box={"northBoundLatitude": bad}))
    assert len(found.notes) == 1
    assert found.notes[0].startswith("northBoundCoord: ")
    assert found.fields["southBoundCoord"] == 50
    assert "northBoundCoord" not in found.fields


def test_wrong_namespaces_are_read_all_the_same() -> None:
    body = eml("Strange").replace(EML_21.encode(), b"urn:wrong").replace(b"<dataset>", b'<dataset xmlns="urn:also">')
    assert science(EML_21, body).fields["title"] == "Strange"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2001", at(2001, 1, 1)),
        ("2001-05", at(2001, 5, 1)),
        ("20010503", at(2001, 5, 3)),
        ("2001-05-03Z", at(2001, 5, 3)),
        ("2001-05-03T10:20:30", at(2001, 5, 3, 10, 20, 30)),
        ("2001-05-03 10:20:30.5Z", at(2001, 5, 3, 10, 20, 30) + 0.5),
        ("2001-05-03T10:20:30+02:00", at(2001, 5, 3, 8, 20, 30)),
        ("2001-05-03T10:20:30-0130", at(2001, 5, 3, 11, 50, 30)),
        ("0001-01-01", at(1, 1, 1)),
        ("9999-12-31T23:59:59.9999999Z", at(9999, 12, 31, 23, 59, 59) + 0.999),
    ],
)
def test_dates(text: str, expected: float) -> None:
    assert instant(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "unknown", "2001-13", "2001-02-30", "0000", "12345", "yesterday", "١٩٩٩-٠١"),
        # before the first year, and after the last
        *("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "9999-12-31T23:59:60Z"),
    ],
)
def test_no_dates(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        instant(text)


BOMB = b"""<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;"><!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;">]>
<x><dataset><title>&d;&d;&d;</title></dataset></x>"""
OUTSIDE = b'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><x><dataset><title>&f;</title></dataset></x>'
REMOTE = b'<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd"><x><dataset><title>ok</title></dataset></x>'
DEEP = b"<a>" * 5000 + b"</a>" * 5000


@pytest.mark.parametrize("body", [BOMB, OUTSIDE])
def test_entities_are_refused(body: bytes) -> None:
    found = science(EML_21, body)
    assert found.fields == {}
    assert "entities" in found.notes[0]
    with pytest.raises(ValueError, match=r"entities|no XML"):
        read_map([body])


def test_a_dtd_elsewhere_is_not_fetched() -> None:
    assert science(EML_21, REMOTE).fields["title"] == "ok"


@pytest.mark.parametrize("body", [b"", b"no xml", b"<a>", DEEP, b"\xff\xfe\x00", b"{}", b"<a>\x00</a>"])
def test_what_is_no_xml_is_noted(body: bytes) -> None:
    found = science(ISO, body)
    assert found.fields == {}
    assert "no XML" in found.notes[0]


def test_too_large_is_noted() -> None:
    assert str(MOST_BYTES) in science(EML_21, b" " * (MOST_BYTES + 1)).notes[0]


def test_an_unknown_format_is_found_by_its_text() -> None:
    assert science("urn:some/format", b"<r><a>one</a><b>two</b></r>").fields == {"text": "one two"}


@given(st.binary(max_size=300) | st.builds(lambda t: eml(t, more=""), st.text(max_size=40)))
def test_nothing_raises(body: bytes) -> None:
    found = science(EML_21, body)
    assert set(found.fields) <= set(BY_NAME)


# resource maps

TRICKY = ["a/b", "a%2Fb", "doi:10.5063/F1?x#y", "ü+ö & <co>", 'quo"te', "a" * 800]


def test_a_map_names_members_and_documents() -> None:
    found = read_map([resource_map("map", {"meta": TRICKY})])
    assert found.members == ["meta", *TRICKY]
    assert found.links["documents"] == [("meta", one) for one in TRICKY]


def test_names_come_from_urls_where_the_map_says_none() -> None:
    body = resource_map("map", {"me/ta": ["d?1"]}).replace(b"dcterms:identifier", b"dcterms:other")
    assert read_map([body]).links["documents"] == [("me/ta", "d?1")]


def test_typed_and_nested_nodes_are_read() -> None:
    body = b"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:o="urn:o" xmlns:c="urn:c"
    xmlns:d="http://purl.org/dc/terms/"><o:Aggregation rdf:about="#a"><o:aggregates>
    <rdf:Description rdf:about="urn:m"><d:identifier>meta</d:identifier><c:documents>
    <rdf:Description rdf:about="urn:d"><d:identifier>data</d:identifier></rdf:Description></c:documents>
    </rdf:Description></o:aggregates><o:aggregates rdf:resource="urn:d"/></o:Aggregation></rdf:RDF>"""
    found = read_map([body])
    assert (found.members, found.links["documents"]) == (["meta", "data"], [("meta", "data")])


def test_remarks_in_a_map_say_nothing() -> None:
    body = resource_map("map", {"meta": ["data"]})
    noisy = body.replace(b"<ore:aggregates", b"<!-- x --><?x y?><ore:aggregates")
    noisy = noisy.replace(b"</rdf:Description>", b"<!-- x --></rdf:Description><!-- x -->")
    assert noisy != body
    assert read_map([noisy]) == read_map([body])
    nested = b"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:o="urn:o"><o:Aggregation
    rdf:about="#a"><o:aggregates><!-- x --><rdf:Description rdf:about="urn:m"/></o:aggregates>
    </o:Aggregation></rdf:RDF>"""
    assert read_map([nested]).members == ["urn:m"]


def test_names_that_no_object_can_have_are_passed_over() -> None:
    names = "".join(f"<d:documents r:resource='https://cn.example/cn/v2/resolve/{one}'/>" for one in ("a%00b", "c"))
    body = f"""<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:d="urn:d" xmlns:o="urn:o">
    <r:Description r:about="https://cn.example/cn/v2/resolve/meta">{names}</r:Description>
    <o:Aggregation r:about="#a"><o:aggregates r:resource="https://cn.example/cn/v2/resolve/a%00b"/>
    <o:aggregates r:resource="https://cn.example/{"x" * 5000}"/><o:aggregates r:resource="urn:m"/></o:Aggregation>
    </r:RDF>"""
    found = read_map([body.encode()])
    assert (found.members, found.links["documents"]) == (["urn:m"], [("meta", "c")])
    assert read_map([resource_map("m" * 800, {"meta": ["data"]})]).members == ["meta", "data"]


def statements(*said: tuple[str, str, str]) -> bytes:
    """RDF/XML of (subject, predicate, object), where a predicate begins with the prefix of its vocabulary."""
    prefixes = {
        "prov": "http://www.w3.org/ns/prov#",
        "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
        "cito": "http://purl.org/spar/cito/",
        "dcterms": "http://purl.org/dc/terms/",
    }
    names = " ".join(f'xmlns:{name}="{uri}"' for name, uri in prefixes.items())
    inside = "".join(
        f'<rdf:Description rdf:about="{one}"><{what} rdf:resource="{other}"/></rdf:Description>'
        for one, what, other in said
    )
    return f"<rdf:RDF {names}>{inside}</rdf:RDF>".encode()


def test_provenance_goes_through_executions() -> None:
    body = statements(
        ("figure", "prov:wasDerivedFrom", "data"),
        ("figure", "prov:wasGeneratedBy", "run"),
        ("run", "prov:used", "data"),
        ("run", "prov:qualifiedAssociation", "_:a"),
        ("_:a", "prov:hadPlan", "script"),
        ("run", "prov:wasAssociatedWith", "ada"),
        ("run", "prov:wasInformedBy", "earlier"),
        ("meta", "cito:documents", "figure"),
        ("data", "rdf:type", "http://purl.dataone.org/provone/2015/01/15/ontology#Data"),
        ("ada", "rdf:type", "http://xmlns.com/foaf/0.1/Agent"),
        ("whole", "dcterms:hasPart", "meta"),
        ("data", "dcterms:isPartOf", "whole"),
    )
    links = {kind: pairs for kind, pairs in read_map([body]).links.items() if pairs}
    assert links == {
        "documents": [("meta", "figure")],
        "hasPart": [("whole", "meta"), ("whole", "data")],
        "prov_wasDerivedFrom": [("figure", "data")],
        "prov_hasSources": [("meta", "data")],
        "prov_wasGeneratedBy": [("figure", "run")],
        "prov_generatedByProgram": [("figure", "script")],
        "prov_generatedByUser": [("figure", "ada")],
        "prov_usedByExecution": [("data", "run")],
        "prov_usedByProgram": [("data", "script")],
        "prov_usedByUser": [("data", "ada")],
        "prov_wasExecutedByExecution": [("script", "run")],
        "prov_wasExecutedByUser": [("script", "ada")],
        "prov_wasInformedBy": [("run", "earlier")],
        "prov_instanceOfClass": [("data", "http://purl.dataone.org/provone/2015/01/15/ontology#Data")],
    }
    assert links.keys() <= LINKS.keys()


def test_statements_that_multiply_are_bounded() -> None:
    many = [("run", "prov:used", f"d{n}") for n in range(400)]
    many += [("run", "prov:wasAssociatedWith", f"u{n}") for n in range(400)]
    assert len(read_map([statements(*many)]).links["prov_usedByUser"]) == 100_000


#: every field that clients of DataONE know by name, apart from those of the index itself
_KNOWN = """
    identifier seriesId fileName mediaType formatId formatType size checksum checksumAlgorithm submitter rightsHolder
    authoritativeMN datasource replicaMN replicationStatus replicaVerifiedDate replicationAllowed numberReplicas
    preferredReplicationMN blockedReplicationMN obsoletes obsoletedBy archived dateUploaded updateDate dateModified
    readPermission writePermission changePermission isPublic dataUrl resourceMap documents isDocumentedBy isPartOf
    hasPart title abstract author authorSurName authorGivenName authorLastName origin investigator contactOrganization
    keywords project funding awardNumber funderName pubDate datePublished beginDate endDate northBoundCoord
    southBoundCoord eastBoundCoord westBoundCoord geohash_1 geohash_2 geohash_3 geohash_4 geohash_5 geohash_6 geohash_7
    geohash_8 geohash_9 site scientificName kingdom phylum class order family genus species attributeName
    attributeLabel attributeDescription attributeUnit serviceTitle serviceDescription serviceEndpoint serviceInput
    serviceOutput serviceType serviceCoupling licenseName licenseUrl sem_annotation text prov_generated
    prov_generatedByProgram prov_generatedByUser prov_hasDerivations prov_hasSources prov_instanceOfClass prov_used
    prov_usedByExecution prov_usedByProgram prov_usedByUser prov_wasDerivedFrom prov_wasExecutedByExecution
    prov_wasExecutedByUser prov_wasGeneratedBy prov_wasInformedBy"""


def test_all_fields_are_there() -> None:
    assert set(_KNOWN.split()) <= BY_NAME.keys()


def test_services_of_iso() -> None:
    service = """<gmd:identificationInfo xmlns:srv="urn:srv" xmlns:xlink="http://www.w3.org/1999/xlink">
    <srv:SV_ServiceIdentification><gmd:citation><gmd:CI_Citation><gmd:title><gco:CharacterString>Tiles
    </gco:CharacterString></gmd:title></gmd:CI_Citation></gmd:citation><gmd:abstract>Draws maps</gmd:abstract>
    <srv:serviceType><gco:LocalName>WMS</gco:LocalName></srv:serviceType><srv:couplingType>
    <srv:SV_CouplingType codeListValue="tight"/></srv:couplingType><srv:containsOperations><srv:SV_OperationMetadata>
    <srv:connectPoint><gmd:CI_OnlineResource><gmd:linkage><gmd:URL>https://maps.example/wms</gmd:URL></gmd:linkage>
    </gmd:CI_OnlineResource></srv:connectPoint></srv:SV_OperationMetadata></srv:containsOperations>
    <srv:operatesOn xlink:href="doi:1/2"/></srv:SV_ServiceIdentification></gmd:identificationInfo>"""
    body = iso("x").replace(b"<gmd:identificationInfo>", service.encode() + b"<gmd:identificationInfo>", 1)
    fields = science(ISO, body).fields
    assert {name: value for name, value in fields.items() if name.startswith("service")} == {
        "serviceTitle": ["Tiles"],
        "serviceDescription": ["Draws maps"],
        "serviceType": ["WMS"],
        "serviceCoupling": ["tight"],
        "serviceEndpoint": ["https://maps.example/wms"],
        "serviceInput": ["doi:1/2"],
    }


def test_a_large_map_streams() -> None:
    """What it takes is what is kept, the names, and not the tree."""
    members = [f"urn:uuid:{n:036d}" for n in range(30_000)]
    body = resource_map("map", {"meta": members})

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(body), 1 << 16):
            yield body[start : start + (1 << 16)]

    tracemalloc.start()
    found = read_map(chunks())
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.members) == 30_001
    assert len(found.links["documents"]) == 30_000
    assert used < 3 * len(body)


@pytest.mark.parametrize("body", [b"", b"nothing", b"<a><b/>", b'{"@context": 1}'])
def test_what_is_no_map_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="no XML"):
        read_map([body])
