"""Solr's language over real HTTP."""

from typing import Any

from skep.dataone.encoding import parse
from skep.dataone.types import (
    ObjectList,
)
from skep.testing.documents import ORE, eml, resource_map

from .cn_house import Served


async def test_moments_are_those_of_solr(cn: Served) -> None:
    """To the millisecond: who asks for what came after the last one seen must not lose what came in the same second."""
    for pid, at in (("a", 1_200), ("b", 1_700)):
        await cn.put(pid, eml(pid), date_uploaded=at)
    await cn.core.dataone.index.drain()
    for text, found in {
        "[1970-01-01T00:00:01.200Z TO *]": ["a", "b"],
        "{1970-01-01T00:00:01.200Z TO *]": ["b"],
        "[1970-01-01T00:00:01.201Z TO *]": ["b"],
        "[* TO 1970-01-01T00:00:01.7Z}": ["a"],
        "[* TO 1970-01-01T00:00:01.7Z]": ["a", "b"],
        "[* TO 1970-01-01T00:00:01Z]": [],
        "{1970-01-01T00:00:01Z TO *]": ["a", "b"],
        '"1970-01-01T00:00:01.200Z"': ["a"],
        "1970-01-01T00\\:00\\:01.700Z": ["b"],
    }.items():
        answer = await cn.solr(q=f"dateUploaded:{text}", fl="id", sort="id asc")
        assert [one["id"] for one in answer["response"]["docs"]] == found, text


async def test_solr(cn: Served) -> None:
    for n in range(3):
        await cn.put(f"p{n}", eml(f"Glacier {n}"), date_uploaded=1000 * n, rights_holder=f"r{n % 2}")
    await cn.put("map", resource_map("map", {"p0": ["p1"]}), format_id=ORE)
    await cn.core.dataone.index.drain()
    await cn.core.dataone.index.drain()
    answer = await cn.solr(q="title:glacier", fl="id,dateUploaded", sort="dateUploaded desc", rows=2, start=1)
    assert answer["response"] == {
        "numFound": 3,
        "start": 1,
        "docs": [
            {"id": "p1", "dateUploaded": "1970-01-01T00:00:01Z"},
            {"id": "p0", "dateUploaded": "1970-01-01T00:00:00Z"},
        ],
    }
    answer = await cn.solr(q="*:*", fq="formatType:METADATA", facet="true", **{"facet.field": "rightsHolder"}, rows=0)
    assert answer["facet_counts"]["facet_fields"] == {"rightsHolder": ["r0", 2, "r1", 1]}
    assert answer["response"]["docs"] == []
    answer = await cn.solr(q="title:glacier", fl="id", sort="rightsHolder desc,dateUploaded desc")
    assert [one["id"] for one in answer["response"]["docs"]] == ["p1", "p2", "p0"]
    counts: dict[str, Any] = {
        "facet": "true",
        "facet.field": "rightsHolder",
        "facet.mincount": 2,
        "facet.query": "id:p1",
        "rows": 0,
    }
    answer = (await cn.solr(q="title:glacier", **counts))["facet_counts"]
    assert answer == {"facet_queries": {"id:p1": 1}, "facet_fields": {"rightsHolder": ["r0", 2]}}
    for text, found in {
        "id:p1": ["p1"],
        "title:glacier AND dateUploaded:[NOW-1DAY TO NOW]": [],
        "title:glacier AND dateUploaded:[* TO NOW/DAY]": ["p0", "p1", "p2"],
        "id:*": ["map", "p0", "p1", "p2"],
        "*:* AND -resourceMap:*": ["map", "p2"],
        'resourceMap:"map" OR id:p2': ["p0", "p1", "p2"],
        "+title:glacier -id:p0": ["p1", "p2"],
        "title:glacier && !id:p0": ["p1", "p2"],
        "(id:p0 OR id:p1) AND isDocumentedBy:p0": ["p1"],
        "formatId:*openarchives*": ["map"],
        "formatId:eml\\:\\/\\/ecoinformatics.org\\/eml\\-2.1.1": ["p0", "p1", "p2"],
        "beginDate:[* TO NOW] AND endDate:[2003-01-01T00:00:00Z TO *]": ["p0", "p1", "p2"],
        "title:glaci*^2": ["p0", "p1", "p2"],
        "title:gl?ci?r": ["p0", "p1", "p2"],
        "id:m?p": ["map"],
        "id:m\\?p": [],
        "formatId:eml\\:\\/\\/ecoinformatics.org\\/*": ["p0", "p1", "p2"],
        "origin:Ada\\ B?\\ L*": ["p0", "p1", "p2"],
        "northBoundCoord:[68 TO 69]": ["p0", "p1", "p2"],
        "title:glacier AND NOT(id:p0 OR id:p1)": ["p2"],
        "NOT(id:p0) AND NOT title:glacier": ["map"],
        "formatId:(eml\\:\\/\\/ecoinformatics.org\\/eml\\-2.1.1 OR urn\\:x)": ["p0", "p1", "p2"],
        "(id:p0 OR id:p1)^2 AND size:[1 TO *]^0.5": ["p0", "p1"],
        "resourceMap:[* TO *]": ["p0", "p1"],
        "-title:[* TO *]": ["map"],
        "id:[* TO *] AND isPublic:[* TO *]": ["map", "p0", "p1", "p2"],
        "title:(\\-glacier)": ["p0", "p1", "p2"],
        "title:glacier\\:": ["p0", "p1", "p2"],
    }.items():
        answer = await cn.solr(q=text, fl="id", rows=100)
        assert sorted(one["id"] for one in answer["response"]["docs"]) == found, text
    async with cn.client() as client:
        xml = (await client.get("/cn/v2/query/solr/", params={"q": "id:p1", "wt": "xml", "facet": "true"})).text
        assert '<result name="response" numFound="1" start="0">' in xml
        assert '<arr name="origin"><str>Ada B. Lovelace</str>' in xml
        assert '<date name="beginDate">1999-01-01T00:00:00Z</date>' in xml
        assert "readers" not in xml
        sheet = await client.get("/cn/v2/query/solr/", params={"q": "id:p1", "fl": "id,rightsHolder", "wt": "csv"})
        assert (sheet.headers["content-type"].split(";")[0], sheet.text) == ("text/csv", "id,rightsHolder\np1,r1\n")
    for start, rows, ids in (
        (2, 2_147_483_647, ["p1", "p2"]),
        (2, 20_000, ["p1", "p2"]),
        (9_999, 10, []),
        (10_000, 10, []),
        (123_456, 0, []),
    ):
        answer = (await cn.solr(q="*:*", fl="id", sort="id asc", start=start, rows=rows))["response"]
        assert (answer["numFound"], answer["start"], [one["id"] for one in answer["docs"]]) == (4, start, ids)
    async with cn.client() as client:
        answer = await client.get("/cn/v2/search/solr/q=title:glacier?start=10000&count=5")
    beyond = parse(ObjectList, answer.content)
    assert (beyond.total, beyond.start, beyond.object_info) == (3, 10_000, ())
    async with cn.client() as client:
        posted = await client.post("/cn/v2/query/solr", data={"q": "id:p2", "fl": "id", "wt": "json"})
        assert posted.json()["response"]["docs"] == [{"id": "p2"}]
