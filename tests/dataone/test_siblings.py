"""Two Coordinating Nodes with databases of their own harvest each other: whatever is cut or killed, they converge."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from skep.base.caller import Scope
from skep.client import Client
from skep.dataone.encoding import encode, parse, render, write_form
from skep.dataone.testing import OPEN, MemberNode
from skep.dataone.types import AccessPolicy, AccessRule, ObjectList, ReplicationPolicy, SystemMetadata
from skep.testing.documents import EML_21, ORE, eml, resource_map
from skep.testing.server import free_port
from tests.cluster.cluster import Line
from tests.house.running import RunningSkep
from tests.support.postgres import fresh_database

HIDDEN = AccessPolicy((AccessRule(("CN=bob",), ("read",)),))
FAST = {"poll_min": 0.3, "poll_max": 0.6, "dataone_index_within": 0.5}
EVERYTHING: Sequence[Scope] = ("read", "private")
State = dict[str, tuple[SystemMetadata, bytes]]


class Sibling:
    """One of the two, and the way to it."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        self.name = name
        self.urn = f"urn:node:cn{name}"
        self.listen = f"127.0.0.1:{free_port()}"
        self.line = Line(self.listen)
        self._stack = stack
        stack.callback(self.line.close)

    @property
    def base(self) -> str:
        return f"http://{self.line.address}/cn"

    def run(self, folder: Path, trusted: str, **settings: Any) -> None:
        given = {"dataone_node": self.urn, "dataone_siblings": [trusted], **FAST, **settings}
        self.skep = self._stack.enter_context(RunningSkep(folder / self.name, listen=self.listen, **given))
        self.client = self._stack.enter_context(Client(self.skep.url, self.skep.token))

    def add(self, url: str, secret: str) -> str:
        host = urlsplit(url).netloc
        self.client.credentials.put(host.replace(":", "-"), host, secret, public=True)
        return self.client.sources.add(url, kind="dataone").source.id

    def follow(self, other: "Sibling", scopes: Sequence[Scope] = EVERYTHING) -> str:
        """With a token of the other's."""
        return self.add(other.base, other.client.tokens.create(f"CN={self.urn},DC=dataone,DC=org", scopes).token)

    def ask(self, method: str, path: str, form: dict[str, str | bytes] | None = None, *, known: bool = True) -> bytes:
        with closing(HTTPConnection(self.listen, timeout=30)) as line:
            media, body = write_form(form) if form else ("text/plain", b"")
            headers = {"authorization": f"Bearer {self.skep.token}"} if known else {}
            line.request(method, f"/cn/v2/{path}", body, {"content-type": media, **headers})
            answer = line.getresponse()
            read = answer.read()
        assert answer.status == 200, (path, answer.status, read)
        return read

    def meta(self, pid: str) -> SystemMetadata:
        return parse(SystemMetadata, self.ask("GET", f"meta/{encode(pid)}"))

    def listed(self, call: str = "object", *, known: bool = True) -> dict[str, int]:
        found = parse(ObjectList, self.ask("GET", f"{call}?count=5000", known=known))
        return {one.identifier: one.date_sys_metadata_modified for one in found.object_info}

    def state(self) -> State:
        """All there is to know, byte for byte."""
        metas = {pid: self.meta(pid) for pid in self.listed()}
        return {pid: (one, b"" if one.format_id == "text/csv" else self._body(pid)) for pid, one in metas.items()}

    def _body(self, pid: str) -> bytes:
        return self.ask("GET", f"object/{encode(pid)}")

    def held(self, urn: str) -> int:
        return next((one.objects.get("held", 0) for one in self.client.dataone.nodes() if one.id == urn), 0)


def until(true: Callable[[], object], what: str, *siblings: Sibling) -> None:
    end = time.monotonic() + 300  # a source that failed thrice rests for two minutes
    while not true():
        assert time.monotonic() < end, what + "".join(
            f"{one.client.dataone.nodes()}{one.skep.tail()}" for one in siblings
        )
        time.sleep(0.2)


class Both:
    def __init__(self, folder: Path, stack: ExitStack, database: str) -> None:
        self.a, self.b = Sibling("A", stack), Sibling("B", stack)
        self.a.run(folder, self.b.base)
        self.b.run(folder, self.a.base, database=database)
        self.follows = self.a.follow(self.b), self.b.follow(self.a)
        #: the first is of A, the second of B, the third of both
        self.nodes = [stack.enter_context(MemberNode(f"urn:node:{n}", token="trusted")) for n in (1, 2, 3)]
        for node in self.nodes:
            node.schedule = None  # looked at as often as it changes
        self.of_a, self.of_b, self.of_both = self.nodes
        for one, node in ((self.a, self.of_a), (self.b, self.of_b), (self.a, self.of_both), (self.b, self.of_both)):
            one.add(node.base, node.token)

    def cut(self) -> None:
        self.a.line.cut()
        self.b.line.cut()

    def mend(self) -> None:
        self.a.line.mend()
        self.b.line.mend()

    def agree(self) -> State:
        """What both have, when both have the same: all that any node has, and nothing else."""
        wanted = {pid for node in self.nodes for pid in node.pids}
        found: State = {}

        def same() -> bool:
            nonlocal found
            for known in (True, False):
                if self.a.listed(known=known) != self.b.listed(known=known):
                    return False
            found = self.a.state()
            return found.keys() == wanted and found == self.b.state()

        until(same, "they differ", self.a, self.b)
        return found


@pytest.fixture
async def both(tmp_path: Path, postgres_url: str) -> AsyncIterator[Both]:
    async with fresh_database(postgres_url) as database:
        with ExitStack() as stack:
            yield Both(tmp_path, stack, database)


def fill(node: MemberNode, name: str) -> None:
    node.put(f"{name}/eml", eml(f"Glacier {name}"), EML_21, series_id=f"{name}/series")
    node.put(f"{name}/data", b"1,2,3")
    node.put(f"{name}/map", resource_map(f"{name}/map", {f"{name}/eml": [f"{name}/data"]}), ORE)
    node.put(f"{name}/hidden", eml("Hidden"), EML_21, access_policy=HIDDEN)
    node.put(f"{name}/old", eml("Old"), EML_21)
    node.put(f"{name}/dies", b"7,8,9")
    node.put(f"{name}/opened", eml("Opened"), EML_21, access_policy=HIDDEN)


def change(node: MemberNode, name: str) -> None:
    node.update(f"{name}/eml", f"{name}/eml.2", eml(f"Glacier {name}, again"))
    node.archive(f"{name}/old")
    node.change(f"{name}/map", access_policy=HIDDEN)
    node.change(f"{name}/opened", access_policy=OPEN)
    node.put(f"{name}/late", eml("Late"), EML_21, date_sys_metadata_modified=1_000_000)
    node.delete(f"{name}/dies")


def test_they_converge_after_a_cut_and_a_kill_in_the_middle(both: Both) -> None:
    a, b = both.a, both.b
    for node in both.nodes:
        fill(node, node.id[-1])
    # one object at nodes of both
    both.of_b.put("1/copy", b"<eml>copy</eml>", EML_21, authoritative_member_node=both.of_a.id)
    both.of_a.put("1/copy", b"<eml>copy</eml>", EML_21, date_uploaded=both.of_b.meta("1/copy").date_uploaded)
    found = both.agree()
    holders = {one.replica_member_node for one in found["1/copy"][0].replica}
    assert holders == {"urn:node:1", "urn:node:2", a.urn, b.urn}
    assert found["2/eml"][0].authoritative_member_node == found["2/eml"][0].origin_member_node == "urn:node:2"
    assert b.urn not in {one.replica_member_node for one in found["1/data"][0].replica}, "data is not copied"

    for n in range(80):
        both.of_a.put(f"1/more/{n}", eml(f"More {n}"), EML_21)
    until(lambda: b.held(a.urn) > len(found) + 20, "not begun", a, b)
    b.skep.kill()
    b.skep.start()
    both.agree()

    both.cut()
    for node in both.nodes:
        change(node, node.id[-1])
    for one, node in ((a, both.of_a), (a, both.of_both), (b, both.of_b), (b, both.of_both)):
        one.client.dataone.reconcile(node.id)
    for one, name in ((a, "1"), (a, "3"), (b, "2"), (b, "3")):
        until(lambda one=one, name=name: f"{name}/dies" not in one.listed(), "not gone", one)  # type: ignore[misc]
        until(lambda one=one, name=name: one.meta(f"{name}/old").archived, "not archived", one)  # type: ignore[misc]
    serial = str(a.meta("2/data").serial_version)
    a.ask("PUT", "replicaPolicies/2%2Fdata", {"policy": render(ReplicationPolicy(True, 2)), "serialVersion": serial})
    assert "2/late" not in a.listed() and "1/late" not in b.listed() and b.meta("1/old").archived is None
    a.skep.kill()
    both.mend()
    a.skep.start()
    found = both.agree()
    assert found["1/old"][0].archived and found["2/old"][0].archived
    assert found["2/data"][0].replication_policy == ReplicationPolicy(True, 2)
    assert {"1/map", "2/map", "1/hidden"}.isdisjoint(b.listed(known=False)) and "2/opened" in a.listed(known=False)
    assert a.meta("2/series").identifier == "2/eml.2"


def test_nothing_comes_back_as_a_change(both: Both) -> None:
    a, b = both.a, both.b
    fill(both.of_a, "1")
    fill(both.of_b, "2")
    both.agree()
    both.of_a.change("1/eml", file_name="x")
    until(lambda: a.meta("1/eml").file_name, "not harvested", a)
    assert both.agree()["1/eml"][0].file_name == "x"
    before = a.listed("changed"), b.listed("changed")
    for one, follows, own in ((a, both.follows[0], "1/"), (b, both.follows[1], "2/")):
        asked = one.client.sources.fetch(follows)  # whatever there is to hear is heard now
        one.client.sources.wait(follows, looked_after=asked.asked_at)
        entries = {change.entry for change in one.client.sources.changes(follows)}
        assert entries and not {entry for entry in entries if entry.startswith(own)}
    assert (a.listed("changed"), b.listed("changed")) == before

    # B knows the object and not its node
    with closing(HTTPConnection(b.listen)) as line:
        line.request("GET", "/cn/v2/resolve/1%2Fdata")
        answer = line.getresponse()
        where = f"http://{a.listen}/cn/v2/resolve/1%2Fdata"
        assert (answer.status, answer.headers["location"]) == (303, where)


def test_who_is_not_trusted_is_not_harvested(tmp_path: Path) -> None:
    """Neither one that the settings do not name, nor with a token that does not see everything, nor oneself."""
    with ExitStack() as stack:
        a, b = Sibling("A", stack), Sibling("B", stack)
        for one in (a, b):
            one.run(tmp_path, b.base)

        def failed(one: Sibling, source: str, why: str) -> None:
            until(lambda: why in str(one.client.sources.show(source)), why, one)

        failed(b, b.follow(a), "`dataone_siblings` names those that are trusted")
        failed(a, a.follow(b, ["read"]), "lacks the scope 'private'")
        failed(b, b.follow(b), "as we are")
        with pytest.raises(AssertionError, match="401"):
            a.ask("GET", "changed", known=False)
