"""What operators, forms of pages and nodes of DataONE send, as requests.

What would go on in the background for long, such as an index that is built again, is only asked for by callers that are
refused, or of things that do not exist.
"""

from typing import TYPE_CHECKING

from tests.replay.questions import HTML

if TYPE_CHECKING:
    from tests.replay.corpus import Corpus

#: of callers that may not do it
LOW = ("read", "private", "none", "wrong")


def operator(c: "Corpus") -> None:
    source, node, list_ = c.some("source"), c.some("node"), c.some("list")
    for path in (
        *(f"/sources/{source}/{verb}" for verb in ("accept", "reindex", "fetch")),
        *(f"/lists/{list_}/{verb}" for verb in ("read", "confirm")),
        *(f"/benchmarks/speed/{verb}" for verb in ("pause", "resume", "wants")),
        *(f"/dataone/nodes/{node}/{verb}" for verb in ("reconcile", "replay", "approve")),
        *("/dataone/index/audit", "/workers/no-such-worker/drain", "/workers/no-such-worker/resume"),
    ):
        if c.dice.random() < 0.5:
            c.api("POST", path, c.dice.choice(LOW), json={"version": "x", "revs": "v1"})
    c.api("POST", "/sources/bulk", c.dice.choice((*LOW, "admin")), json={"sources": [{"url": "not a url"}, {"url": 5}]})
    c.api("POST", "/sources/bulk", "admin", json={"sources": [{"url": "not a url"}, {"url": "{forge}/pub/alpha"}]})
    c.api("POST", "/sources/no-such-source/fetch", "admin")
    for what in (f"lists/{list_}", "workers/no-such-worker", "evaluations/no-such", "benchmarks/no-such"):
        c.api("DELETE", f"/{what}", c.dice.choice(LOW))
    for what in ("workers/no-such-worker", "evaluations/no-such", "benchmarks/no-such", "lists/no-such"):
        c.api("DELETE", f"/{what}")
    c.api("GET", f"/lists/{list_}", c.role())
    c.api("GET", f"/dataone/nodes/{node}/preview", c.role())
    c.api("PATCH", "/dataone/index", c.role(), json={"bulk": False})
    c.api("GET", f"/results/points?metric=time&source={c.known['source'][0]}", c.role())
    c.ask("GET", c.dice.choice(("/metrics", "/api/v1/schema", "/api/v1/workers", "/evaluations/x")), c.role())
    c.ask("GET", "/workers", c.role(), headers=HTML)


def forms(c: "Corpus") -> None:
    """What a person clicks."""
    source, name, role = c.some("source"), f"form-{c.number()}", c.dice.choice(("admin", "write"))
    for path in (f"/sources/{source}/accept", f"/sources/{source}/fetch", f"/sources/{source}/remove"):
        c.ask("POST", path, c.dice.choice(LOW), form={"loss": ""}, headers=HTML)
    c.ask("POST", "/sources", c.role(), form={"url": "not a url"}, headers=HTML)
    c.ask(
        "POST", "/credentials", c.role(), form={"name": name, "host": f"{name}.example.org", "token": "x"}, headers=HTML
    )
    c.ask("POST", f"/credentials/{name}/remove", headers=HTML, form={})
    c.ask("POST", "/searches", role, form={"name": name, "query": "honey"}, headers=HTML)
    c.ask("POST", f"/searches/{name}/remove", role, headers=HTML, form={})
    for path in (f"/lists/{c.some('list')}/confirm", f"/benchmarks/speed/{c.dice.choice(('pause', 'x'))}"):
        c.ask("POST", path, c.dice.choice(LOW), form={"version": "x"}, headers=HTML)
    context, task = c.some("context"), c.some("task")
    for path in (f"/contexts/{context}/cancel", f"/contexts/{context}/retry", f"/contexts/{context}/remove"):
        c.ask("POST", path, c.dice.choice(LOW), form={}, headers=HTML)
    c.ask("POST", f"/tasks/{task}/cancel", c.dice.choice(LOW), form={}, headers=HTML)
    c.ask("POST", "/logout", c.role(), form={}, headers=HTML)


def clicked_context(c: "Corpus") -> None:
    """A context is cancelled, retried and removed by forms."""
    name, keep = c.keeps("context", "id")
    tasks = [{"name": "a", "argv": ["true"], "selector": 'os == "never"'}]
    c.api("POST", "/contexts", json={"name": f"clicked-{c.number()}", "tasks": tasks}, keep=keep)
    for verb in ("cancel", "retry", "cancel"):
        c.ask("POST", f"/contexts/{name}/{verb}", form={}, headers=HTML)
        if verb == "cancel":
            c.api("GET", f"/contexts/{name}/wait?seconds=60", until=["state", "!=", "RUNNING"])
    c.api("POST", f"/contexts/{name}/retry", c.dice.choice(LOW))
    c.ask("POST", f"/contexts/{name}/remove", form={}, headers=HTML)


def nodes_tell(c: "Corpus") -> None:
    """Notifications of nodes, from callers that are not these nodes, and without documents."""
    pid = c.some("pid")
    for word in ("replicaNotifications", "replicaMetadata", "replicaPolicies", "removeReplicaMetadata", "node"):
        parts = {"serialVersion": "1", "nodeRef": "urn:node:OPEN", "status": "completed", "nodeId": "urn:node:OPEN"}
        c.ask("PUT", f"/cn/v2/{word}/{pid}", c.dice.choice(LOW), parts=parts)
    c.ask("POST", "/cn/v2/synchronize", c.role(), parts={"pid": pid})
    c.ask("GET", f"/cn/v2/reserve/{pid}?subject=tester-read", c.role())
    for word in ("replicate", "dirtySystemMetadata", "error"):
        c.ask("POST", f"/mn/v2/{word}", c.dice.choice(LOW), parts={"pid": pid, "message": "x", "sysmeta": "x"})
    for word in ("checksum", "isAuthorized", "replica"):
        c.ask("GET", f"/mn/v2/{word}/{pid}", c.role())
