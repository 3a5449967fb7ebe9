"""Requests to the server. They wait in threads, as searches do; one client with its connections serves them all."""

import hashlib
import os
import re
import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import certifi
import httpx
import msgspec
import numpy as np

from skep.base.errors import BadInput, Busy, Damaged, NoSpace, SkepError, Unavailable
from skep.storage.code_index.model import And, Document, Language, Not, Or, Query, Term, Within, digest, terms
from skep.storage.code_index.trigram.matchers import Compiled, Matches, Watch
from skep.storage.code_index.trigram.query_plan import All, Distinct, Grams, Pair, Plan, Some

# The URL of an index on a server, taken apart. Its password is in no message.

_PREFIX = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_HINT = "write opensearch://[USER:PASSWORD@]HOST[:PORT][/PREFIX][?tls=yes&shards=3&replicas=1]"


class Address(msgspec.Struct, frozen=True):
    #: without user and password
    url: str
    user: str
    password: str
    #: every name of ours on the server begins with it
    prefix: str
    shards: int
    #: None: one when there is a second node
    replicas: int | None

    def settings(self) -> dict[str, Any]:
        """Of an index there. It is refreshed when something is complete, and not by the clock."""
        many = {"auto_expand_replicas": "0-1"} if self.replicas is None else {"number_of_replicas": self.replicas}
        return {"index": {"number_of_shards": self.shards, "refresh_interval": "-1", **many}}


def parse(url: str) -> Address:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 9200
    except ValueError:
        host, port = None, 0
    prefix = parts.path.strip("/") or "skep" if host else ""
    if not host or not _PREFIX.fullmatch(prefix):
        raise BadInput("the URL of the index names no server, or a prefix that no index can have", hint=_HINT)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    scheme = "https" if _take(options, "tls", r"yes|no", "no") == "yes" else "http"
    shards, replicas = _take(options, "shards", r"[1-9]\d{0,2}", "1"), _take(options, "replicas", r"\d", "")
    if options:
        raise BadInput(f"the URL of the index has an unknown option {min(options)[:50]!r}", hint=_HINT)
    return Address(
        f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}",
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        prefix,
        int(shards),
        int(replicas) if replicas else None,
    )


def _take(options: dict[str, str], name: str, form: str, default: str) -> str:
    value = options.pop(name, default)
    if value != default and not re.fullmatch(form, value):
        raise BadInput(f"the option {name} in the URL of the index cannot be {value[:50]!r}", hint=_HINT)
    return value


# What a document of ours is on the server.
#
# Its text never goes through the server's own analysis: it may be any bytes, and what is found must be what the
# embedded
# engine finds. So the trigram keys of the embedded engine are written as words of three letters, and the document
# itself
# as one stored value that the server hands back as it came.

#: of mapping and body; an index of another format is copied into a new one
FORMAT = 2
#: a document's place is its generation and, in the lower bits, its count within that
PLACE_BITS = 24

_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_GRAMS = {"type": "text", "analyzer": "whitespace", "index_options": "docs", "norms": False}
_LONG = {"type": "long"}
MAPPING: dict[str, Any] = {
    "dynamic": "strict",
    "_meta": {"format": FORMAT},
    "_source": {"enabled": False},
    "properties": {
        "place": _LONG,
        "source": _LONG,
        "marked": {"type": "boolean", "doc_values": False},
        "size": {"type": "long", "index": False},
        "language": {"type": "keyword", "doc_values": False},
        "path": {"type": "keyword"},
        "blob": {"type": "keyword"},
        "digest": {"type": "keyword", "index": False},
        "grams": _GRAMS,
        "path_grams": _GRAMS,
        "body": {"type": "binary", "store": True},
    },
}


class Row(msgspec.Struct, frozen=True):
    """A document as it is sent."""

    place: int
    source: int
    #: a test, a copy or generated
    marked: bool
    #: bytes of its content
    size: int
    language: str
    #: its hash: paths are any bytes
    path: str
    blob: str
    digest: str
    grams: str
    path_grams: str
    body: bytes


class Light(msgspec.Struct, frozen=True):
    """What is asked of every candidate before its body is."""

    place: int
    source: int
    size: int
    path: str
    blob: str
    digest: str

    @property
    def born(self) -> int:
        """The generation it came with."""
        return self.place >> PLACE_BITS


LIGHT = ("place", "source", "size", "path", "blob", "digest")


def light(hit: dict[str, Any]) -> Light:
    fields = hit["fields"]
    return Light(*(fields[name][0] for name in LIGHT))


def path_hash(path: bytes) -> str:
    return hashlib.blake2b(path, digest_size=16).hexdigest()


def words(keys: np.typing.NDArray[Any]) -> str:
    """Trigram keys, each as a word of three letters."""
    letters = np.full((len(keys), 4), 32, np.uint8)
    for nth, shift in enumerate((12, 6, 0)):
        letters[:, nth] = _LETTERS[keys >> shift & 63]
    return letters.tobytes().decode()


def actions(documents: Iterator[tuple[int, int, Document]]) -> Iterator[bytes]:
    """For `bulk`: write the documents, each with its place and the number of its source."""
    distinct = Distinct()
    for place, source, document in documents:
        row = Row(
            place,
            source,
            document.marks > 0,
            len(document.content),
            document.language,
            path_hash(document.path),
            document.blob,
            digest([(document.path, document.blob, document.branches)]),
            words(distinct.keys(document.content)),
            words(distinct.keys(document.path + b"\n")),
            msgspec.msgpack.encode(document),
        )
        yield b'{"index":{"_id":"%d"}}\n%b' % (place, msgspec.json.encode(row))


# The small parts that queries of a server are made of.

Filter = dict[str, Any]
NOTHING: Filter = {"match_none": {}}
#: values a server takes in one clause are 65536
_MOST_VALUES = 60_000


def any_of(parts: list[Filter]) -> Filter:
    return NOTHING if not parts else parts[0] if len(parts) == 1 else {"bool": {"should": parts}}


def one_of(field: str, values: Sequence[str] | Sequence[int]) -> Filter:
    pieces = [values[at : at + _MOST_VALUES] for at in range(0, len(values), _MOST_VALUES)]
    return any_of([{"terms": {field: piece}} for piece in pieces])


# A query as a filter of the server's: true for every document the query is true for, and for some others.

#: clauses a server takes in one query are 1024; further keys hardly narrow what some have left over
_MOST_CLAUSES, _MOST_KEYS = 900, 16


def narrow(compiled: Compiled) -> Filter | None:
    """None: any document."""
    return _Narrower(compiled).filter(compiled.query)


def likely(compiled: Compiled) -> Filter:
    """Documents whose paths promise the best hits."""
    plans = compiled.endings if compiled.by_path else [compiled.finders[term].plan for term in compiled.placed]
    return any_of(_Narrower(compiled).paths(plans))


def among(numbers: Iterable[int]) -> Filter:
    """Documents of these sources."""
    return one_of("source", sorted(numbers))


def _groups(plan: Plan | None) -> int:
    match plan:
        case None:
            return 0
        case Grams() | Pair():
            return 1
        case All(parts) | Some(parts):
            return sum(map(_groups, parts))


class _Narrower:
    def __init__(self, compiled: Compiled) -> None:
        self._plans = {term: finder.plan for term, finder in compiled.finders.items() if term.field != "branch"}
        groups = sum(_groups(plan) * (2 if term.field == "any" else 1) for term, plan in self._plans.items())
        groups += sum(map(_groups, compiled.endings))
        #: of one literal; 0: there are too many of them
        self._keys = min(_MOST_CLAUSES // max(1, groups), _MOST_KEYS)

    def filter(self, query: Query) -> Filter | None:
        match query:
            case Within(numbers):
                return among(numbers)
            case Language(name):
                return {"term": {"language": name}}
            case Term():
                return self._term(query)
            case Not(part):
                exact = self.filter(part) if not any(True for _ in terms(part)) else None
                return None if exact is None else {"bool": {"must_not": [exact]}}
            case And(parts):
                known = [one for one in map(self.filter, parts) if one is not None]
                return {"bool": {"filter": known}} if known else None
            case Or(parts):
                return _either([self.filter(part) for part in parts])

    def _term(self, term: Term) -> Filter | None:
        plan = self._plans.get(term)
        if plan is None or not self._keys:
            return None
        if term.field == "any":
            return any_of([self._plan(plan, "grams"), self._plan(plan, "path_grams")])
        return self._plan(plan, "path_grams" if term.field == "path" else "grams")

    def paths(self, plans: Iterable[Plan | None]) -> list[Filter]:
        return [self._plan(plan, "path_grams") for plan in plans if plan is not None and self._keys]

    def _plan(self, plan: Plan, field: str) -> Filter:
        match plan:
            case Grams(keys):
                chosen = keys[np.unique(np.linspace(0, len(keys) - 1, self._keys).astype(int))]
                return {"bool": {"filter": [{"term": {field: word}} for word in words(chosen).split()]}}
            case Pair(first):
                return {"prefix": {field: words(np.array([first]))[:2]}}
            case All(parts):
                return {"bool": {"filter": [self._plan(part, field) for part in parts]}}
            case Some(parts):
                return any_of([self._plan(part, field) for part in parts])


def _either(parts: Sequence[Filter | None]) -> Filter | None:
    return None if any(part is None for part in parts) else any_of([part for part in parts if part is not None])


_CONNECT_SECONDS, _SECONDS = 5.0, 60.0
#: deleting by query takes as long as it takes
_LONG_SECONDS = 3600.0
#: bytes of one request
_MOST_BYTES = 4_000_000


def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE") or certifi.where())


class Slow(Unavailable):
    """No answer in the time there was."""


class Refused(Unavailable):
    """The server does not take what it was asked."""


def _pieces(actions: Iterable[bytes]) -> Iterator[bytes]:
    """Bodies of requests, none of them much too large."""
    taken: list[bytes] = []
    size = 0
    for action in actions:
        taken.append(action)
        size += len(action)
        if size > _MOST_BYTES:
            yield b"\n".join([*taken, b""])
            taken, size = [], 0
    if taken:
        yield b"\n".join([*taken, b""])


class Node:
    def __init__(self, address: Address) -> None:
        self.prefix = address.prefix
        self._name = address.url.partition("//")[2]
        self._http = httpx.Client(
            base_url=address.url,
            auth=(address.user, address.password) if address.user else None,
            timeout=httpx.Timeout(_SECONDS, connect=_CONNECT_SECONDS),
            # no proxies and no .netrc: the URL says it all, but for whom to trust
            trust_env=False,
            verify=_trusted() if address.url.startswith("https:") else False,
        )

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, body: object = None, *, until: float | None = None, **query: str) -> Any:
        """`until`: by time.monotonic(), when the answer is of no use any more."""
        content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        seconds = _SECONDS if until is None else max(0.001, until - time.monotonic())
        try:
            answer = self._http.request(
                method,
                f"/{path}",
                content=content,
                params=query,
                headers={"Content-Type": kind},
                timeout=httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
            )
        except httpx.TimeoutException:
            raise Slow(f"the index at {self._name} does not answer in time", hint="it is tried again") from None
        except (httpx.TransportError, RuntimeError) as error:
            reason = str(error) or type(error).__name__
            raise Unavailable(
                f"the index at {self._name} cannot be reached: {reason}", hint="is OpenSearch running there?"
            ) from None
        if answer.status_code >= 400:
            raise self._error(answer)
        return msgspec.json.decode(answer.content) if answer.content else None

    def _error(self, answer: httpx.Response) -> SkepError:
        try:
            return self._explained(answer.status_code, msgspec.json.decode(answer.content)["error"])
        except (msgspec.MsgspecError, KeyError, TypeError):
            return self._explained(answer.status_code, {"type": "", "reason": answer.text[:200]})

    def _explained(self, status: int, said: dict[str, Any]) -> SkepError:
        kind, reason = said["type"], str(said["reason"])[:500]
        if "flood-stage" in reason or "No space left" in reason:
            return NoSpace(f"the disk of the index at {self._name} is full", hint="free some space there")
        if status in (401, 403):
            return Unavailable(
                f"the index at {self._name} refuses us: {reason}", hint="look at the user and password in its URL"
            )
        if status == 429:
            return Busy(f"the index at {self._name} is busy: {reason}")
        if kind in ("index_not_found_exception", "resource_not_found_exception"):
            return Damaged(f"the index at {self._name} is gone: {reason}", hint="skep makes it anew when it starts")
        refused = Refused if status == 400 else Unavailable
        return refused(f"the index at {self._name} answers {status}: {kind} {reason}")

    def bulk(self, index: str, actions: Iterable[bytes], *, is_alias: bool = True) -> None:
        """All of them or an error. An alias that is gone must not come back as an index."""
        for lines in _pieces(actions):
            answer = self.call("POST", f"{index}/_bulk", lines, require_alias=str(is_alias).lower())
            if answer["errors"]:
                done = (one for item in answer["items"] for one in item.values())
                failed = next(one for one in done if "error" in one)
                raise self._explained(failed["status"], failed["error"])

    def delete(self, index: str, query: dict[str, Any]) -> None:
        """Whatever matches; seen by later searches."""
        self.call("POST", f"{index}/_refresh")
        until = time.monotonic() + _LONG_SECONDS
        self.call(
            "POST", f"{index}/_delete_by_query", {"query": query}, until=until, conflicts="proceed", refresh="true"
        )

    def behind(self) -> dict[str, str]:
        """The index that our alias names, and the unique id the server gave it; none when there is no alias yet."""
        named = [one["index"] for one in self.call("GET", f"_cat/aliases/{self.prefix}", format="json")]
        return {name: self.call("GET", f"{name}/_settings")[name]["settings"]["index"]["uuid"] for name in named}


# A first look at a candidate's bytes: most of those that only share some trigrams with the query go here.


class Sift:
    def __init__(self, compiled: Compiled, watch: Watch) -> None:
        self._compiled = compiled
        self._watch = watch

    def lines(self, document: Document) -> int | None:
        """About how many lines match; None: the query is not true for this document."""
        found: dict[Term, int] = {}
        if not self._may_be_true(self._compiled.query, document, found):
            return None
        return sum(found.values())

    def _may_be_true(self, query: Query, document: Document, found: dict[Term, int]) -> bool:
        match query:
            case Term(field) if field in ("content", "any"):
                return self._matches(query, document, found)
            case And(parts):
                return all(self._may_be_true(part, document, found) for part in parts)
            case Or(parts):
                return any(self._may_be_true(part, document, found) for part in parts)
            case _:  # the embedded engine decides
                return True

    def _matches(self, term: Term, document: Document, found: dict[Term, int]) -> bool:
        finder = self._compiled.finders[term]
        matches = Matches([], [], [])
        if document.content:
            finder.find(document.content, [(0, len(document.content))], self._watch, matches)
        found[term] = len(matches.lines)
        return found[term] > 0 or (term.field == "any" and any(map(finder.matches, document.path.split(b"\n"))))
