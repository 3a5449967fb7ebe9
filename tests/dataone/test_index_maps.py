"""What belongs together in the index of records: packages, their maps, series and versions."""

from random import Random

import pytest

from skep.storage.records.base import Ask
from skep.testing.documents import ORE, eml, resource_map
from tests.support.dataone_objects import lose_object, put_objects

from .library import ANYBODY, Library
from .objects import NODE, meta_of


async def test_a_map_with_impossible_names_holds_up_nothing(library: Library) -> None:
    """A database may not hold such names, nor an index of it so long ones: then nothing would be indexed any more."""
    letters = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(3_000))
    for n, name in enumerate(("d%00", letters)):
        body = resource_map(f"map{n}", {"meta": ["data", "other"]})
        body = body.replace(b"dcterms:identifier", b"dcterms:other").replace(
            b"resolve/other", f"resolve/{name}".encode()
        )
        await library.put(f"map{n}", body, format_id=ORE)
    await library.put("meta", eml("Meta"))
    await library.index.drain()
    assert await library.field("meta", "resourceMap") == ["map0", "map1"]
    assert await library.field("meta", "documents") == ["data"]


async def test_the_longest_names_belong_together(library: Library) -> None:
    """Of letters that take three bytes; what takes four, and no database may hold, is a map that says nothing."""
    random = Random(1)
    map, meta, data = ("".join(chr(random.randrange(0x4E00, 0x9FFF)) for _ in range(800)) for _ in range(3))
    body = resource_map(map, {meta: [data]})
    await library.put(map, body, format_id=ORE)
    await library.put(meta, eml("Meta"))
    await library.put(data, b"1", format_id="text/csv")
    large = "".join(
        chr(random.randrange(0x1F300, 0x1F5FF)) + chr(random.randrange(0x20000, 0x2A000)) for _ in range(400)
    )
    await library.put("large", resource_map("large", {large: ["other"]}), format_id=ORE)
    await library.put("other", b"2", format_id="text/csv")
    await library.index.drain()
    assert await library.found(f'documents:"{data}" resourceMap:"{map}"') == [meta]
    assert await library.found("formatId:text*") == sorted([data, "other"])


@pytest.mark.parametrize("order", [["map", "meta", "data"], ["data", "meta", "map"], ["meta", "map", "data"]])
async def test_packages_hold_together_in_any_order(library: Library, order: list[str]) -> None:
    for name in order:
        if name == "map":
            await library.put("map", resource_map("map", {"meta": ["data"]}), format_id=ORE)
        elif name == "meta":
            await library.put("meta", eml("Meta"))
        else:
            await library.put("data", b"1", format_id="text/csv")
        await library.index.drain()
    assert await library.field("meta", "documents") == ["data"]
    assert await library.field("data", "isDocumentedBy") == ["meta"]
    assert [await library.field(pid, "resourceMap") for pid in ("meta", "data", "map")] == [["map"], ["map"], []]


async def test_a_large_package_holds_together_though_half_of_it_comes_later(library: Library) -> None:
    members = [f"d{n:04}" for n in range(2_500)]
    metas = [meta_of(pid, b"1", format_id="text/csv") for pid in members]
    await put_objects(library.store, metas[:1_200], None, NODE)
    await library.put("map", resource_map("map", {"meta": members}), format_id=ORE)
    await library.put("meta", eml("Meta"))
    await library.index.drain()
    assert (await library.index.search(ANYBODY, Ask("resourceMap:map isDocumentedBy:meta"))).total == 1_200
    await put_objects(library.store, metas[1_200:], None, NODE)
    await library.index.drain()
    assert (await library.index.search(ANYBODY, Ask("resourceMap:map isDocumentedBy:meta"))).total == 2_500
    assert await library.field("meta", "documents") == members


async def test_provenance_is_found_from_both_sides(library: Library) -> None:
    said = b"""<rdf:Description rdf:about="https://cn.example.org/cn/v2/resolve/new"
    xmlns:prov="http://www.w3.org/ns/prov#"><prov:wasDerivedFrom
    rdf:resource="https://cn.example.org/cn/v2/resolve/old"/></rdf:Description></rdf:RDF>"""
    body = resource_map("map", {"meta": ["new", "old"]}).replace(b"</rdf:RDF>", said)
    await library.put("map", body, format_id=ORE)
    for pid in ("new", "old"):
        await library.put(pid, pid.encode(), format_id="text/csv")
    await library.put("meta", eml("Meta"))
    await library.index.drain()
    assert await library.found("prov_wasDerivedFrom:old") == ["new"]
    assert await library.found("prov_hasDerivations:new") == ["meta", "old"]
    assert await library.found("prov_hasSources:old") == ["meta"]


async def test_an_archived_map_is_taken_out_again(library: Library) -> None:
    body = resource_map("map", {"meta": ["data"]})
    await library.put("map", body, format_id=ORE)
    await library.put("meta", eml("Meta"))
    await library.index.drain()
    await library.put("map", body, format_id=ORE, archived=True, date_sys_metadata_modified=2_000)
    await library.index.drain()
    assert await library.field("meta", "resourceMap") == []
    assert await library.field("meta", "documents") == []


async def test_a_newer_map_takes_the_place_of_the_old_one(library: Library) -> None:
    await library.put("data", b"1", format_id="text/csv")
    await library.put("dropped", b"2", format_id="text/csv")
    await library.put("map1", resource_map("map1", {"meta": ["data", "dropped"]}), format_id=ORE)
    await library.put("map2", resource_map("map2", {"meta": ["data"]}), format_id=ORE, obsoletes="map1")
    await library.index.drain()
    assert await library.field("data", "resourceMap") == ["map2"]
    assert await library.field("dropped", "resourceMap") == ["map1"]


@pytest.mark.parametrize("archived", [False, True])
async def test_a_newer_map_counts_though_one_between_does_not(library: Library, archived: bool) -> None:
    """It has not all members, or is archived: of what the first and the last say, only the last counts."""
    between = {"meta": ["data"]} if archived else {"meta": ["other"]}
    await library.put("m1", resource_map("m1", {"meta": ["data"]}), format_id=ORE)
    await library.put("m2", resource_map("m2", between), format_id=ORE, obsoletes="m1", archived=archived or None)
    await library.put("m3", resource_map("m3", {"meta": ["data"]}), format_id=ORE, obsoletes="m2")
    await library.put("meta", eml("Meta"))
    await library.put("data", b"1", format_id="text/csv")
    await library.index.drain()
    assert await library.field("data", "resourceMap") == ["m3"]
    assert await library.field("meta", "resourceMap") == ["m3"]


async def test_maps_in_a_circle_all_count(library: Library) -> None:
    """None of them is the newer one, so nothing says that one does not count."""
    body = {"meta": ["data"]}
    for pid, after in (("m1", "m2"), ("m2", "m1"), ("m3", "m1"), ("self", "self")):
        await library.put(pid, resource_map(pid, body), format_id=ORE, obsoleted_by=after)
    await library.put("data", b"1", format_id="text/csv")
    await library.index.drain()
    assert await library.field("data", "resourceMap") == ["m1", "m2", "self"]


async def test_a_map_may_name_a_series(library: Library) -> None:
    await library.put("map", resource_map("map", {"sid": ["data"]}), format_id=ORE)
    await library.put("v1", eml("One"), series_id="sid", date_uploaded=1)
    await library.put("v2", eml("Two"), series_id="sid", obsoletes="v1", date_uploaded=2)
    await library.index.drain()
    assert await library.field("v2", "documents") == ["data"]
    assert await library.field("v1", "documents") == []


async def test_what_is_said_of_a_series_goes_to_its_newest_version(library: Library) -> None:
    """Also where no version says which other one it follows."""
    await library.put("map", resource_map("map", {"sid": ["data"]}), format_id=ORE)
    await library.put("v1", eml("One"), series_id="sid", date_uploaded=1_000)
    await library.index.drain()
    assert await library.found("resourceMap:map") == ["v1"]
    await library.put("v2", eml("Two"), series_id="sid", date_uploaded=2_000)
    await library.index.drain()
    assert await library.found("resourceMap:map") == ["v2"]
    assert await lose_object(library.store, "v2", NODE) == "gone"
    await library.index.drain()
    assert await library.found("resourceMap:map") == ["v1"]


async def test_the_older_version_says_what_came_after_it(library: Library) -> None:
    """Also where only the newer one, or only the older one, tells of it. Other nodes are not believed."""
    await library.put("v1", eml("One"))
    await library.put("w2", eml("Two of another chain"))
    await library.index.drain()
    await library.put("v2", eml("Two"), obsoletes="v1")
    await library.put("w1", eml("One of another chain"), obsoleted_by="w2")
    await library.put("theft", eml("Theft"), obsoletes="v2", authoritative_member_node="urn:node:Other")
    await library.index.drain()
    assert await library.found("-obsoletedBy:*") == ["theft", "v2", "w2"]
    assert await library.field("v1", "obsoletedBy") == "v2"
    assert await library.field("w2", "obsoletes") == "w1"
