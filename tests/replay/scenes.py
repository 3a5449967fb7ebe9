"""What people and programs do with a Skep, as requests: things are made, used and removed."""

import base64
import io
import zipfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.replay.duties import clicked_context, forms, nodes_tell, operator
from tests.replay.questions import HTML, git, mistakes, node_calls, pages_of_search, reads, search, solr
from tests.replay.upstream import NODE_TOKEN

if TYPE_CHECKING:
    from tests.replay.corpus import Corpus

NEVER = 'os == "never"'
Scene = Callable[["Corpus"], None]
NODE = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<d1:node xmlns:d1="http://ns.dataone.org/service/types/v2.0" '
    'replicate="false" synchronize="true" type="mn" state="up"><identifier>{urn}</identifier><name>n</name>'
    "<description>d</description><baseURL>{base}</baseURL><services>"
    '<service name="MNCore" version="v2" available="true"/><service name="MNRead" version="v2" available="true"/>'
    '</services><synchronization><schedule hour="*" mday="*" min="0/5" mon="*" sec="0" wday="?" year="*"/>'
    "</synchronization><subject>CN={urn},DC=dataone,DC=org</subject><contactSubject>CN=tester</contactSubject>"
    "</d1:node>"
)
OUT = """echo '{"metric": "time", "value": 1.5, "unit": "s"}' > out.jsonl"""


def prepare(c: "Corpus") -> None:
    """One after the other, so that both servers make their ids and messages in the same order."""
    for role, scopes in {"read": ["read"], "private": ["read", "private"], "write": ["read", "write"]}.items():
        c.api("POST", "/tokens", json={"subject": f"tester-{role}", "scopes": scopes}, keep={f"token:{role}": "token"})
    for path, visibility in (("pub/alpha", "public"), ("pub/beta", "public"), ("sec/omega", "private")):
        _source(c, path, visibility)
    _list(c)
    _nodes(c)
    _benchmark(c)
    _done(c, {"name": "run", "tasks": [{"name": "say", "argv": ["sh", "-c", "echo said; exit 3"]}]})
    for name in ("skep.changes", "skep.failures", "skep.searches"):
        c.api("GET", f"/topics/{name}")
        c.api("GET", f"/topics/{name}/messages?max=1000")
        c.api("GET", f"/topics/{name}/messages?max=3", "read")
        c.known.setdefault("topic", []).append(name)
    c.api("GET", "/contexts?state=RUNNING", until=["items", "==", []])


def _source(c: "Corpus", path: str, visibility: str) -> None:
    name, keep = c.keeps("source", "source.id")
    c.api("POST", "/sources", json={"url": f"{{forge}}/{path}", "visibility": visibility}, keep=keep)
    c.api("GET", f"/sources/{name}/wait?timeout=60", until=["settled", "==", True])
    c.api("GET", f"/sources/{name}/report", until=["status", "==", 200])
    c.api("GET", "/contexts?state=RUNNING", until=["items", "==", []])
    c.api(
        "GET",
        f"/sources/{name}",
        until=["progress", "==", None],
        keep={f"commit:{path}": "indexed_commit", f"name:{path}": "name"},
    )
    c.known.setdefault("source", []).append(name)
    c.known.setdefault("commit", []).append(f"{{commit:{path}}}")
    c.known.setdefault("git", []).append(f"{{name:{path}}}")


def _list(c: "Corpus") -> None:
    name, keep = c.keeps("list", "id")
    c.api("POST", "/lists", json={"url": "{forge}/pub/list"}, keep=keep)
    c.api("GET", f"/lists/{name}/entries", until=["items", "!=", []])
    c.api("GET", "/source?ref={forge}/pub/list", until=[["indexed_commit", "set", None], ["progress", "==", None]])
    c.api("GET", "/contexts?state=RUNNING", until=["items", "==", []])
    c.known["list"] = [name]


def _nodes(c: "Corpus") -> None:
    c.api("PUT", "/credentials/node", json={"host": "{node_host}", "token": NODE_TOKEN, "public": True})
    # a node that registers itself has one connection before its harvest begins: objects come in order
    c.ask("POST", "/cn/v2/node", parts={"node": NODE.format(urn="urn:node:OPEN", base="{open_node}")})
    c.api("PATCH", "/dataone/nodes/urn:node:OPEN", json={"connections": 1})
    for base, urn, visibility, objects in (
        ("{open_node}", "urn:node:OPEN", "public", 4),
        ("{closed_node}", "urn:node:CLOSED", "private", 1),
    ):
        name, keep = c.keeps("source", "id" if visibility == "public" else "source.id")
        if visibility == "public":
            c.api("POST", f"/dataone/nodes/{urn}/approve")
            c.api("GET", f"/source?ref={base}", until=["state", "==", "current"], keep=keep)
        else:
            c.api("POST", "/sources", json={"url": base, "kind": "dataone", "visibility": visibility}, keep=keep)
        c.api("GET", f"/sources/{name}/changes?limit=100", until=["items", "len", objects])
        c.api("GET", "/dataone/index", until=["waiting", "==", 0])
        c.known["source"].append(name)
        c.known.setdefault("node", []).append(urn)
    c.known["pid"] = ["open.meta.1", "open.data.1", "open.map.1", "hidden.meta.1", "hidden.meta.2"]


def _benchmark(c: "Corpus") -> None:
    spec = {
        "name": "speed",
        "source": c.known["source"][0],
        "mode": "range",
        "range": "v1..main",
        "command": ["sh", "-c", OUT],
        "read": "out.jsonl",
        "repetitions": 1,
        "warmup": 0,
        "selector": 'os == "linux"',
    }
    c.api("POST", "/benchmarks", json=spec)
    c.api("GET", "/benchmarks/speed", until=["state", "==", "finished"])
    c.api("GET", "/contexts?state=RUNNING", until=["items", "==", []])
    for path in ("", "/series", "/steps"):
        c.api("GET", f"/benchmarks/speed{path}")
    c.known["benchmark"] = ["speed"]


def _done(c: "Corpus", spec: dict[str, Any]) -> str:
    """A context that ran, with what it wrote."""
    name, keep = c.keeps("context", "id")
    c.api("POST", "/contexts", json=spec, keep=keep)
    c.api("GET", f"/contexts/{name}/wait?seconds=60", until=["state", "!=", "RUNNING"])
    task, keep = c.keeps("task", "tasks.0.id")
    c.api("GET", f"/contexts/{name}", keep=keep)
    for path in ("", "/output", "/output?stream=stderr", "/output?follow=true"):
        c.api("GET", f"/tasks/{task}{path}", blocks=9)
    for page in (f"/tasks/{task}", f"/tasks/{task}/output", f"/contexts/{name}"):
        c.ask("GET", page, headers=HTML)
    c.known.setdefault("context", []).append(name)
    c.known.setdefault("task", []).append(task)
    return name


# lives


def topic(c: "Corpus") -> None:
    role, name = c.dice.choice(("admin", "write")), f"topic-{c.number()}"
    c.api("POST", "/topics", role, json={"name": name, "partitions": c.dice.choice((1, 1, 2, 0))})
    c.api("POST", "/topics", role, json={"name": name})
    for _ in range(c.dice.randrange(1, 4)):
        body = c.dice.choice(
            ({"body": c.dice.choice((1, "text", {"a": [1]}, None))}, {"messages": [{"body": 1}, {"body": 2}]}, {})
        )
        c.api(
            "POST",
            f"/topics/{name}/messages",
            c.role(),
            json=body | c.dice.choice(({}, {"key": "k"}, {"headers": {"h": "v"}})),
        )
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {"x": 1}}
    c.api(
        "POST", f"/topics/{name}/messages", role, json=event, headers={"content-type": "application/cloudevents+json"}
    )
    for path in (
        "",
        "/messages",
        "/messages?offset=1&max=1",
        "/messages?partition=7",
        "/places?start=end",
        "/places?start=x",
    ):
        c.api("GET", f"/topics/{name}{path}", c.role())
    c.api("GET", f"/topics/{name}/follow?offset=0", role, blocks=1)
    _group(c, name, role)
    c.api("PATCH", f"/topics/{name}", c.role(), json={"retain_seconds": 2_592_000.0})
    c.api("POST", f"/topics/{name}/trim", c.role(), json={"before": 1})
    c.ask("GET", f"/topics/{name}", c.role(), headers=HTML)
    c.known.setdefault("topic", []).append(name)


def _group(c: "Corpus", topic: str, role: str) -> None:
    path, group = f"/topics/{topic}/groups/g{c.number()}", c.keeps("member", "member")
    c.api("POST", f"{path}/join", role, json={}, keep=group[1])
    c.api(
        "POST",
        f"{path}/commit",
        c.role(),
        json={"member": group[0], "commits": [{"partition": 0, "generation": 1, "offset": 1}]},
    )
    c.api("GET", f"{path}/lag", c.role())
    c.api("POST", f"{path}/leave", role, json={"member": group[0]})
    c.api("POST", f"{path}/seek", c.role(), json={"to": c.dice.choice(("end", "beginning", "offset:1", "nowhere"))})
    c.api("GET", f"{path}/lag", role)


def queue(c: "Corpus") -> None:
    name, producer, consumer = (
        f"queue-{c.number()}",
        c.keeps("producer", "producer_id"),
        c.keeps("consumer", "consumer_id"),
    )
    c.ask("POST", "/topics", c.role(), json={"name": name})
    c.ask("POST", "/topics", json={"name": name})
    c.ask("POST", "/producer/register", json={"topic": name}, keep=producer[1])
    c.ask("POST", "/consumer/register", json={"topic": name}, keep=consumer[1])
    for n in range(c.dice.randrange(3)):
        c.ask(
            "POST", "/producer/produce", c.role(), json={"topic": name, "producer_id": producer[0], "message": f"m{n}"}
        )
    for _ in range(3):
        c.ask("GET", f"/size?topic={name}&consumer_id={consumer[0]}", c.role())
        c.ask(
            "GET",
            f"/consumer/consume?topic={name}&consumer_id={consumer[0]}",
            c.dice.choice(("admin", "write", "none")),
        )
    c.ask("GET", "/topics", c.role())


def space(c: "Corpus") -> None:
    path, taken = f"/spaces/space-{c.number()}", c.keeps("seq", "taken.seq")
    role, any_two = c.dice.choice(("admin", "write")), [{"type": "str"}, {"type": "any"}]
    for n in range(c.dice.randrange(1, 4)):
        c.api("POST", f"{path}/put", role, json={"fields": [f"f{n}", n], "id": c.dice.choice(("", f"id{n}"))})
    c.api("POST", f"{path}/query", c.role(), json={"template": any_two})
    c.api("POST", f"{path}/get", role, json={"template": any_two, "ticket": "t1"}, keep=taken[1])
    verb = c.dice.choice(("acknowledge", "give_back", "keep"))
    c.api("POST", f"{path}/{verb}", c.role(), json={"seq": taken[0], "ticket": c.dice.choice(("t1", "t1", "other"))})
    c.api("POST", f"{path}/replace", c.role(), json={"template": any_two, "fields": ["r", 1.5]})
    c.api("POST", f"{path}/{c.dice.choice(('query_all', 'get_all'))}", c.role(), json={"template": any_two})
    c.api("GET", path, c.role())
    c.api("DELETE", path, c.role())


def work(c: "Corpus") -> None:
    """A context that no worker can run; to end it is what a person does."""
    name, keep = c.keeps("context", "id")
    source = c.some("source")
    tasks: list[dict[str, Any]] = [
        {"name": "a", "argv": ["true"], "selector": NEVER},
        {"name": "b", "argv": ["true"], "needs": [{"task": "a"}]},
    ]
    if source != "no-such-source":
        tasks[0] |= {"source": source}
    c.api("POST", "/contexts", json={"name": f"work-{c.number()}", "tasks": tasks, "properties": {"p": "v"}}, keep=keep)
    task, keep = c.keeps("task", "tasks.0.id")
    c.api("GET", f"/contexts/{name}", keep=keep)
    c.api("GET", f"/tasks/{task}", c.role())
    c.api(
        "POST",
        f"/contexts/{name}/tasks",
        c.role(),
        json={"tasks": [{"name": "c", "argv": ["true"], "selector": NEVER}]},
    )
    c.api("POST", f"/tasks/{task}/cancel?reason=enough", c.role())
    c.api("POST", f"/contexts/{name}/cancel")
    c.api("GET", f"/contexts/{name}/wait?seconds=60", until=["state", "!=", "RUNNING"])
    c.ask("GET", f"/contexts/{name}", c.role(), headers=HTML)
    if c.dice.random() < 0.5:
        c.api("DELETE", f"/contexts/{name}")
    else:
        c.known.setdefault("context", []).append(name)
        c.known.setdefault("task", []).append(task)


def rule(c: "Corpus") -> None:
    name, role = f"rule-{c.number()}", c.dice.choice(("admin", "write"))
    context = {"name": "x", "tasks": [{"name": "a", "argv": ["true"], "selector": NEVER}]}
    c.api("POST", "/rules", role, json={"name": name, "source": c.dice.choice(("**", "x/*", "")), "context": context})
    c.api("GET", f"/rules/{name}", c.role())
    c.api(
        "PATCH", f"/rules/{name}", c.role(), json=c.dice.choice(({"enabled": False}, {"refs": ["main"]}, {"cron": "x"}))
    )
    c.ask("POST", f"/rules/{name}/{c.dice.choice(('enable', 'disable'))}", c.role(), form={}, headers=HTML)
    c.ask("GET", "/rules", c.role(), headers=HTML)
    c.api("POST", f"/rules/{name}/fire", c.dice.choice(("read", "private", "none")), json={"source": c.some("source")})
    c.api("POST", f"/rules/{name}/fire", json={"source": "no-such-source"})
    c.api("DELETE", f"/rules/{name}", c.role())
    c.api("DELETE", f"/rules/{name}")


def results(c: "Corpus") -> None:
    task = c.some("task")
    drafts = [{"metric": f"m{c.number()}", "value": c.number() * c.dice.choice((1, 2.5, -1)), "unit": "s"}]
    c.api("POST", "/results", c.role(), json={"task": task, "results": drafts})
    where = quote(c.dice.choice(("metric=m1", "value>=1.5", "metric~m*", "unit=s", "nothing=1")))
    for path in ("", "/aggregate", "/series", "/export"):
        c.api("GET", f"/results{path}?where={where}", c.role())
    c.api("GET", f"/results?order={c.dice.choice(('value', '-value', 'metric', 'zzz'))}&fields=metric,value", c.role())
    c.ask("GET", f"/results?where={where}", c.role(), headers=HTML)


def package(c: "Corpus") -> None:
    name, role = f"tool{c.number()}", c.dice.choice(("admin", "write"))
    ref = f"/packages/org.example/{name}/1.0"
    c.api("POST", "/packages", role, base64=_archive(name))
    c.api("POST", "/packages", c.role(), base64=_archive(name))
    c.api("GET", f"/packages?prefix=org.example/{name}", c.role())
    for path in ("", "/archive"):
        c.api("GET", ref + path, c.role())
    c.api("POST", f"{ref}/run", c.role(), json={"template": c.dice.choice(("none", "other"))})
    c.ask("GET", "/packages", c.role(), headers=HTML)
    c.api("DELETE", ref, c.role())
    c.api("DELETE", ref)


def _archive(name: str) -> str:
    """The same bytes whenever it is made."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        manifest = f'group = "org.example"\nname = "{name}"\nversion = "1.0"\n[commands]\nrun = ["sh", "run.sh"]\n'
        for path, text in (("skep-package.toml", manifest), ("run.sh", "echo run\n")):
            made.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), text)
    return base64.b64encode(content.getvalue()).decode()


def credential(c: "Corpus") -> None:
    name, host = f"cred-{c.number()}", f"h{c.number()}.example.org"
    c.api("PUT", f"/credentials/{name}", c.role(), json={"host": host, "token": "secret"})
    c.ask("POST", f"/credentials/{name}/rotate", c.role(), form={"token": "other"}, headers=HTML)
    c.api("GET", "/credentials", c.role())
    c.ask("GET", "/credentials", c.role(), headers=HTML)
    c.api("DELETE", f"/credentials/{name}", c.role())
    c.api("DELETE", f"/credentials/{name}")


def token(c: "Corpus") -> None:
    name, keep = c.keeps("token-id", "info.id")
    scopes = c.dice.choice((["read"], ["read", "write"], [], ["king"]))
    c.api("POST", "/tokens", json={"subject": f"s{c.number()}", "scopes": scopes}, keep=keep)
    c.api("DELETE", f"/tokens/{name}", c.role())
    name, keep = c.keeps("member-token", "info.id")
    c.api("POST", "/workers/tokens", json={"name": f"m{c.number()}", "shared": True}, keep=keep)
    c.api("GET", "/workers/tokens", c.role())
    c.api("DELETE", f"/workers/tokens/{name}")
    c.api("POST", "/login-ticket", c.role())
    c.ask("POST", "/login", "none", form={"token": c.dice.choice(("{token:read}", "wrong", ""))}, headers=HTML)


def saved_search(c: "Corpus") -> None:
    name, role = f"saved-{c.number()}", c.dice.choice(("admin", "write"))
    c.api("PUT", f"/searches/{name}", role, json={"query": c.dice.choice(("honey", "file:docs", "type:repo", "(", ""))})
    c.api("GET", "/searches", c.role())
    c.ask("GET", "/searches", role, headers=HTML)
    c.api("DELETE", f"/searches/{name}", c.role())
    c.ask("POST", f"/searches/{name}/remove", role, form={}, headers=HTML)


def one_source(c: "Corpus") -> None:
    """Of a repository that is not there: it is added, changed and removed."""
    name, keep = c.keeps("source", "source.id")
    role, url = c.dice.choice(("admin", "write")), f"{{forge}}/gone/{c.number()}"
    visibility = c.dice.choice(("public", "public", "private"))
    c.api("POST", "/sources", role, json={"url": url, "visibility": visibility}, keep=keep)
    c.api("GET", f"/sources/{name}", "admin", until=["failure", "set", None])
    c.api("POST", "/sources", c.role(), json={"url": url})
    c.api(
        "PATCH",
        f"/sources/{name}",
        c.role(),
        json=c.dice.choice(({"labels": ["a=b"]}, {"visibility": "private"}, {"x": 1})),
    )
    c.api("GET", f"/source?ref={url}", c.role())
    c.api("GET", f"/sources/{name}/{c.dice.choice(('tree', 'changes', 'file?path=a', 'report'))}", c.role())
    c.ask("GET", f"/sources/{name}", c.role(), headers=HTML)
    c.api("DELETE", f"/sources/{name}", "write")
    c.api("DELETE", f"/sources/{name}")
    c.api("GET", f"/sources/{name}")


SCENES: tuple[Scene, ...] = (
    *(topic, queue, space, work, rule, results, credential, token, saved_search, one_source, package),
    *(node_calls, solr, search, pages_of_search, reads, git, mistakes),
    *(operator, forms, clicked_context, nodes_tell),
)
WEIGHTS = (4, 3, 4, 4, 3, 4, 2, 2, 3, 3, 2, 5, 6, 12, 4, 16, 4, 5, 2, 2, 2, 2)
