"""Requests to the server. They wait in threads, as searches do; one client with its connections serves them all."""

import os
import ssl
import time
from collections.abc import Iterable, Iterator
from typing import Any

import certifi
import httpx
import msgspec

from skep.engines.index.opensearch.address import Address
from skep.errors import Busy, Damaged, NoSpace, SkepError, Unavailable

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
