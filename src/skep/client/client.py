"""The nouns of the API as objects with its verbs. Everything returned is a struct of `skep.model`.

`ref` is an id, a name such as github.com/org/repo, or any spelling of the URL.
"""

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from skep.base.answers import (
    Added,
    Audited,
    BulkAnswer,
    Fetching,
    FileView,
    LogAnswer,
    NewToken,
    Page,
    ReportAnswer,
    Status,
    TokenInfo,
    Tree,
    Waited,
)
from skep.base.caller import Scope, Visibility
from skep.base.log_lines import Level, LogLine
from skep.client.benchmarks import Benchmarks
from skep.client.credentials import Credentials
from skep.client.dataone import DataOne
from skep.client.lists import Lists
from skep.client.packages import Packages
from skep.client.results import Results
from skep.client.rules import Rules
from skep.client.searches import SavedSearches
from skep.client.spaces import Space, Spaces
from skep.client.tasks import Contexts, Tasks
from skep.client.topics import Topics
from skep.client.transport import API, Noun, Query, Transport, find_token, find_url, pages
from skep.client.workers import Workers
from skep.search.api import Completion, Completions, SearchAnswer
from skep.sources.model import Change, Source
from skep.storage.code_index.model import check_length


class Client:
    """`with Client() as skep: skep.search("needle")`; threads may share one."""

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout: float = 60.0) -> None:
        parts = find_url(url, os.environ)
        self.url = parts.geturl()
        self._open(Transport(parts, find_token(token, parts, os.environ), timeout))

    def _open(self, transport: Transport) -> None:
        #: for requests that have no verb of their own
        self.transport = transport
        self.sources = Sources(self.transport)
        self.lists = Lists(self.transport)
        self.tokens = Tokens(self.transport)
        self.audit = Audit(self.transport)
        self.credentials = Credentials(self.transport)
        self.topics = Topics(self.transport)
        self.rules = Rules(self.transport)
        self.benchmarks = Benchmarks(self.transport)
        self.searches = SavedSearches(self.transport)
        self.dataone = DataOne(self.transport)
        self.spaces = Spaces(self.transport)
        self.contexts = Contexts(self.transport)
        self.tasks = Tasks(self.transport)
        self.packages = Packages(self.transport)
        self.results = Results(self.transport)
        self.workers = Workers(self.transport)

    def space(self, name: str) -> Space:
        return Space(self.transport, name)

    def twin(self) -> "Client":
        """To the same server with the same token, with connections of its own: closing one leaves the other open."""
        twin = copy.copy(self)
        twin._open(self.transport.twin())
        return twin

    def search(
        self,
        text: str,
        lines: int = 50,
        seconds: float | None = None,
        *,
        context: int = 0,
        count: int = 0,
        page: str = "",
        explain: bool = False,
        facets: bool = False,
    ) -> SearchAnswer:
        """One page, best first; `page` is `next_page` of the one before."""
        check_length(text)
        asked: dict[str, str | int | float | None] = {
            "seconds": seconds,
            "context": context,
            "count": count,
            "page": page,
            "explain": "true" if explain else "",
            "facets": "true" if facets else "",
        }
        query: Query = {"q": text, "lines": lines, **{name: value for name, value in asked.items() if value}}
        return self.transport.call("GET", f"{API}/search", SearchAnswer, query=query)

    def complete(self, text: str, cursor: int | None = None) -> list[Completion]:
        """What may stand at the cursor of a query."""
        query: Query = {"q": text, "cursor": cursor}
        return self.transport.call("GET", f"{API}/search/complete", Completions, query=query).completions

    def status(self) -> Status:
        return self.transport.call("GET", f"{API}/status", Status)

    def log(
        self,
        *,
        after: int | None = None,
        limit: int = 100,
        level: Level = "debug",
        process: str = "",
        about: str = "",
        wait: float = 0.0,
    ) -> list[LogLine]:
        """The newest log lines of all processes, or those `after` a number, waiting for them."""
        query: Query = {"after": after, "limit": limit, "level": level, "process": process, "about": about}
        asked = {**query, "wait": wait}
        return self.transport.call("GET", f"{API}/log", LogAnswer, query=asked, timeout=wait + 30).lines

    def close(self) -> None:
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sources(Noun):
    at = f"{API}/sources"

    def add(
        self, url: str, *, kind: str = "git", visibility: Visibility = "public", labels: Sequence[str] = ()
    ) -> Added:
        body = {"url": url, "kind": kind, "visibility": visibility, "labels": list(labels)}
        return self._transport.call("POST", self.at, Added, body=body)

    def list(self, *, state: str | None = None, limit: int = 100) -> Iterator[Source]:
        """All of them; `limit` is the size of the pages they come in."""
        return pages(self._transport, self.at, Page[Source], limit, state=state)

    def show(self, ref: str) -> Source:
        if ref.startswith("src_"):
            return self._transport.call("GET", super()._of(ref), Source)
        return self._transport.call("GET", f"{API}/source", Source, query={"ref": ref})

    def update(
        self,
        ref: str,
        *,
        url: str | None = None,
        visibility: Visibility | None = None,
        labels: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Source:
        """Of `settings` only those named change; None takes one back."""
        tags = None if labels is None else tuple(labels)
        wanted = {"url": url, "visibility": visibility, "labels": tags, "settings": settings}
        body = {key: value for key, value in wanted.items() if value is not None}
        return self._transport.call("PATCH", self._of(ref), Source, body=body)

    def bulk(self, sources: Sequence[Mapping[str, Any]]) -> BulkAnswer:
        """Add and update up to 10,000: each has `url` and, if wanted, `ref`, `visibility` and `labels`."""
        return self._transport.call("POST", f"{API}/sources/bulk", BulkAnswer, body={"sources": list(sources)})

    def fetch(self, ref: str) -> Fetching:
        """Asks for a look now and does not wait for it: `wait` does, with `asked_at` as `looked_after`."""
        return self._transport.call("POST", self._of(ref, "fetch"), Fetching)

    def fetch_url(self, url: str, *, visibility: Visibility = "public") -> Fetching:
        """The same for a URL that may not be known yet: it is added where that is permitted."""
        body = {"url": url, "visibility": visibility}
        return self._transport.call("POST", f"{API}/fetch", Fetching, body=body)

    def accept(self, ref: str) -> Source:
        """Let the mirror follow into the loss that the source asks about."""
        return self._transport.call("POST", self._of(ref, "accept"), Source)

    def reindex(self, ref: str) -> Source:
        """Asks for a new index and does not wait for it."""
        return self._transport.call("POST", self._of(ref, "reindex"), Source)

    def remove(self, ref: str) -> None:
        self._transport.call("DELETE", self._of(ref), type(None))

    def wait(self, ref: str, *, looked_after: float = 0.0, commit: str = "", timeout: float = 30.0) -> Waited:
        """Until a look later than `looked_after` has settled and `commit` is searchable, at most `timeout` (and 60)
        seconds."""
        query: Query = {"looked_after": looked_after, "commit": commit, "timeout": timeout}
        return self._transport.call("GET", self._of(ref, "wait"), Waited, query=query, timeout=timeout + 30)

    def changes(self, ref: str, *, limit: int = 100) -> Iterator[Change]:
        """Newest first, all of them, in pages of `limit`."""
        return pages(self._transport, self._of(ref, "changes"), Page[Change], limit)

    def tree(self, ref: str, path: str = "", rev: str = "") -> Tree:
        return self._transport.call("GET", self._of(ref, "tree"), Tree, query={"path": path, "rev": rev})

    def file(self, ref: str, path: str, rev: str = "") -> FileView:
        return self._transport.call("GET", self._of(ref, "file"), FileView, query={"path": path, "rev": rev})

    def report(self, ref: str, commit: str = "") -> ReportAnswer:
        """What analysis found out about it: the newest, or that of a commit."""
        return self._transport.call("GET", self._of(ref, "report"), ReportAnswer, query={"commit": commit})

    def _of(self, ref: str, verb: str = "") -> str:
        return super()._of(ref if ref.startswith("src_") else self.show(ref).id, verb)


class Audit(Noun):
    at = f"{API}/audit"

    def list(self, about: str = "", *, limit: int = 100) -> Iterator[Audited]:
        """The newest first; `about` is a verb, a caller, or part of what was changed."""
        return pages(self._transport, self.at, Page[Audited], limit, about=about)


class Tokens(Noun):
    at = f"{API}/tokens"

    def create(self, subject: str, scopes: Sequence[Scope], expires_in: float | None = None) -> NewToken:
        body: dict[str, Any] = {"subject": subject, "scopes": list(scopes)}
        if expires_in is not None:
            body["expires_in"] = expires_in
        return self._transport.call("POST", self.at, NewToken, body=body)

    def list(self, *, limit: int = 100) -> Iterator[TokenInfo]:
        return pages(self._transport, self.at, Page[TokenInfo], limit)

    def revoke(self, id: str) -> None:
        self._transport.call("DELETE", self._of(id), type(None))
