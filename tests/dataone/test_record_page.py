"""Records in Skep's own search, and the page of each."""

import asyncio

import pytest

from skep.base.caller import SYSTEM
from skep.cli.main import main
from skep.dataone.pages import box
from skep.dataone.testing import MemberNode
from skep.testing.documents import ORE, eml, resource_map

from .cn_house import Served

TRICKY = 'a/b?c#d&<e>"ü'


async def test_search_leads_to_the_page(cn: Served) -> None:
    await cn.put(TRICKY, eml("Glaciers <of> the north", about="Cold."))
    await cn.put("new", eml("Glaciers again"), obsoletes=TRICKY)  # which alone says so
    await cn.put("map", resource_map("map", {TRICKY: ["data/1", "absent"]}), format_id=ORE)
    await cn.put("hidden", resource_map("hidden", {TRICKY: ["unseen"]}), format_id=ORE, access_policy=None)
    await cn.put("data/1", b"1", format_id="text/csv")
    await cn.put("secret", eml("Glacier of gold"), access_policy=None)
    for _ in range(2):
        await cn.core.dataone.index.drain()
    async with cn.client(accept="text/html") as client:
        found = (await client.get("/", params={"q": "type:record glaciers"})).text
        assert "/record?id=a%2Fb%3Fc%23d%26%3Ce%3E%22%C3%BC" in found
        assert "Glaciers &lt;of&gt; the north" in found
        page = await client.get("/record", params={"id": TRICKY})
        assert page.status_code == 200
        for part in (
            *("Glaciers &lt;of&gt; the north", "<p>Cold.</p>", "Ada B. Lovelace", "glacier · ice core", "Cold Places"),
            *("1999-01-01 to 2003-07-14", "Tarfala valley", 'class="box"', "67.5°N to 68.2°N, 18.1°E to 18.9°E"),
            *(">60°N</text>", ">30°S</text>", ">0°</text>", ">120°W</text>", ">180°E</text>"),
            *("There is a newer version", "data%2F1", "absent", "text/csv", "Dryas octopetala"),
        ):
            assert part in page.text, part
        assert "unseen" not in page.text
        assert (await client.get("/record", params={"id": "secret"})).status_code == 403
        assert (await client.get("/record", params={"id": "nothing"})).status_code == 404
        assert (await client.get("/record", params={"id": "data/1"})).status_code == 200
        assert "Glacier of gold" not in (await client.get("/", params={"q": "type:record gold"})).text
        assert "Ada B. Lovelace, Royal Society" in (await client.get("/", params={"q": "type:record glaciers"})).text
        found = (
            await client.get("/api/v1/search", params={"q": "type:record glaciers"}, headers={"accept": "*/*"})
        ).json()
        assert sorted(one["id"] for one in found["records"]) == sorted([TRICKY, "new"])


async def test_a_series_is_explained_on_the_command_line(
    cn: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await cn.put("v1", eml("One"), series_id="my.series")
    await cn.put("v2", eml("Two"), series_id="my.series", obsoletes="v1")
    monkeypatch.setenv("SKEP_URL", cn.url)
    monkeypatch.setenv("SKEP_TOKEN", await cn.token("ann"))
    assert await asyncio.to_thread(main, ["dataone", "explain", "my.series"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == ["my.series is a series, its head is v2", "members: v1, v2"]
    assert told[2].startswith("v2 is stored as eml:"), "and its story"
    await cn.put("v3", eml("Three"), series_id="my.series", obsoletes="v2", access_policy=None)
    assert await asyncio.to_thread(main, ["dataone", "explain", "my.series"]) == 0
    assert capsys.readouterr().out == "my.series is a series, its head is not for you\nmembers: v1, v2\n"


async def test_a_node_has_a_page_of_its_own(cn: Served) -> None:
    """Nothing of it can be cloned."""
    core = cn.core
    with MemberNode() as node:
        await core.dataone.nodes.register(SYSTEM, node.document())
        source = (await core.dataone.nodes.approve(SYSTEM, node.id)).source
        async with cn.client(accept="text/html") as client:
            page = await client.get(f"/sources/{source}")
    assert page.status_code == 200
    for part in (f"<code>{node.id}</code>", "as its schedule says", "5 connections", "datasource:"):
        assert part in page.text, part
    assert "git clone" not in page.text


async def test_the_index_is_steered_over_the_api(cn: Served) -> None:
    await cn.put("a", eml("Snow"))
    async with cn.client(await cn.token("root", "admin")) as client:
        assert (await client.get("/api/v1/dataone/index")).json()["waiting"] == 1
        assert (await client.patch("/api/v1/dataone/index", json={"bulk": True})).json()["bulk"] is True
        assert (await client.post("/api/v1/dataone/index/audit")).status_code == 200
    async with cn.client() as client:
        assert (await client.patch("/api/v1/dataone/index", json={"bulk": False})).status_code == 401


def test_boxes() -> None:
    sides = {"westBoundCoord": 170.0, "eastBoundCoord": -170.0, "southBoundCoord": -10.0, "northBoundCoord": 10.0}
    across = box(sides)
    assert across is not None
    assert across.parts == ((350.0, 80.0, 10.0, 20.0), (0.0, 80.0, 10.0, 20.0))
    assert across.text == "10°S to 10°N, 170°E to 170°W"
    assert box({**sides, "westBoundCoord": None}) is None
    point = box({"westBoundCoord": -5.5, "eastBoundCoord": -5.5, "southBoundCoord": 0.0, "northBoundCoord": 0.0})
    assert point is not None and point.parts == ((174.0, 89.5, 1.0, 1.0),), "in the middle of what is drawn"
    assert point.text == "0°, 5.5°W"
