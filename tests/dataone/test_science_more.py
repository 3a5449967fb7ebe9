"""FGDC, DataCite and schema.org to fields."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.dataone.science_formats import science
from skep.dataone.science_reader import BY_NAME
from tests.dataone.test_science import at

SCHEMA_ORG = "science-on-schema.org/Dataset;ld+json"
FGDC = b"""<metadata><idinfo><citation><citeinfo><origin>Hayden, F.</origin><origin>Survey</origin>
<pubdate>19980704</pubdate><title>Geysers</title></citeinfo></citation>
<descript><abstract>Hot water</abstract></descript>
<timeperd><timeinfo><rngdates><begdate>1871</begdate><enddate>present</enddate></rngdates></timeinfo></timeperd>
<spdom><bounding><westbc>-111</westbc><eastbc>-109.5</eastbc><northbc>45</northbc><southbc>44</southbc></bounding>
</spdom><keywords><theme><themekey>heat</themekey></theme><place><placekey>Yellowstone</placekey></place></keywords>
<taxonomy><taxoncl><taxonrn>Genus</taxonrn><taxonrv>Thermus</taxonrv><taxoncl><taxonrn>Species</taxonrn>
<taxonrv>Thermus aquaticus</taxonrv></taxoncl></taxoncl></taxonomy>
<ptcontac><cntinfo><cntorgp><cntorg>Park</cntorg></cntorgp></cntinfo></ptcontac><useconst>none</useconst></idinfo>
<eainfo><detailed><attr><attrlabl>t</attrlabl><attrdef>temperature</attrdef><attrdomv><rdom><attrunit>K</attrunit></rdom>
</attrdomv></attr></detailed></eainfo></metadata>"""


def test_fgdc() -> None:
    found = science("FGDC-STD-001.1-1999", FGDC)
    assert found.notes == ["endDate: 'present' is no date"]
    assert found.fields.pop("text")
    assert found.fields == {
        "title": "Geysers",
        "abstract": "Hot water",
        "author": "Hayden, F.",
        "origin": ["Hayden, F.", "Survey"],
        "investigator": ["Hayden, F.", "Survey"],
        "contactOrganization": ["Park"],
        "keywords": ["heat", "Yellowstone"],
        "pubDate": at(1998, 7, 4),
        "beginDate": at(1871, 1, 1),
        "northBoundCoord": 45,
        "southBoundCoord": 44,
        "eastBoundCoord": -109.5,
        "westBoundCoord": -111,
        "site": ["Yellowstone"],
        "scientificName": ["Thermus aquaticus"],
        "genus": ["Thermus"],
        "species": ["Thermus aquaticus"],
        "attributeName": ["t"],
        "attributeLabel": ["t"],
        "attributeDescription": ["temperature"],
        "attributeUnit": ["K"],
        "licenseName": ["none"],
    }


@pytest.mark.parametrize(
    "box",
    [
        "<geoLocationBox>41 -71.5 42 -68</geoLocationBox>",
        "<geoLocationBox><westBoundLongitude>-71.5</westBoundLongitude><eastBoundLongitude>-68</eastBoundLongitude>"
        "<southBoundLatitude>41</southBoundLatitude><northBoundLatitude>42</northBoundLatitude></geoLocationBox>",
    ],
)
def test_datacite_of_both_versions(box: str) -> None:
    body = f"""<resource xmlns="http://datacite.org/schema/kernel-3"><creators><creator><creatorName>Carson, R.
    </creatorName></creator></creators><titles><title titleType="Subtitle">More</title><title>Tides</title></titles>
    <publisher>WHOI</publisher><publicationYear>1941</publicationYear><subjects><subject>sea</subject></subjects>
    <contributors><contributor contributorType="Funder"><contributorName>Fund</contributorName></contributor>
    </contributors><dates><date dateType="Collected">1935-06/1936</date></dates><rightsList>
    <rights rightsURI="https://example.org/by">CC BY</rights></rightsList><descriptions>
    <description descriptionType="Methods">Nets</description><description descriptionType="Abstract">Life</description>
    </descriptions><geoLocations><geoLocation><geoLocationPlace>Shelf</geoLocationPlace>{box}</geoLocation>
    </geoLocations></resource>"""
    found = science("http://datacite.org/schema/kernel-3.1", body.encode())
    assert found.notes == []
    assert found.fields.pop("text")
    assert found.fields == {
        "title": "Tides",
        "abstract": "Life\nNets",
        "author": "Carson, R.",
        "origin": ["Carson, R."],
        "investigator": ["Carson, R."],
        "contactOrganization": ["WHOI"],
        "keywords": ["sea"],
        "funderName": ["Fund"],
        "pubDate": at(1941, 1, 1),
        "beginDate": at(1935, 6, 1),
        "endDate": at(1936, 1, 1),
        "southBoundCoord": 41,
        "westBoundCoord": -71.5,
        "northBoundCoord": 42,
        "eastBoundCoord": -68,
        "site": ["Shelf"],
        "licenseName": ["CC BY"],
        "licenseUrl": "https://example.org/by",
    }


DATASET: dict[str, Any] = {
    "@context": {"@vocab": "https://schema.org/"},
    "@type": "Dataset",
    "name": "Krill",
    "description": "Swarms",
    "creator": {"@list": [{"@type": "Person", "givenName": "Sir", "familyName": "Alister"}, {"name": "Discovery"}]},
    "publisher": {"name": "Antarctic Survey"},
    "keywords": "krill, southern ocean",
    "datePublished": "2015-06-09",
    "temporalCoverage": "1925-01-01/..",
    "spatialCoverage": {"name": "South Georgia", "geo": {"@type": "GeoShape", "box": "-55.5,-38.5 -53.5,-35"}},
    "variableMeasured": [{"name": "density", "unitText": "g/m2", "description": "of krill"}, "depth"],
    "license": "https://example.org/zero",
    "funder": "Council",
}


@pytest.mark.parametrize("wrapped", [False, True])
def test_schema_org(wrapped: bool) -> None:
    body = json.dumps({"@graph": [{"@type": "Person", "name": "x"}, DATASET]} if wrapped else DATASET)
    found = science(SCHEMA_ORG, body.encode())
    assert found.notes == []
    assert "Swarms" in str(found.fields.pop("text"))
    assert found.fields == {
        "title": "Krill",
        "abstract": "Swarms",
        "author": "Sir Alister",
        "authorGivenName": ["Sir"],
        "authorSurName": ["Alister"],
        "origin": ["Sir Alister", "Discovery"],
        "investigator": ["Sir Alister", "Discovery"],
        "contactOrganization": ["Antarctic Survey"],
        "keywords": ["krill", "southern ocean"],
        "pubDate": at(2015, 6, 9),
        "beginDate": at(1925, 1, 1),
        "southBoundCoord": -55.5,
        "westBoundCoord": -38.5,
        "northBoundCoord": -53.5,
        "eastBoundCoord": -35,
        "site": ["South Georgia"],
        "attributeName": ["density", "depth"],
        "attributeDescription": ["of krill"],
        "attributeUnit": ["g/m2"],
        "licenseUrl": "https://example.org/zero",
        "funderName": ["Council"],
    }


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "no JSON"),
        (b"<xml/>", "no JSON"),
        (b'{"@type": "Person"}', "no Dataset"),
        (b"[" * 100_000, "no JSON"),
        (b'{"@type": "Dataset", "a": ' + b'{"a":' * 60 + b"1" + b"}" * 61, "deeply"),
        (b'{"@type": "Dataset", "name": "\xff"}', "no JSON"),
    ],
)
def test_bad_json_costs_its_fields(body: bytes, said: str) -> None:
    found = science(SCHEMA_ORG, body)
    assert found.fields == {} and said in found.notes[0]


KEYS = ["name", "creator", "@list", "keywords", "a b", "", "é:ü", "1"]
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*DATASET, "@value"]), JSON))
def test_any_dataset_is_read(said: dict[str, Any]) -> None:
    found = science(SCHEMA_ORG, json.dumps({**said, "@type": "Dataset"}).encode())
    assert found.fields.keys() <= BY_NAME.keys()
