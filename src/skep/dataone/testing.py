"""A small Member Node of DataONE over real HTTP, which can be told to be as strange as real ones are.

`with MemberNode() as node: node.put("a/b", b"…")`. Threads, so that a test may block its own event loop freely.
`python -m skep.dataone.testing COUNT` serves that many small metadata objects until its input ends.
"""

import random
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha1
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec.structs import replace

from skep.base.errors import BadInput
from skep.dataone.encoding import decode, encode, parse, read_form, read_time, render, write_form
from skep.dataone.types import (
    AccessPolicy,
    AccessRule,
    Checksum,
    D1Error,
    Doc,
    Node,
    NodeList,
    NodeReplicationPolicy,
    ObjectList,
    Schedule,
    Service,
    Services,
    Synchronization,
    SystemMetadata,
)
from skep.testing.documents import EML_21, eml
from skep.testing.server import ThreadedServer, free_port

# The HTTP side of the test node.

#: errors by name: their status
_CODES = {"NotFound": 404, "InvalidRequest": 400, "NotAuthorized": 401, "ServiceFailure": 500, "NotImplemented": 501}


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    form: Mapping[str, bytes]


class Refused(Exception):
    def __init__(self, name: str, description: str, pid: str | None = None) -> None:
        super().__init__(description)
        self.error = D1Error(name, _CODES[name], "1", description, identifier=pid)


class Server(ThreadedServer):
    node: "MemberNode"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(self.server.node.now() / 1000 if timestamp is None else timestamp)

    def do_GET(self) -> None:
        node, faults = self.server.node, self.server.node.faults
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        form = read_form(self.headers["content-type"], body) if body else {}
        query = dict(parse_qsl(url.query))
        node.requests.append(Request(self.command, url.path, query, dict(self.headers), form))
        if faults.delay:
            time.sleep(faults.delay)
        if faults.html and faults.html_at in url.path:
            return self._send(faults.html, b"<!DOCTYPE html><html><body>Welcome</body></html>", "text/html")
        if faults.busy and faults.busy in url.path:
            return self._send(503, b"later", "text/plain", {"Retry-After": "1"})
        if faults.moved:
            return self._send(308, b"", "text/plain", {"Location": faults.moved + self.path.removeprefix("/mn")})
        trusted = bool(node.token) and self.headers.get("authorization") == f"Bearer {node.token}"
        try:
            _, mn, version, call, *rest = [*url.path.split("/"), "", ""]
            if mn != "mn" or version not in node.versions:
                raise Refused("NotImplemented", f"there is no {url.path}")
            self._answer(node, (self.command, call), rest[0], query, form, trusted, int(version[1:]))
        except Refused as refused:
            self._send(refused.error.error_code, render(refused.error), "text/xml")
        except BadInput as bad:
            self._send(400, render(D1Error("InvalidRequest", 400, "1", bad.message)), "text/xml")

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

    def _answer(
        self,
        node: "MemberNode",
        what: tuple[str, str],
        name: str,
        query: Mapping[str, str],
        form: Mapping[str, bytes],
        trusted: bool,
        version: int,
    ) -> None:
        match what:
            case "GET", "monitor":
                self._send(200, b"", "text/plain")
            case "GET", "node" | "":
                self._document(node.document(), version)
            case "GET", "object" if not name:
                self._document(node.listing(query, trusted), version)
            case "GET", "meta":
                pid = decode(name)
                given = node.faults.meta_of.get(pid)
                self._send(200, given or self._timed(render(node.find(pid, trusted)[0], version)), "text/xml")
            case (("GET" | "HEAD"), "object" | "replica"):
                self._object(*node.find(decode(name), trusted or what[1] == "replica"))
            case "GET", "checksum":
                self._document(node.find(decode(name), trusted)[0].checksum, version)
            case "POST", "error":
                if node.token and not trusted:
                    raise Refused("NotAuthorized", "only a Coordinating Node may say so")
                node.errors.append(parse(D1Error, form["message"]))
                self._send(200, b"", "text/plain")
            case "POST", "dirtySystemMetadata":
                node.dirty.append({key: value.decode() for key, value in form.items()})
                self._send(200, b"", "text/plain")
            case "POST", "replicate":
                node.replicate(form)
                self._send(200, b"", "text/plain")
            case _:
                raise Refused("NotImplemented", f"{what[0]} {what[1]} is not possible here")

    def _document(self, value: Doc, version: int) -> None:
        self._send(200, self._timed(render(value, version)), "text/xml")

    def _timed(self, document: bytes) -> bytes:
        return document.replace(b"Z<", b"<") if self.server.node.faults.zoneless else document

    def _object(self, meta: SystemMetadata, body: bytes) -> None:
        faults = self.server.node.faults
        body = faults.bytes_of.get(meta.identifier, body)
        headers = {
            "DataONE-Checksum": f"{meta.checksum.algorithm},{meta.checksum.value}",
            "DataONE-FormatId": meta.format_id,
            "DataONE-SerialVersion": str(meta.serial_version),
            "Last-Modified": self.date_time_string((meta.date_sys_metadata_modified or 0) / 1000),
        }
        if faults.cut is not None:
            self.close_connection = True
        if start := int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-")):
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self._send(206 if start else 200, body[start:], "application/octet-stream", headers, faults.cut)

    def _send(
        self, status: int, body: bytes, media: str, more: Mapping[str, str] | None = None, cut: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": media, "Content-Length": str(len(body)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body[:cut])
        self.wfile.flush()


OPEN = AccessPolicy((AccessRule(("public",), ("read",)),))
_SERVICES = ("MNCore", "MNRead", "MNReplication")
_DEFAULT_COUNT = 100


class Faults(msgspec.Struct, frozen=True):
    """What is strange about the node. Nothing, unless it is said."""

    order: Literal["ascending", "descending", "shuffled"] = "ascending"
    #: entries of a page at most
    cap: int = 5000
    #: parameters of listObjects that are answered with 400, or taken no notice of
    refuses: frozenset[str] = frozenset()
    ignores: frozenset[str] = frozenset()
    #: a page behind the last entry is empty, not 400
    empty_end: bool = False
    #: seconds that its clock is ahead
    skew: float = 0.0
    #: identifiers that are not in the list yet, though they are dated: late commits
    late: frozenset[str] = frozenset()
    #: identifiers that are listed and cannot be read
    missing: frozenset[str] = frozenset()
    #: by identifier: other bytes than promised, another document of system metadata
    bytes_of: Mapping[str, bytes] = {}
    meta_of: Mapping[str, bytes] = {}
    #: the connection ends after so many bytes of an object
    cut: int | None = None
    #: everything whose path holds `html_at` is answered with this status and a page of HTML
    html: int = 0
    html_at: str = ""
    #: paths that hold this are answered with 503, and Retry-After
    busy: str = ""
    #: it is elsewhere now, for good: everything leads to this base URL
    moved: str = ""
    #: seconds before each answer
    delay: float = 0.0
    #: times are written without a zone
    zoneless: bool = False
    #: what happens to requests to replicate
    replicate: Literal["pull", "fail", "forget", "refuse", "lie"] = "pull"
    #: the list is empty, whatever there is
    amnesia: bool = False


class MemberNode:
    def __init__(
        self,
        id: str = "urn:node:Test",
        *,
        faults: Faults | None = None,
        versions: tuple[str, ...] = ("v1", "v2"),
        token: str = "",
        clock: Callable[[], float] = time.time,
        schedule: Schedule | None = None,
    ) -> None:
        self.id = id
        self.faults = faults or Faults()
        #: who shows it sees private objects, and may report errors
        self.token = token
        #: where a replica is reported, with a token for it: https://HOST/cn
        self.cn, self.cn_token = "", ""
        self.versions = versions
        #: without one it is looked at as often as it changes
        self.schedule: Schedule | None = schedule or Schedule(
            sec="0", min="0/5", hour="*", mday="*", mon="*", wday="?", year="*"
        )
        #: raised together by a test: a policy makes it a target of replication
        self.replication: NodeReplicationPolicy | None = None
        self.requests: list[Request] = []
        #: what was told to it
        self.errors: list[D1Error] = []
        self.dirty: list[dict[str, str]] = []
        self._clock = clock
        self._lock = threading.RLock()
        self._objects: dict[str, tuple[SystemMetadata, bytes]] = {}
        self._ordered: list[SystemMetadata] | None = None
        self._pulls: list[threading.Thread] = []
        self._server = self._bound(free_port())  # which nobody else gets while it is stopped

    # what a test does to it

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/mn"

    def now(self) -> int:
        return int((self._clock() + self.faults.skew) * 1000)

    def put(self, pid: str, body: bytes, format_id: str = "text/csv", **fields: Any) -> SystemMetadata:
        """A new object, readable by everybody unless `access_policy` says otherwise."""
        now = self.now()
        given: dict[str, Any] = {
            "identifier": pid,
            "format_id": format_id,
            "size": len(body),
            "checksum": Checksum(sha1(body, usedforsecurity=False).hexdigest(), "SHA-1"),
            "serial_version": 1,
            "submitter": "CN=tester",
            "rights_holder": "CN=tester",
            "access_policy": OPEN,
            "date_uploaded": now,
            "date_sys_metadata_modified": now,
            "origin_member_node": self.id,
            "authoritative_member_node": self.id,
        }
        meta = SystemMetadata(**{**given, **fields})
        self._store(meta, body)
        return meta

    def update(self, old: str, new: str, body: bytes, **fields: Any) -> SystemMetadata:
        """A new version; the old one gets another date."""
        before = self.meta(old)
        made = self.put(new, body, before.format_id, obsoletes=old, series_id=before.series_id, **fields)
        self.change(old, obsoleted_by=new)
        return made

    def change(self, pid: str, **fields: Any) -> SystemMetadata:
        """Other system metadata, dated now unless the test dates it."""
        with self._lock:
            meta, body = self._objects[pid]
            changed = replace(meta, **{"date_sys_metadata_modified": self.now(), **fields})
            self._store(changed, body)
            return changed

    def archive(self, pid: str) -> None:
        self.change(pid, archived=True)

    def delete(self, pid: str) -> None:
        with self._lock:
            del self._objects[pid]
            self._ordered = None

    def meta(self, pid: str) -> SystemMetadata:
        return self._objects[pid][0]

    def body(self, pid: str) -> bytes:
        return self._objects[pid][1]

    @property
    def pids(self) -> list[str]:
        return list(self._objects)

    def asked(self, part: str) -> list[Request]:
        """Requests whose path holds this."""
        return [request for request in self.requests if part in request.path]

    def _bound(self, port: int) -> Server:
        server = Server(("127.0.0.1", port), Handler)
        server.node = self
        return server

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for pull in self._pulls:
            pull.join()

    def start(self) -> None:
        """At the same address, if it was stopped."""
        if self._server.fileno() < 0:
            self._server = self._bound(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name=self.id, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """In the middle of whatever it says."""
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join()

    # what it answers

    def document(self) -> Node:
        return Node(
            identifier=self.id,
            name=self.id.rpartition(":")[2],
            description="a node for tests",
            base_url=self.base,
            services=Services(tuple(Service(name, version) for version in self.versions for name in _SERVICES)),
            synchronization=Synchronization(self.schedule) if self.schedule else None,
            node_replication_policy=self.replication,
            subject=(f"CN={self.id},DC=dataone,DC=org",),
            contact_subject=("CN=tester",),
            replicate=self.replication is not None,
            synchronize=True,
        )

    def listing(self, query: Mapping[str, str], trusted: bool) -> ObjectList:
        for name in self.faults.refuses & query.keys():
            raise Refused("InvalidRequest", f"{name} is not supported")
        asked = {name: value for name, value in query.items() if name not in self.faults.ignores}
        after, before = (read_time(asked[name]) if name in asked else None for name in ("fromDate", "toDate"))
        found = [
            one
            for one in ([] if self.faults.amnesia else self._sorted())
            if (after is None or _date(one) >= after)
            and (before is None or _date(one) < before)
            and asked.get("formatId", one.format_id) == one.format_id
            and asked.get("identifier", one.identifier) in (one.identifier, one.series_id)
            and (asked.get("replicaStatus") != "false" or one.authoritative_member_node == self.id)
            and one.identifier not in self.faults.late
            and (trusted or one.public)
        ]
        start = int(asked.get("start", 0))
        count = min(int(asked.get("count", _DEFAULT_COUNT)), self.faults.cap)
        if start and start >= len(found) and not self.faults.empty_end:
            raise Refused("InvalidRequest", "non-existing slice")
        infos = tuple(one.info for one in found[start : start + count])
        return ObjectList(infos, len(infos), start, len(found))

    def find(self, pid: str, trusted: bool) -> tuple[SystemMetadata, bytes]:
        """By identifier, or the newest of a series."""
        with self._lock:
            found = self._objects.get(pid)
            if found is None:
                series = [one for one in self._objects.values() if one[0].series_id == pid]
                found = max(series, key=lambda one: one[0].date_uploaded or 0, default=None)
        if found is None or pid in self.faults.missing:
            raise Refused("NotFound", "there is no such object", pid)
        if not trusted and not found[0].public:
            raise Refused("NotAuthorized", "this object is private", pid)
        return found

    def replicate(self, form: Mapping[str, bytes]) -> None:
        """Accepted at once; then the bytes are pulled from the source, and how it went is told to the CN."""
        if self.faults.replicate == "refuse":
            raise Refused("ServiceFailure", "no room")
        if self.faults.replicate != "forget":
            meta, source = parse(SystemMetadata, form["sysmeta"]), form["sourceNode"].decode()
            self._pulls.append(threading.Thread(target=self._pull, args=(meta, source)))
            self._pulls[-1].start()

    def _pull(self, meta: SystemMetadata, source: str) -> None:
        pid = encode(meta.identifier)
        try:
            if self.faults.replicate == "fail":
                raise OSError("the disk is full")
            nodes = parse(NodeList, self._ask("GET", f"{self.cn}/v2/node"))
            base = next(node.base_url for node in nodes.node if node.identifier == source)
            body = self._ask("GET", f"{base}/v2/replica/{pid}")
            hash = meta.checksum.hash()
            hash.update(body)
            if hash.hexdigest() != meta.checksum.value:
                raise OSError("the bytes are others")
            kept = body if self.faults.replicate == "pull" else body[::-1]
            self._store(replace(meta, date_sys_metadata_modified=self.now()), kept)
            told: dict[str, str | bytes] = {"nodeRef": self.id, "status": "completed"}
        except (OSError, StopIteration, BadInput) as error:
            told = {
                "nodeRef": self.id,
                "status": "failed",
                "failure": render(D1Error("ServiceFailure", 500, "1", str(error))),
            }
        media, form = write_form(told)
        self._ask("PUT", f"{self.cn}/v2/replicaNotifications/{pid}", form, media)

    def _ask(self, method: str, url: str, body: bytes | None = None, media: str = "") -> bytes:
        headers = {"authorization": f"Bearer {self.cn_token}"} if self.cn_token and url.startswith(self.cn) else {}
        if media:
            headers["content-type"] = media
        request = urllib.request.Request(url, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    def _store(self, meta: SystemMetadata, body: bytes) -> None:
        with self._lock:
            self._objects[meta.identifier] = (meta, body)
            self._ordered = None

    def _sorted(self) -> list[SystemMetadata]:
        with self._lock:
            if self._ordered is None:
                self._ordered = sorted((meta for meta, _ in self._objects.values()), key=_date)
            ordered = self._ordered
        if self.faults.order == "shuffled":
            return random.sample(ordered, len(ordered))  # another order for every page
        return ordered[::-1] if self.faults.order == "descending" else ordered


def _date(meta: SystemMetadata) -> int:
    return meta.date_sys_metadata_modified or 0


def _many(count: int) -> Iterator[tuple[str, bytes]]:
    for n in range(count):
        yield f"doi:10.5072/FK2/{n:06d}", eml(f"Record {n}", tables=0)


if __name__ == "__main__":
    with MemberNode() as serving:
        start = serving.now() - int(sys.argv[1])
        for nth, (name, content) in enumerate(_many(int(sys.argv[1]))):
            serving.put(name, content, EML_21, date_sys_metadata_modified=start + nth)
        sys.stdout.write(f"{serving.base}\n")
        sys.stdout.flush()
        sys.stdin.read()
