"""The HTTP side of the forge: threads and `git http-backend`, so that a test may block its own event loop freely."""

import base64
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import IO, Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

import msgspec

from skep.testing.server import ThreadedServer
from tests.support.forge.repository import Files, Repo


class Request(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    #: everything was asked for, by one who had nothing
    clone: bool = False


class Fault(msgspec.Struct, frozen=True):
    """What goes wrong at one repository (or, under the name "", everywhere)."""

    status: int = 0
    headers: Mapping[str, str] = {}
    #: answer instead of git's
    body: bytes = b""
    #: seconds before the answer
    delay: float = 0.0
    #: and so many more before that to one who asks for everything
    clone_delay: float = 0.0
    #: close the connection after so many bytes of the body
    drop_after: int | None = None
    #: send the client here, with the rest of the path appended
    redirect: str = ""
    #: pretend not to know protocol v2
    v0_only: bool = False
    #: user:password that must be given
    auth: str = ""
    #: replace bytes in git's answer
    lie: tuple[bytes, bytes] | None = None
    #: requests it applies to, counted down; None: all
    times: int | None = None


class Forge:
    """`with Forge(folder) as forge:` (or `async with`); repositories live under `folder/repos`."""

    def __init__(self, folder: Path, *, tls: bool = False, host: str = "127.0.0.1") -> None:
        self.folder = folder / "repos"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.requests: list[Request] = []
        #: connection -> the repository that it asks at this moment
        self._asking: dict[socket.socket, str] = {}
        #: repositories that answered while another request of somebody who is still there had no answer yet, and when
        self.at_once: list[tuple[str, float]] = []
        self._faults: dict[str, Fault] = {}
        self._left: dict[str, int] = {}
        #: set when it closes: nobody is kept waiting for the rest of a delay
        self.over = threading.Event()
        self._lock = threading.Lock()
        #: certificate that clients must trust, with TLS
        self.ca = folder / "forge.pem"
        self._server = _Server((host, 0), _Handler)
        self._server.forge = self
        self._host = host
        self._scheme = "https" if tls else "http"
        if tls:
            make_certificate(self.ca)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.ca)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="forge", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, name: str) -> str:
        return f"{self._scheme}://{self._host}:{self.port}/{name}"

    def create(self, name: str, files: Files | None = None, *, branch: str = "main") -> Repo:
        repo = Repo.init(self.folder / f"{name}.git", branch)
        if files is not None:
            repo.commit(files, branch=branch)
        return repo

    def rename(self, old: str, new: str) -> Repo:
        """Nobody is told: where it was, there is nothing any more."""
        return Repo((self.folder / f"{old}.git").rename(self.folder / f"{new}.git"))

    def fault(self, name: str, fault: Fault | None) -> None:
        """From now on, `name` has this fault; None heals it."""
        with self._lock:
            self._faults.pop(name, None)
            if fault is not None:
                self._faults[name] = fault
                self._left[name] = fault.times if fault.times is not None else 1 << 60

    def take_fault(self, path: str) -> Fault:
        with self._lock:
            for name, fault in sorted(self._faults.items(), reverse=True):  # that of all comes last
                if (not name or path.startswith((f"/{name}/", f"/{name}.git/"))) and self._left[name] > 0:
                    self._left[name] -= 1
                    return fault
        return Fault()

    def asked(self, path: str, connection: socket.socket) -> None:
        name = path.removesuffix("/info/refs").removesuffix("/git-upload-pack").removesuffix(".git")
        with self._lock:
            self._asking[connection] = name

    def answered(self, connection: socket.socket) -> None:
        """Or about to be: who asked may ask again before we come to our turn."""
        with self._lock:
            name = self._asking.pop(connection, None)
            others = [one for one, asked in self._asking.items() if asked == name]
            if name and others and _is_open(connection) and any(map(_is_open, others)):
                self.at_once.append((name, time.time()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


class _Server(ThreadedServer):
    forge: Forge


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(b"".join(self._body()))

    def _serve(self, body: bytes) -> None:
        forge = self.server.forge
        clone = _is_clone(body)
        forge.requests.append(Request(self.command, self.path, dict(self.headers), clone))
        path = unquote(urlsplit(self.path).path)
        forge.asked(path, self.connection)
        fault = forge.take_fault(path)
        forge.over.wait(fault.delay + fault.clone_delay * clone)
        if fault.auth and self.headers.get("Authorization") != _basic(fault.auth):
            self._answer(401, {"WWW-Authenticate": 'Basic realm="forge"'}, b"who are you?", fault)
        elif fault.redirect:
            self._answer(301, {"Location": fault.redirect}, b"", fault)
        elif fault.status or fault.body:
            self._answer(fault.status or 200, fault.headers, fault.body, fault)
        else:
            self._run_git(body, fault)

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            yield self.rfile.read(int(self.headers.get("Content-Length", 0)))
            return
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _run_git(self, body: bytes, fault: Fault) -> None:
        place = urlsplit(self.path)
        path = unquote(place.path)
        for end in ("/info/refs", "/git-upload-pack"):  # as the large forges: with and without .git
            name = path.removesuffix(end)
            if name != path and not name.endswith(".git"):
                path = f"{name}.git{end}"
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "GIT_PROJECT_ROOT": str(self.server.forge.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": place.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": "" if fault.v0_only else self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        if fault.v0_only and self.command == "POST" and "version=2" in self.headers.get("Git-Protocol", ""):
            self._answer(200, {"Content-Type": "application/x-git-upload-pack-result"}, b"", fault)
            return
        with subprocess.Popen(
            ["git", "http-backend"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        ) as child:
            assert child.stdin and child.stdout
            with suppress(BrokenPipeError):
                child.stdin.write(body)
                child.stdin.close()
            status, headers = _cgi_head(child.stdout)
            self._answer(status, headers, child.stdout.read(), fault)

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes, fault: Fault) -> None:
        self.server.forge.answered(self.connection)
        if fault.lie:
            body = body.replace(*fault.lie)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault.drop_after is not None:
            body = body[: fault.drop_after]
            self.close_connection = True
        with suppress(OSError):
            self.wfile.write(body)
            self.wfile.flush()


def make_certificate(pem: Path) -> None:
    """A key and a self-signed certificate for loopback, in one file."""
    key = pem.with_suffix(".key")
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:forge.example"]
    command = ["openssl", "req", *kind, *names, "-keyout", str(key), "-out", str(pem)]
    subprocess.run(command, check=True, capture_output=True)
    pem.write_bytes(pem.read_bytes() + key.read_bytes())


def _is_open(connection: socket.socket) -> bool:
    """Or whoever asked has hung up, or was killed."""
    try:
        # below TLS, where there is any
        return socket.socket.recv(connection, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _is_clone(body: bytes) -> bool:
    """A fetch by one who has nothing yet."""
    return b"command=fetch" in body and b"want " in body and b"have " not in body


def _basic(pair: str) -> str:
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _cgi_head(out: IO[bytes]) -> tuple[int, dict[str, str]]:
    status, headers = 200, {}
    while line := out.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        if name.lower() == "status":
            status = int(value.split()[0])
        else:
            headers[name] = value.strip()
    return status, headers
