"""The objects that the access table asks for: of each kind a public and a private one, on a real running server."""

import io
import json
import re
import sys
import tarfile
from collections.abc import Mapping
from typing import Any

from tests.replay.serving import Call, HttpClient, Reply, SkepProcess, until
from tests.replay.upstream import NODE_TOKEN, Upstream

ROLES: dict[str, tuple[str, ...]] = {
    "none": (),
    "read": ("read",),
    "read+private": ("read", "private"),
    "write": ("write",),
    "read+write": ("read", "write"),
    "admin": ("admin",),
}
#: further roles for some operations: (beginning of their names, role, subject), with the scopes read and write
SPECIAL = (("POST /mn/", "coordinating-node", "CN=urn:node:cnSkep,DC=dataone,DC=org"),)
OBJECTS = ("public", "private")
#: of each kind: one to show, and one to remove for each role
EVALUATIONS = 1 + len(ROLES)
#: ids that a server makes: a prefix and a ULID, or a prefix and a digest
ID = re.compile(r"\b[a-z]{3}_(?:[0-9A-HJKMNP-TV-Z]{26}|[a-z2-7]{32})\b")
#: ids of messages, which are not objects
EVENTS = {"tke": "event-of-a-task", "mat": "event-of-a-search"}
_REPOSITORIES = {"public": ("pub", "alpha", "open"), "private": ("sec", "omega", "hidden")}
_NODES = {"public": "urn:node:OPEN", "private": "urn:node:CLOSED"}
MANIFEST = """group = "org.example"
name = "{name}"
version = "1.0"
[commands]
run = ["sh", "run.sh"]
[tasks.once]
command = "run"
[contexts.single]
name = "single"
[[contexts.single.tasks]]
name = "a"
template = "once"
"""


class World:
    """`values` are used in requests; `marks` are texts that give an object away in an answer, and its name."""

    def __init__(self, server: SkepProcess, upstream: Upstream) -> None:
        self.server = server
        self.upstream = upstream
        self.http = HttpClient(server.url)
        self.tokens = {"admin": server.token}
        self.values: dict[str, dict[str, Any]] = {one: {"visibility": one, "kind": one} for one in OBJECTS}
        self.shared: dict[str, str] = {
            "forge": upstream.forge.url("").rstrip("/"),
            "open_node": upstream.open_node.base,
        }
        self.marks: dict[str, str] = {}
        self.evaluations: dict[str, list[str]] = {}
        self.number = 0

    # requests

    def send(self, role: str, call: Call) -> Reply:
        token = self.tokens.get(role, "")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return self.http.send(Call(call.method, call.path, {**headers, **call.headers}, call.body, call.blocks))

    def ask(self, method: str, path: str, body: Any = None, role: str = "admin") -> Any:
        """A request that has to succeed; its JSON."""
        raw = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} if raw else {}
        reply = self.send(role, Call(method, f"/api/v1{path}", headers, raw))
        assert reply.status < 300, (method, path, body, reply.status, reply.text)
        return reply.json() if reply.body else None

    def fresh(self) -> int:
        self.number += 1
        return self.number

    # names

    def mark(self, name: str, *texts: str) -> None:
        self.marks.update({text: name for text in texts if text})

    def seen(self, text: str, own: Mapping[str, str]) -> set[str]:
        """Names of the objects whose marks are in a text."""
        known = {**self.marks, **own}
        found = {name for mark, name in known.items() if mark in text}
        unknown = {id[:3] for id in ID.findall(text) if id not in known}
        return found | {EVENTS.get(prefix, f"unknown:{prefix}") for prefix in unknown}

    # what is in it

    def build(self) -> None:
        for role, scopes in ROLES.items():
            if scopes:
                made = self.ask("POST", "/tokens", {"subject": f"tester-{role}", "scopes": list(scopes)})
                self.tokens[role] = made["token"]
                self.mark(f"token-of-{role}", made["info"]["id"])
        for _, role, subject in SPECIAL:
            made = self.ask("POST", "/tokens", {"subject": subject, "scopes": ["read", "write"]})
            self.tokens[role] = made["token"]
            self.mark(f"token-of-{role}", made["info"]["id"])
        self._others()
        self._sources()
        self._nodes()
        self._copies()
        for kind in OBJECTS:
            self._work(kind)
        self._settle()
        self._name_the_rest()

    def _sources(self) -> None:
        for kind, (owner, name, word) in _REPOSITORIES.items():
            values = self.values[kind]
            for what, path in (("source", f"{owner}/{name}"), ("list", f"{owner}/list")):
                url = self.upstream.forge.url(path)
                if what == "list":
                    made = self.ask("POST", "/lists", {"url": url, "visibility": kind})
                    values["list"] = made["id"]
                    self.mark(f"{kind}-list", made["id"], f"{owner}/list")
                else:
                    made = self.ask("POST", "/sources", {"url": url, "visibility": kind})["source"]
                    values |= {"source": made["id"], "name": made["name"], "url": url, "word": word}
                    self.mark(f"{kind}-source", made["id"], f"{owner}/{name}")
            values["path"] = f"docs/{word}.txt"
        for kind in OBJECTS:
            source = self.values[kind]["source"]
            done = self.ask("GET", f"/sources/{source}/wait?timeout=60")
            assert done["settled"], done
            values, word = self.values[kind], self.values[kind]["word"]
            values["commit"] = done["source"]["indexed_commit"]
            self.mark(f"{kind}-commit", values["commit"])
            self.mark(f"{kind}-content", f"{word}honey", f"{word}_find", f"{word} change", f"{word}.txt")
            until(lambda kind=kind: self.ask("GET", f"/lists/{self.values[kind]['list']}/entries")["items"], "a list")  # type: ignore[misc]

    def _nodes(self) -> None:
        host = self.upstream.open_node.base.split("/")[2]
        self.ask("PUT", "/credentials/node", {"host": host, "token": NODE_TOKEN, "public": True})
        for kind, node in (("public", self.upstream.open_node), ("private", self.upstream.closed_node)):
            made = self.ask("POST", "/sources", {"url": node.base, "kind": "dataone", "visibility": kind})["source"]
            self.values[kind] |= {"node": _NODES[kind], "node_source": made["id"], "node_base": node.base}
            self.mark(f"{kind}-node", made["id"], _NODES[kind], node.base)
        pids = {"public": "open.meta.1", "private": "hidden.meta.1"}
        for kind, pid in pids.items():
            self.values[kind]["pid"] = pid
        for pid in self.upstream.open_node.pids + self.upstream.closed_node.pids:
            self.mark(f"object-{pid}", pid)
        self.mark("object-hidden.meta.1", "Hidden glacier")
        self.mark("object-hidden.meta.2", "Hidden moraine")
        self.mark("object-open.meta.1", "Open glacier")

        def harvested() -> bool:
            nodes = {one["id"]: one["objects"] for one in self.ask("GET", "/dataone/nodes")["nodes"]}
            # (an object of data is known, its bytes stay with the node)
            held = [sum(nodes.get(urn, {}).values()) for urn in _NODES.values()]
            waits = [key for one in nodes.values() for key in one if key in ("queued", "missing")]
            return held == [4, 1] and not waits

        until(harvested, f"a harvest: {self.ask('GET', '/dataone/nodes')}")
        until(lambda: self.ask("GET", "/dataone/index")["waiting"] == 0, "an index of records")

    def _copies(self) -> None:
        """Objects of which this server holds copies as a Member Node; it is its own Coordinating Node."""
        host = self.server.url.removeprefix("http://")
        self.ask("PUT", "/credentials/self", {"host": host, "token": self.tokens["read"], "public": True})
        for kind in OBJECTS:
            pid = self.values[kind]["pid"]
            meta = self.send("admin", Call("GET", f"/cn/v2/meta/{pid}")).text
            call = form("POST", "/mn/v2/replicate", {"sysmeta": meta, "sourceNode": "urn:node:OPEN"})
            reply = self.send("coordinating-node", call)
            assert reply.status == 200, reply.text
            until(lambda pid=pid: self.send("admin", Call("GET", f"/mn/v2/meta/{pid}")).status == 200, "a copy")  # type: ignore[misc]

    def _work(self, kind: str) -> None:
        """Tasks, results and a benchmark of a source."""
        values, source = self.values[kind], self.values[kind]["source"]
        code = (
            "from skep import task\n"
            f"for n in range({EVALUATIONS}): task.evaluation(f'page{{n}}', b'<p>page</p>', 'text/html')"
        )
        benchmark = {
            "name": f"{values['word']}-speed",
            "source": source,
            "mode": "range",
            "range": "v1..main",
            "command": ["true"],
            "repetitions": 1,
            "warmup": 0,
        }
        made = self.ask("POST", "/benchmarks", benchmark)
        values |= {"benchmark": benchmark["name"], "generator": made["generator"]}
        self.mark(f"{kind}-benchmark", made["id"], f"{values['word']}-speed")
        tasks = [
            {"name": "say", "argv": ["sh", "-c", f"echo {values['word']}output"], "source": source},
            {
                "name": "page",
                "argv": [sys.executable, "-c", code],
                "source": source,
                "properties": {"skep.benchmark": f"{values['word']}-speed"},
            },
        ]
        context = self.ask("POST", "/contexts", {"name": f"work-{values['word']}", "tasks": tasks})
        values["context"] = context["id"]
        self.mark(f"{kind}-context", context["id"], f"work-{values['word']}")
        until(lambda: self.ask("GET", f"/contexts/{context['id']}/wait?seconds=60")["state"] != "RUNNING", "tasks")
        view = self.ask("GET", f"/contexts/{context['id']}")
        states = {task["name"]: (task["id"], task["state"], task["reason"]) for task in view["tasks"]}
        assert all(state == "FINISHED" for _, state, _ in states.values()), states
        values["task"] = states["say"][0]
        self.mark(f"{kind}-task", values["task"])
        self.mark(f"{kind}-output", f"{values['word']}output")
        drafts = [{"metric": f"{values['word']}-metric", "value": 1.5, "unit": "s"}]
        self.ask("POST", "/results", {"task": values["task"], "results": drafts})
        query = f"/results?where=metric%3D{values['word']}-metric"
        values["result"] = self.ask("GET", query)["items"][0]["id"]
        self.mark(f"{kind}-result", values["result"], f"{values['word']}-metric")

    def _others(self) -> None:
        """What has no visibility of its own, and what belongs to a caller."""
        self.push("tool")
        self.mark("package", "org.example/tool", "tool-1.0", '"name":"tool"')
        for topic in ("news", "other"):
            self.ask("POST", "/topics", {"name": topic})
        self.mark("own-topic", '"news"', "topics/news")
        self.ask("POST", "/topics/news/messages", {"body": {"text": "own-message"}})
        self.mark("own-message", "own-message")
        for kind in OBJECTS:
            self.values[kind]["topic"] = "news" if kind == "public" else "skep.changes"
        for topic in ("news", "skep.changes"):
            # a group without members: a member would expire in the middle of the run
            member = self.ask("POST", f"/topics/{topic}/groups/readers/join", {})["member"]
            self.ask("POST", f"/topics/{topic}/groups/readers/leave", {"member": member})
        self.ask("POST", "/spaces/room/put", {"fields": ["own-tuple", 1]})
        self.mark("own-tuple", "own-tuple")
        self.mark("own-space", '"room"')
        self.ask("PUT", "/credentials/plain", {"host": "git.example.org", "token": "a-plain-secret"})
        self.mark("credential", "git.example.org")
        self.mark("secret-of-a-credential", "a-plain-secret", NODE_TOKEN)
        spec = {"name": "nightly", "cron": "0 0 1 1 *", "context": {"name": "night", "tasks": [TASK]}}
        self.ask("POST", "/rules", spec)
        self.mark("rule", "nightly")
        for role in ("read", "read+write", "admin"):
            # (a subject with another token: to save needs more than to list)
            made = self.ask("POST", "/tokens", {"subject": f"tester-{role}", "scopes": ["admin"]})
            self.tokens["saver"] = made["token"]
            self.mark("token-of-saver", made["info"]["id"])
            name = f"saved-{role.replace('+', '-')}-one"
            self.ask("PUT", f"/searches/{name}", {"query": "honey"}, role="saver")
            self.mark(f"search-of-{role}", name)
        member = self.ask("POST", "/workers/tokens", {"name": "member-one", "shared": True})
        self.mark("member-token", member["info"]["id"], "member-one")

    def push(self, name: str) -> None:
        reply = self.send("admin", Call("POST", "/api/v1/packages", {}, archive(name)))
        assert reply.status == 201, reply.text

    def _settle(self) -> None:
        """Nothing runs any more, so that lists stay as they are."""

        def quiet() -> bool:
            running = self.ask("GET", "/contexts?state=RUNNING&limit=1000")["items"]
            states = [one["state"] for one in self.ask("GET", "/benchmarks")["items"]]
            published = json.dumps(self.ask("GET", "/topics/skep.tasks/messages?max=1000"))
            contexts = self.ask("GET", "/contexts?limit=1000")["items"]
            return not running and "running" not in states and all(one["id"] in published for one in contexts)

        until(quiet, "benchmarks and tasks to end")

    def _name_the_rest(self) -> None:
        self.shared["worker"] = self.ask("GET", "/workers")[0]["member"]["id"]
        names = {"wrk": "worker", "man": "manager", "crd": "coordinator", "srv": "server"}
        for id in ID.findall(json.dumps(self.ask("GET", "/status"))):
            if id[:3] in names:
                self.mark(names[id[:3]], id)
        kinds = {self.values[kind][name]: kind for kind in OBJECTS for name in ("source", "node_source")}
        for listed in self.ask("GET", "/sources?limit=1000")["items"]:
            if listed["id"] not in kinds:
                kinds[listed["id"]] = listed["visibility"]
                self.mark(f"{listed['visibility']}-list-source", listed["id"])
            for change in self.ask("GET", f"/sources/{listed['id']}/changes?limit=1000")["items"]:
                name = self.marks[listed["id"]]
                self.mark(f"{name}-change", change["id"])
                self.mark(f"{name}-batch", change.get("batch", ""))
        for context in self.ask("GET", "/contexts?limit=1000")["items"]:
            self._name_context(context, kinds)
        for values in self.values.values():
            values["messages"] = len(self.ask("GET", f"/topics/{values['topic']}/messages?max=1000")["messages"])
        for kind in OBJECTS:
            made = self.ask("GET", f"/evaluations?benchmark={self.values[kind]['benchmark']}")["items"]
            assert len(made) == EVALUATIONS, made
            self.values[kind]["evaluation"] = made[0]["id"]
            self.evaluations[kind] = [one["id"] for one in made[1:]]
            self.mark(f"{kind}-evaluation", *(one["id"] for one in made))
        for result in self.ask("GET", "/results?limit=1000")["items"]:
            kind = kinds.get(result["source"], "other")
            self.marks.setdefault(result["id"], f"{kind}-measured")

    def _name_context(self, context: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
        view = self.ask("GET", f"/contexts/{context['id']}")
        for task in view["tasks"]:
            spec = self.ask("GET", f"/tasks/{task['id']}")["spec"]
            text = json.dumps([spec, context])
            kind = next((kind for source, kind in kinds.items() if source in text), "")
            kind = kind or next((kind for kind in OBJECTS if f"{self.values[kind]['word']}-speed" in text), "other")
            self.marks.setdefault(task["id"], f"{kind}-{spec.get('kind', 'command')}-task")
            self.marks.setdefault(context["id"], f"{kind}-{spec.get('kind', 'command')}-context")


def form(method: str, path: str, parts: Mapping[str, str]) -> Call:
    """multipart/form-data: a document travels as a file, a text as a value."""
    mark = "a-boundary-that-no-document-holds"
    body = ""
    for name, value in parts.items():
        file = f'; filename="{name}.xml"\r\nContent-Type: text/xml' if value.startswith("<") else ""
        body += f'--{mark}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n{value}\r\n'
    media = f"multipart/form-data; boundary={mark}"
    return Call(method, path, {"content-type": media}, f"{body}--{mark}--\r\n".encode())


TASK = {"name": "nothing", "kind": "command", "argv": ["true"]}


def archive(name: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for path, text in (("skep-package.toml", MANIFEST.format(name=name)), ("run.sh", "echo run\n")):
            info = tarfile.TarInfo(path)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return content.getvalue()
