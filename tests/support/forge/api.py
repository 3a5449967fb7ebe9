"""The listing APIs of GitHub, GitLab, Gitee and Gitea as far as lists use them: real HTTP, pages, ETags, tokens."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

_PREFIXES = ("/api/v3/orgs/", "/api/v4/groups/", "/api/v5/orgs/", "/api/v1/orgs/")


class ForgeApi:
    """`with ForgeApi() as api:`; `api.repositories["org"]` is what an organisation holds, by the forge's own id."""

    def __init__(self, *, page: int = 2, token: str = "") -> None:
        self.page = page
        self.token = token
        self.repositories: dict[str, dict[int, dict[str, Any]]] = {}
        #: path and status of each request
        self.requests: list[tuple[str, int]] = []
        #: tokens whose limit is used up
        self.limited: set[str] = set()
        #: answered instead of everything else: status, headers, body
        self.fault: tuple[int, dict[str, str], bytes] | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.api = self  # type: ignore[attr-defined]  # handlers know only their server
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def put(self, owner: str, id: int, path: str, **more: Any) -> None:
        """Add a repository, or rename the one with this id."""
        url = f"https://code.example.org/{path}.git"
        shape = {"id": id, "clone_url": url, "http_url_to_repo": url, "html_url": url, "full_name": path}
        self.repositories.setdefault(owner, {})[id] = shape | more

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        status, headers, body = self._found()
        api: ForgeApi = self.server.api  # type: ignore[attr-defined]
        api.requests.append((self.path, status))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _found(self) -> tuple[int, dict[str, str], bytes]:
        api: ForgeApi = self.server.api  # type: ignore[attr-defined]
        if api.fault:
            return api.fault
        given = self.headers.get("Authorization", "").split(" ")[-1] or self.headers.get("PRIVATE-TOKEN", "")
        if given in api.limited:
            return 429, {"Retry-After": "600"}, b"{}"
        if api.token and given != api.token:
            return 401, {}, b"{}"
        place = urlsplit(self.path)
        owner = next((place.path.removeprefix(one) for one in _PREFIXES if place.path.startswith(one)), "")
        held = api.repositories.get(unquote(owner.rpartition("/")[0]))
        if held is None:
            return 404, {}, b"{}"
        start = (int(parse_qs(place.query)["page"][0]) - 1) * api.page
        body = json.dumps([held[id] for id in sorted(held)][start : start + api.page]).encode()
        etag = f'W/"{hashlib.sha256(body).hexdigest()}"'
        if self.headers.get("If-None-Match") == etag:
            return 304, {"ETag": etag}, b""
        return 200, {"ETag": etag, "Content-Type": "application/json"}, body
