"""What one node says of another's objects: it hides none of them and takes over no series, whatever names it writes."""

from collections.abc import Collection
from typing import Any

import pytest

from skep.dataone.store import Store
from skep.dataone.tables import STEPS
from skep.dataone.types import Replica
from skep.storage.database import Tx
from skep.testing.documents import ORE, eml, resource_map
from tests.support.dataone_objects import put_object

from .cn_house import Served
from .objects import NODE, meta_of

EVIL, CN_B = "urn:node:Evil", "urn:node:cnB"
THEIRS = {"submitter": "eve", "rights_holder": "eve"}


async def current(cn: Served) -> list[str]:
    await cn.core.dataone.index.drain()
    found = await cn.solr(q="-obsoletedBy:*", fl="id", sort="id asc")
    return [one["id"] for one in found["response"]["docs"]]


async def in_series(cn: Served, name: str) -> list[str]:
    await cn.core.dataone.index.drain()
    found = await cn.solr(q=f"seriesId:{name}", fl="id", sort="id asc")
    return [one["id"] for one in found["response"]["docs"]]


async def page_of(cn: Served, pid: str) -> str:
    async with cn.client(accept="text/html") as client:
        return (await client.get("/record", params={"id": pid})).text


async def head_of(cn: Served, series: str) -> str:
    async with cn.client() as client:
        found = (await client.get(f"/cn/v2/meta/{series}")).text
    return found.partition("<identifier>")[2].partition("<")[0]


async def test_a_private_version_is_named_to_nobody_who_may_not_read_it(cn: Served) -> None:
    await cn.put("pub.1", eml("One"))
    draft = {"obsoletes": "pub.1", "access_policy": None}
    assert await put_object(cn.core.dataone.store, meta_of("draft.2", eml("Two"), **draft), eml("Two"), NODE) == "new"
    assert await current(cn) == ["pub.1"]
    assert "draft.2" not in await page_of(cn, "pub.1")
    published = meta_of("draft.2", eml("Two"), obsoletes="pub.1", date_sys_metadata_modified=2_000)
    assert await put_object(cn.core.dataone.store, published, eml("Two"), NODE) == "update"
    assert await current(cn) == ["draft.2"]
    assert "draft.2" in await page_of(cn, "pub.1")


@pytest.mark.parametrize("name", [NODE, EVIL])
async def test_a_link_counts_once_the_node_of_the_other_object_says_it(cn: Served, name: str) -> None:
    await cn.put("pub.1", eml("One"))
    forged = meta_of("evil.new", eml("Two"), obsoletes="pub.1", authoritative_member_node=name, **THEIRS)
    assert await put_object(cn.core.dataone.store, forged, eml("Two"), EVIL) == "new", "the object itself is taken"
    assert await current(cn) == ["evil.new", "pub.1"]
    assert "There is a newer version" not in await page_of(cn, "pub.1")
    assert "evil.new" not in await page_of(cn, "pub.1"), "nor among its versions"
    await put_object(cn.core.dataone.store, forged, eml("Two"), NODE)
    if name == NODE:
        assert await current(cn) == ["evil.new"]
        assert "There is a newer version" in await page_of(cn, "pub.1")
    else:
        assert await current(cn) == ["evil.new", "pub.1"], "a copy of it is no word on it"


async def test_a_series_is_continued_by_the_node_that_had_it_first(cn: Served) -> None:
    store = cn.core.dataone.store
    await cn.put("s1", eml("One"), series_id="my.series", date_uploaded=1)
    forged = meta_of("s2", eml("Two"), series_id="my.series", date_uploaded=2, **THEIRS)
    assert await put_object(store, forged, eml("Two"), EVIL) == "new"
    own = meta_of("s3", eml("Three"), series_id="my.series", date_uploaded=3, authoritative_member_node=EVIL)
    assert await put_object(store, own, eml("Three"), EVIL) == "new", "by the same people, as it says"
    assert (await head_of(cn, "my.series"), await in_series(cn, "my.series")) == ("s1", ["s1"])
    await cn.put("s4", eml("Four"), series_id="my.series", date_uploaded=1, obsoletes="s1")
    assert (await head_of(cn, "my.series"), await in_series(cn, "my.series")) == ("s4", ["s1", "s4"])
    assert await put_object(store, forged, None, NODE) == "unchanged"
    assert (await head_of(cn, "my.series"), await in_series(cn, "my.series")) == ("s2", ["s1", "s2", "s4"])


async def test_who_brings_what_nobody_else_has_is_believed_until_its_own_node_speaks(cn: Served) -> None:
    store = cn.core.dataone.store
    for pid, more in (("r1", {}), ("r2", {"obsoletes": "r1"})):
        await put_object(store, meta_of(pid, eml(pid), series_id="s", **more), eml(pid), "urn:node:Holder")
    assert await current(cn) == ["r2"] and await head_of(cn, "s") == "r2"
    forged = meta_of("forged", eml("F"), series_id="s", obsoletes="r2", date_uploaded=9_000)
    await put_object(store, forged, eml("F"), EVIL)
    assert await current(cn) == ["forged", "r2"] and await in_series(cn, "s") == ["r1", "r2"]
    # its date may be another than that of the copy
    await put_object(store, meta_of("r1", eml("r1"), series_id="s", date_sys_metadata_modified=5), None, NODE)
    assert await head_of(cn, "s") == "r1" and await in_series(cn, "s") == ["r1"]


async def test_a_map_does_not_take_the_place_of_one_of_another_node(cn: Served) -> None:
    await cn.put("data", b"1", format_id="text/csv")
    await cn.put("map", resource_map("map", {"meta": ["data"]}), format_id=ORE)
    for pid, name in (("evil.1", NODE), ("evil.2", EVIL)):
        body = resource_map(pid, {"meta": ["data"]})
        meta = meta_of(pid, body, format_id=ORE, obsoletes="map", authoritative_member_node=name)
        await put_object(cn.core.dataone.store, meta, body, EVIL)
    await cn.core.dataone.index.drain()
    (found,) = (await cn.solr(q="id:data", fl="resourceMap"))["response"]["docs"]
    assert sorted(found["resourceMap"]) == ["evil.1", "evil.2", "map"]


def _at(*nodes: str) -> tuple[Replica, ...]:
    return tuple(Replica(node, "completed", 1) for node in nodes)


async def test_a_sibling_tells_what_its_nodes_said(store: Store) -> None:
    async def tell(pid: str, holders: Collection[str], **more: Any) -> None:
        meta = meta_of(pid, b"x", serial_version=1, replica=_at(*holders), **more)
        await put_object(store, meta, None, CN_B, sibling=True)

    await tell("v1", [NODE], series_id="s", date_uploaded=1)
    await tell("v2", [NODE], series_id="s", date_uploaded=2, obsoletes="v1")
    await tell("forged", [EVIL], series_id="s", date_uploaded=3, obsoletes="v2")
    assert (await store.head("s"), await store.versions("v1")) == ("v2", ["v1", "v2"])
    await tell("forged", [EVIL, NODE], series_id="s", date_uploaded=3, obsoletes="v2")
    assert (await store.head("s"), await store.versions("v1")) == ("forged", ["v1", "v2", "forged"])


async def test_what_was_stored_before_is_judged_as_well(store: Store) -> None:
    """By who has it, and by whose word was taken last."""
    for pid, node in (("v1", NODE), ("forged", EVIL), ("late", EVIL)):
        await put_object(store, meta_of(pid, b"x", series_id="s", obsoletes=None if pid == "v1" else "v1"), None, node)
    await put_object(store, meta_of("late", b"x", series_id="s", obsoletes="v1"), None, NODE)

    async def back(tx: Tx) -> None:
        await tx.rows("DELETE FROM backlog")
        await tx.rows("DROP INDEX sysmeta_narrowed")
        for column in ("said_by", "series_since", "narrowed"):
            await tx.rows(f"ALTER TABLE sysmeta DROP COLUMN {column}")
        step = next(n for n, sql in enumerate(STEPS) if "said_by" in sql)
        await tx.rows("UPDATE schema_step SET step = :step WHERE room = 'dataone'", step=step)

    await store.db.write(back)
    await store.start()
    assert (await store.head("s"), await store.versions("v1")) == ("late", ["v1", "late"])
    assert sorted(pid for pid, _ in await store.backlog("index", 10)) == ["forged", "v1"]
