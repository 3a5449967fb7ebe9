"""What happens in the world between two commands of the script."""

from typing import Any

from skep.base.caller import SYSTEM
from skep.base.clock import SystemClock
from skep.benchmarks.change_points import Finding
from skep.results.api import Draft
from skep.tasks.model import ContextSpec, TaskSpec
from skep.testing.documents import ORE, eml, resource_map
from tests.dataone.objects import NODE, meta_of
from tests.fleet.yard import until
from tests.support.dataone_objects import put_object

from .scene import FILES, Scene


async def grow(scene: Scene) -> None:
    """Upstream changes: a commit, a branch, a tag, a deleted branch."""
    repo = scene.garden
    repo.commit({"src/more.py": b"def more_honey():\n    return 'honey'\n"})
    repo.branch("next")
    repo.tag("v1")


async def shrink(scene: Scene) -> None:
    scene.garden.delete_branch("next")
    scene.garden.commit({"docs/plan.txt": None})


async def mend(scene: Scene) -> None:
    scene.forge.create("hive/broken", FILES)


async def listed(scene: Scene) -> None:
    """One list was fetched and read, the other could not be."""

    async def is_read() -> bool:
        lists = await scene.core.lists.list(SYSTEM)
        return {one.state for one in lists} == {"current", "failing"}

    await until(is_read)


async def group(scene: Scene) -> None:
    async with scene.http(scene.admin) as client:
        where = "/api/v1/topics/news/groups/kitchen"
        joined = (await client.post(f"{where}/join", json={"member": "me", "start": "beginning"})).json()
        lease = next(one for one in joined["leases"] if one["partition"] == 0)
        commit = {"partition": 0, "generation": lease["generation"], "offset": 1}
        await client.post(f"{where}/commit", json={"member": "me", "commits": [commit]})


async def task(scene: Scene) -> None:
    view = await scene.core.contexts.show(SYSTEM, scene.names["context"])
    scene.names["task"] = view.tasks[0].id


async def busy(scene: Scene) -> None:
    """A little of what a server does all day: messages, tuples, tasks."""
    async with scene.http(scene.admin) as client:
        for n in range(60):
            await client.post("/api/v1/topics/queued/messages", json={"body": {"n": n}, "key": str(n)})
            await client.get("/api/v1/topics/queued/messages", params={"offset": n, "max": 10})
        for n in range(30):
            await client.post("/api/v1/spaces/busy/put", json={"fields": ["job", n]})
            await client.post("/api/v1/spaces/busy/get", json={"template": ["job", n], "wait": 0})
            await client.get("/api/v1/search", params={"q": "honey"})
    tasks = tuple(TaskSpec(f"t{n}", argv=("true",)) for n in range(20))
    context = await scene.core.contexts.submit(SYSTEM, ContextSpec("busy", tasks))
    await scene.core.contexts.wait(SYSTEM, context.id, 120)


async def step(scene: Scene) -> None:
    """Measurements of twelve commits, of which the seventh is slower."""
    about = {"skep.benchmark": "speed", "skep.source": scene.names["source"], "skep.ref": "main"}
    specs = tuple(
        TaskSpec(
            f"t{n}",
            argv=("true",),
            selector='labels has "none"',
            properties={**about, "skep.commit": f"{n:040x}", "skep.made_at": f"{n + 1}"},
        )
        for n in range(12)
    )
    context = await scene.core.contexts.submit(SYSTEM, ContextSpec("measured", specs))
    tasks = {one.name: one.id for one in (await scene.core.contexts.show(SYSTEM, context.id)).tasks}
    for n in range(12):
        values = (2.0, 2.01, 1.99) if n >= 6 else (1.0, 1.01, 0.99)
        await scene.core.results.record(SYSTEM, tasks[f"t{n}"], None, [Draft("time", None, "s", values)])
    rows = await scene.engine.db.read("SELECT * FROM benchmark")
    await Finding(scene.engine.db, SystemClock(), scene.core.topics, scene.core.results).look(rows[0])
    await scene.core.contexts.cancel(SYSTEM, context.id, "measured")


async def node(scene: Scene) -> None:
    """The node that was approved is a source; and a task left an evaluation."""
    async with scene.http(scene.admin) as client:
        found = (await client.get("/api/v1/sources", params={"limit": 1000})).json()["items"]
        scene.names["node"] = next(one["id"] for one in found if one["kind"] == "dataone")
        scene.names["evaluation"] = (await scene.core.evaluations.list(SYSTEM))[0].id


async def objects(scene: Scene) -> None:
    """Objects of a node, and a node that registers itself."""
    given: list[tuple[str, bytes, dict[str, Any]]] = [
        ("golden-1", eml("Glaciers of the north", about="Cold."), {}),
        ("golden-2", eml("Glaciers again"), {"obsoletes": "golden-1", "series_id": "golden.series"}),
        ("golden-map", resource_map("golden-map", {"golden-1": ["golden/data 1"]}), {"format_id": ORE}),
        ("golden/data 1", b"1,2\n", {"format_id": "text/csv"}),
        ("golden-secret", eml("Glacier of gold"), {"access_policy": None}),
        ("golden-old", b"x", {"format_id": "text/csv", "archived": True}),
    ]
    for pid, body, more in given:
        await put_object(scene.core.dataone.store, meta_of(pid, body, **more), body, NODE)
    for _ in range(2):
        await scene.core.dataone.index.drain()
    await scene.core.dataone.nodes.register(SYSTEM, scene.node.document())
