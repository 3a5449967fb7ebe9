"""The HTTP side of the test node."""

import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from skep.dataone.forms import read_form
from skep.dataone.pids import decode
from skep.dataone.types import D1Error, Doc, SystemMetadata
from skep.dataone.xml import parse, render
from skep.errors import BadInput
from skep.testing.server import ThreadedServer

if TYPE_CHECKING:
    from skep.testing.membernode import MemberNode

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
