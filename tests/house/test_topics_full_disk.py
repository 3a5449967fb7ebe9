"""A full disk, seen by those who publish and read: refused with a reason, nothing lost, well again by itself."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.house.disk import filled, on_small_disk
from tests.house.running import RunningSkep

ORDERS = "/api/v1/topics/orders/messages"
#: so many pages that none fits into what is left of the files that are there
LARGE = "x" * 300_000


def call(skep: RunningSkep, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {skep.token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(skep.url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def produce(skep: RunningSkep, message: str) -> tuple[int, Any]:
    return call(skep, "POST", "/producer/produce", {"topic": "logs", "producer_id": 0, "message": message})


def until_refused(skep: RunningSkep) -> tuple[list[str], Any]:
    """What was stored before the disk was full, and what the answer said then."""
    stored: list[str] = []
    for n in range(200):
        status, answer = call(skep, "POST", ORDERS, {"body": f"{n} {LARGE}"})
        if status != 201:
            assert status == 507, answer
            return stored, answer["error"]
        stored.append(f"{n} {LARGE}")
    raise AssertionError("the disk never was full")


def bodies(skep: RunningSkep) -> list[str]:
    found: list[Any] = []
    while some := call(skep, "GET", f"{ORDERS}?offset={len(found)}")[1]["messages"]:
        found += some
    assert [message["offset"] for message in found] == list(range(len(found)))
    return [message["body"] for message in found]


def test_publishing_on_a_full_disk(tmp_path: Path) -> None:
    with on_small_disk(tmp_path / "small") as skep:
        assert call(skep, "POST", "/api/v1/topics", {"name": "orders"})[0] == 201
        for end in ("producer", "consumer"):
            assert call(skep, "POST", f"/{end}/register", {"topic": "logs"})[0] == 200
        assert call(skep, "POST", ORDERS, {"body": "before"})[0] == 201
        assert produce(skep, "before")[0] == 200
        with filled(skep.data):
            stored, error = until_refused(skep)
            assert error["code"] == "no_space" and "full" in error["message"] and error["hint"]
            batch = {"messages": [{"body": n} for n in range(5)] + [{"body": LARGE}], "producer": "p", "sequence": 0}
            assert call(skep, "POST", ORDERS, batch)[0] == 507
            status, failure = produce(skep, LARGE)
            assert (status, failure["status"]) == (507, "Failure") and "full" in failure["message"]
            assert bodies(skep) == ["before", *stored], "reads go on"
            assert call(skep, "GET", "/size?topic=logs&consumer_id=0") == (200, {"status": "Success", "size": 1})
        assert call(skep, "POST", ORDERS, batch)[0] == 201, "space is back"
        assert produce(skep, LARGE) == (200, {"status": "Success"})
        assert bodies(skep) == ["before", *stored, 0, 1, 2, 3, 4, LARGE]
        for message in ("before", LARGE):
            taken = call(skep, "GET", "/consumer/consume?topic=logs&consumer_id=0")
            assert taken == (200, {"status": "Success", "message": message})
        assert skep.stop() == 0, skep.tail()
