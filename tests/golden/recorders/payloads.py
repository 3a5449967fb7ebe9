"""What Skep publishes on its own topics: the messages of the scene, with their values, one of each kind of event."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from skep.topics.service import OWN, WORKERS
from tests.fleet.yard import until

from ..lines import flat, line
from ..scene import Scene

#: seconds since 1970 that are not of a commit
_RECENT = 1_500_000_000
#: what distinguishes the events of one topic
_KINDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "skep.changes": lambda body: f"{body['name']} {body['entry']} {body['seq']}",
    "skep.indexed": lambda body: f"{body['name']} {body['commit'][:7]}",
    "skep.tasks": lambda body: f"{body['what']} {body['state']}",
    "skep.workers": lambda body: f"{body['member'][:3]} {body['state']}",
    "skep.failures": lambda body: str(body["kind"]),
    "skep.searches": lambda body: f"{body['search']} {body['hit']['path']}",
    "skep.steps": lambda body: f"{body['metric']} {body['commit']}",
}
#: texts that say what the machine happened to do
_FREE = {"skep.tasks": ("reason", "cause")}
#: events of everything that is not the garden come in no certain order
_ORDERED = ("skep.changes", "skep.indexed")


async def record(scene: Scene) -> AsyncIterator[str]:
    """After the worker was stopped, and that was published."""

    async def detached() -> bool:
        states = [one["body"]["state"] for one in await _messages(scene, WORKERS)]
        return states.count("detached") == states.count("attached")

    await until(detached)
    for topic in OWN:
        yield line("topics", topic, "yes")
        for message in await _messages(scene, topic):
            body = message.pop("body")
            if topic in _ORDERED and not body["name"].endswith("/garden"):
                continue
            kind = scene.plain(_KINDS[topic](body)) if topic in _KINDS else "event"
            for text in flat(_plain(scene, body, _FREE.get(topic, ())), topic, kind, "body"):
                yield text
            for text in flat(_plain(scene, {**message, "offset": 0}), topic, kind, "message"):
                yield text


async def _messages(scene: Scene, topic: str) -> list[dict[str, Any]]:
    async with scene.http(scene.admin) as client:
        where = f"/api/v1/topics/{topic}/messages"
        found: list[dict[str, Any]] = []
        while page := (await client.get(where, params={"offset": len(found), "max": 1000})).json()["messages"]:
            found += page
        return found


def _plain(scene: Scene, value: Any, free: tuple[str, ...] = ()) -> Any:
    if isinstance(value, dict):
        return {key: "TEXT" if key in free else _plain(scene, one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(scene, one) for one in value]
    if isinstance(value, float | int) and not isinstance(value, bool) and value > _RECENT:
        return "TIME"
    return scene.plain(value) if isinstance(value, str) else value
