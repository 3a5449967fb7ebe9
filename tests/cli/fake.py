"""A small real HTTP server that answers with the structs of the API, so that client and commands meet a real socket."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from skep.base.answers import ErrorAnswer, ErrorBody
from skep.base.errors import SkepError
from skep.sources.model import Source

SOURCE = Source(
    id="src_01", number=1, kind="git", name="example.org/a/b", url="https://example.org/a/b", state="current",
    default_branch="main", added_at=1.0, last_fetched=2.0, next_poll=3.0, indexed_commit="c" * 40,
)  # fmt: skip


class Asked(msgspec.Struct):
    method: str
    path: str
    query: dict[str, str]
    token: str
    body: Any


Answer = Callable[[Asked], tuple[int, Any]]


class FakeSkep:
    """`on("GET", "/api/v1/status", 200, struct)`; an error as answer is encoded as the API encodes it."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.port = server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.asked: list[Asked] = []
        self._answers: dict[tuple[str, str], Answer] = {}
        #: close the connection after this many answers, as a server with an idle limit does
        self.closes = False

    def on(self, method: str, path: str, status: int, answer: Any = None) -> None:
        self._answers[method, path] = lambda _: (status, answer)

    def answer(self, method: str, path: str, answer: Answer) -> None:
        self._answers[method, path] = answer

    def fail(self, method: str, path: str, error: SkepError) -> None:
        body = ErrorBody(error.code, error.message, error.hint, error.column)
        self.on(method, path, error.status, ErrorAnswer(body))

    def respond(self, asked: Asked) -> tuple[int, bytes]:
        self.asked.append(asked)
        missing: Answer = lambda _: (404, ErrorAnswer(ErrorBody("not_found", "no such thing")))  # noqa: E731
        status, answer = self._answers.get((asked.method, asked.path), missing)(asked)
        return status, answer if isinstance(answer, bytes) else b"" if answer is None else msgspec.json.encode(answer)


@contextmanager
def running() -> Iterator[FakeSkep]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            body = msgspec.json.decode(content) if content else None
            status, data = skep.respond(Asked(self.command, parts.path, query, token, body))
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            # without saying so: the client finds a dead connection in its pool
            self.close_connection = skep.closes

        do_PUT = do_GET = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    skep = FakeSkep(server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield skep
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
