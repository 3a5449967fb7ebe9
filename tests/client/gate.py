"""Stands between a producer and the server: notes what passes, holds it back, loses requests or their answers."""

import json
import threading
import urllib.error
import urllib.request
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

Fault = Literal["request lost", "answer lost"]


class Gate(ThreadingHTTPServer):
    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passage)
        self.behind = behind
        self.url = f"http://127.0.0.1:{self.server_port}"
        #: the bodies of the messages of each request that came
        self.batches: list[list[Any]] = []
        self.came = threading.Semaphore(0)
        self.open = threading.Event()
        self.open.set()
        #: what happens to the next requests
        self.faults: deque[Fault] = deque()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asked may have gone meanwhile."""


class _Passage(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Gate

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.batches.append([message["body"] for message in json.loads(body)["messages"]])
        self.server.came.release()
        self.server.open.wait()
        fault = self.server.faults.popleft() if self.server.faults else None
        if fault != "request lost":
            status, answer = self._forward(body)
        if fault:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _forward(self, body: bytes) -> tuple[int, bytes]:
        headers = {name: self.headers[name] for name in ("Authorization", "Content-Type")}
        wanted = urllib.request.Request(self.server.behind + self.path, body, headers)
        try:
            with urllib.request.urlopen(wanted, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""
