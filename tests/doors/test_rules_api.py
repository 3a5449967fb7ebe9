"""Rules over HTTP and as a page."""

from typing import Any

import pytest

from skep.base.caller import SYSTEM
from skep.rules.api import RuleSpec
from skep.tasks.model import ContextSpec, TaskSpec
from tests.doors.conftest import Door

RULE: dict[str, Any] = {
    "name": "check",
    "source": "example.org/*",
    "paths": ["src/**"],
    "context": {"name": "check", "tasks": [{"kind": "noop"}]},
}


async def test_from_making_to_removing(door: Door) -> None:
    async with door.client(await door.token("read", "write")) as client:
        made = await client.post("/api/v1/rules", json=RULE)
        assert made.status_code == 201, made.text
        assert made.json()["spec"] == RULE and made.json()["origin"] == "api" and made.json()["last"] is None
        assert (await client.post("/api/v1/rules", json=RULE)).status_code == 409
        changed = await client.patch("/api/v1/rules/check", json={"enabled": False, "paths": []})
        assert changed.json()["spec"] == {key: RULE[key] for key in RULE if key != "paths"} | {"enabled": False}
        listed = await client.get("/api/v1/rules")
        assert [one["spec"]["name"] for one in listed.json()["items"]] == ["check"]
        assert (await client.delete("/api/v1/rules/check")).status_code == 204
        assert (await client.get("/api/v1/rules/check")).status_code == 404


async def test_fired_by_hand(door: Door) -> None:
    async with door.client(await door.token("read", "write")) as client:
        await client.post("/api/v1/rules", json={"name": "nightly", "cron": "0 3 * * *", "context": RULE["context"]})
        fired = await client.post("/api/v1/rules/nightly/fire", json={})
        assert fired.status_code == 201 and fired.json()["cause"] == "person:tester"
        last = (await client.get("/api/v1/rules/nightly")).json()["last"]
        assert last["context"] == fired.json()["id"]
        assert (await client.post("/api/v1/rules/nightly/fire", json={"source": "nowhere"})).status_code == 404


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"name": "a b"}, "is not a name"),
        ({"name": 3}, "name"),
        ({"refs": "main"}, "refs"),
        ({"sauce": "x"}, "sauce"),
        ({"cron": "* * *"}, "3 fields"),
        ({"paths": ["[a"]}, "'[' at 1 is never closed"),
        ({"context": {"name": "x"}}, "without tasks"),
        ({"context": {"name": "x", "tasks": [{"kind": "noop", "needs": [{"task": "y"}]}]}}, "needs 'y'"),
    ],
)
async def test_what_is_wrong_is_said(door: Door, change: dict[str, Any], wrong: str) -> None:
    spec = RULE | change
    if "cron" in change:
        spec = {key: spec[key] for key in ("name", "cron", "context")}
    async with door.client(await door.token("read", "write")) as client:
        answer = await client.post("/api/v1/rules", json=spec)
        assert answer.status_code == 400 and wrong in answer.json()["error"]["message"], answer.text


async def test_reading_is_not_writing(door: Door) -> None:
    await door.core.rules.create(SYSTEM, _spec("kept"))
    async with door.client(await door.token("read")) as client:
        assert (await client.get("/api/v1/rules/kept")).status_code == 200
        for method, path, body in (
            ("POST", "/rules", RULE),
            ("PATCH", "/rules/kept", {"enabled": False}),
            ("DELETE", "/rules/kept", None),
            ("POST", "/rules/kept/fire", {"source": "x"}),
        ):
            assert (await client.request(method, f"/api/v1{path}", json=body)).status_code == 403


async def test_the_page_shows_what_it_is_given_and_no_more(door: Door) -> None:
    hostile = "<script>alert(1)</script>"
    await door.core.rules.create(SYSTEM, _spec("odd", paths=(hostile, *(f"p{n}" for n in range(30))), latest=True))
    await door.core.rules.create(SYSTEM, RuleSpec("nightly", _context(hostile), cron="0 3 * * *", enabled=False))
    fired = await door.core.rules.fire(SYSTEM, "nightly")
    async with door.client(await door.token("read", "write")) as client:
        page = await client.get("/rules", headers={"accept": "text/html"})
        assert page.status_code == 200
        assert hostile not in page.text and "&lt;script&gt;" in page.text
        assert f"/contexts/{fired.id}" in page.text and "0 3 * * *" in page.text and "latest only" in page.text
        assert "/rules/odd/disable" in page.text and "/rules/nightly/enable" in page.text
        switched = await client.post("/rules/odd/disable", headers={"origin": "http://127.0.0.1:7337"})
        assert switched.status_code == 303
    assert not (await door.core.rules.show(SYSTEM, "odd")).spec.enabled
    async with door.client() as anybody:
        assert "/rules/odd/enable" not in (await anybody.get("/rules", headers={"accept": "text/html"})).text
        refused = await anybody.post("/rules/odd/enable", headers={"origin": "http://127.0.0.1:7337"})
        assert refused.status_code in (401, 403)


async def test_many_rules_come_in_pages(door: Door) -> None:
    await door.core.rules.start([_spec(f"r{n:03}") for n in range(120)])
    async with door.client(await door.token("read")) as client:
        first = await client.get("/rules", headers={"accept": "text/html"})
        assert "page=r049" in first.text and "r049" in first.text and "r050" not in first.text
        assert "skep.toml" in first.text and "/disable" not in first.text


def _context(description: str = "") -> ContextSpec:
    return ContextSpec("check", (TaskSpec(kind="noop"),), description=description)


def _spec(name: str, **more: Any) -> RuleSpec:
    return RuleSpec(name, _context(), source="**", **more)
