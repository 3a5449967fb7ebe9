"""What an admin makes for one cell alone, so that no cell changes the answer of another."""

import re
from collections.abc import Mapping
from typing import Any

from tests.access.world import World, archive, form
from tests.replay.serving import Call, until

Values = Mapping[str, Any]
_NODE = """<?xml version="1.0" encoding="UTF-8"?>
<d1:node xmlns:d1="http://ns.dataone.org/service/types/v2.0" replicate="false" synchronize="true" type="mn" state="up">
<identifier>{urn}</identifier><name>n</name><description>d</description><baseURL>{base}</baseURL><services>
<service name="MNCore" version="v2" available="true"/><service name="MNRead" version="v2" available="true"/></services>
<synchronization><schedule hour="*" mday="*" min="0/5" mon="*" sec="0" wday="?" year="*"/></synchronization>
<subject>CN={urn},DC=dataone,DC=org</subject><contactSubject>CN=tester</contactSubject></d1:node>
"""


class Fresh:
    """`own` of the answer is the id or name that the request is about; it is called `own` in the table."""

    def __init__(self, world: World, kind: str, role: str, n: int) -> None:
        self.world, self.kind, self.role, self.n = world, kind, role, n
        self.values = world.values[kind]
        self.name = f"own-{n}"

    def make(self, what: str) -> Values:
        made: Values = getattr(self, what)()
        return made

    def _ask(self, method: str, path: str, body: Any = None, role: str = "admin") -> Any:
        return self.world.ask(method, path, body, role)

    def source(self) -> Values:
        url = f"{self.world.shared['forge']}/own/{self.n}"
        return {"own": self._ask("POST", "/sources", {"url": url, "visibility": self.kind})["source"]["id"]}

    def list(self) -> Values:
        url = f"{self.world.shared['forge']}/own/{self.n}"
        return {"own": self._ask("POST", "/lists", {"url": url, "visibility": self.kind})["id"]}

    def running(self) -> Values:
        task = {"name": "a", "argv": ["true"], "source": self.values["source"], "selector": 'os == "never"'}
        made = self._ask("POST", "/contexts", {"name": self.name, "tasks": [task]})
        return {"own": made["id"], "own_task": self._ask("GET", f"/contexts/{made['id']}")["tasks"][0]["id"]}

    def ended(self) -> Values:
        made = self.running()
        self._ask("POST", f"/contexts/{made['own']}/cancel")
        until(lambda: self._ask("GET", f"/contexts/{made['own']}/wait?seconds=60")["state"] != "RUNNING", "an end")
        return made

    def benchmark(self) -> Values:
        spec = {"name": self.name, "source": self.values["source"], "command": ["true"], "selector": 'os == "never"'}
        self._ask("POST", "/benchmarks", spec)
        self._ask("POST", f"/benchmarks/{self.name}/pause")
        return {"own": self.name}

    def switched(self) -> Values:
        """One for all cells: to switch twice is the same as once."""
        name = f"switched-{self.kind}"
        if name not in self.world.shared:
            self.name = self.world.shared[name] = name
            self.benchmark()
        return {"own": name}

    def evaluation(self) -> Values:
        return {"own": self.world.evaluations[self.kind].pop()}

    def credential(self) -> Values:
        self._ask("PUT", f"/credentials/{self.name}", {"host": f"own{self.n}.example.org", "token": "some-secret"})
        return {"own": self.name}

    def hook(self) -> Values:
        host = self.world.shared["forge"].removeprefix("http://")
        self._ask("PUT", "/credentials/hook", {"host": host, "token": "hook-secret", "use": "hook"})
        return {}

    def archive(self) -> Values:
        return {"body": archive(self.name)}

    def package(self) -> Values:
        self.world.push(self.name)
        return {"own": self.name}

    def rule(self) -> Values:
        context = {"name": "x", "tasks": [{"name": "a", "argv": ["true"], "selector": 'os == "never"'}]}
        self._ask("POST", "/rules", {"name": self.name, "source": self.values["name"], "context": context})
        return {"own": self.name}

    def search(self) -> Values:
        """Saved by the caller of the cell; a stranger tries that of an admin."""
        subject = f"tester-{'admin' if self.role == 'none' else self.role}"
        made = self._ask("POST", "/tokens", {"subject": subject, "scopes": ["admin"]})
        self.world.tokens["saver"] = made["token"]
        self._ask("PUT", f"/searches/{self.name}", {"query": "honey"}, role="saver")
        return {"own": self.name}

    def space(self) -> Values:
        self._ask("POST", f"/spaces/{self.name}/put", {"fields": ["own-tuple", 1]})
        return {"own": self.name}

    def taken(self) -> Values:
        self.space()
        made = self._ask("POST", f"/spaces/{self.name}/get", {"template": ["own-tuple", 1], "ticket": "t"})
        return {"own": self.name, "seq": made["taken"]["seq"]}

    def token(self) -> Values:
        return {"own": self._ask("POST", "/tokens", {"subject": "own", "scopes": ["read"]})["info"]["id"]}

    def own_token(self) -> Values:
        return {"token": self.world.tokens.get(self.role, "skep_wrong")}

    def member_token(self) -> Values:
        return {"own": self._ask("POST", "/workers/tokens", {"name": self.name})["info"]["id"]}

    def topic(self) -> Values:
        self._ask("POST", "/topics", {"name": self.name})
        return {"own": self.name}

    def own_or_built_in(self) -> Values:
        return self.topic() if self.kind == "public" else {"own": "skep.changes"}

    def member(self) -> Values:
        made = self._ask("POST", f"/topics/{self.values['topic']}/groups/{self.name}/join", {})
        generation = made["leases"][0]["generation"]
        return {"group": self.name, "member": made["member"], "generation": generation}

    def left(self) -> Values:
        made = self.member()
        self._ask("POST", f"/topics/{self.values['topic']}/groups/{self.name}/leave", {"member": made["member"]})
        return made

    def _old(self, what: str, topic: str) -> int:
        call = Call("POST", f"/{what}/register", {}, f'{{"topic": "{topic}"}}'.encode())
        reply = self.world.send("admin", call)
        assert reply.status == 200, reply.text
        return int(reply.json()[f"{what}_id"])

    def producer(self) -> Values:
        self.topic()
        return {"own": self.name, "producer": self._old("producer", self.name)}

    def consumer(self) -> Values:
        """Of a topic of its own; a consumer cannot register at a built-in one, but it can try to read one."""
        topic = str(self.topic()["own"])
        consumer = self._old("consumer", topic)
        self._ask("POST", f"/topics/{topic}/messages", {"body": "own-message"})
        return {"own": topic if self.kind == "public" else "skep.changes", "consumer": consumer}

    def node(self) -> Values:
        urn = f"urn:node:OWN{self.n}"
        base = f"http://127.0.0.1:1/own{self.n}"
        reply = self.world.send("admin", form("POST", "/cn/v2/node", {"node": _NODE.format(urn=urn, base=base)}))
        assert reply.status == 200, reply.text
        return {"own": urn}

    def document(self) -> Values:
        return {"document": _NODE.format(urn=f"urn:node:NEW{self.n}", base=f"http://127.0.0.1:1/new{self.n}")}

    def node_document(self) -> Values:
        return {"document": _NODE.format(urn=self.values["node"], base=self.values["node_base"])}

    def reservation(self) -> Values:
        self.world.send("admin", form("POST", "/cn/v2/reserve", {"pid": "reserved.1"}))
        return {}

    def serial(self) -> Values:
        found = re.search(r"<serialVersion>(\d+)<", self._meta())
        assert found
        return {"serial": found[1]}

    def sysmeta(self) -> Values:
        return {"sysmeta": self._meta()}

    def _meta(self) -> str:
        reply = self.world.send("admin", Call("GET", f"/cn/v2/meta/{self.values['pid']}"))
        assert reply.status == 200, reply.text
        return reply.text
