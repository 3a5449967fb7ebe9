"""Tuple spaces over HTTP: `space = client.space("jobs"); space.put("job", 1); with space.get("job", int) as job: …`"""

import secrets
import time
from collections.abc import Callable, Iterator
from typing import Self, TypeVar
from urllib.parse import quote

from skep.base.answers import Page
from skep.base.errors import NotFound
from skep.client.transport import API, Noun, Transport, pages
from skep.spaces.api import Field, Fields, FoundAnswer, GotAnswer, PlacedAnswer, SpaceInfo, Taken, template_of

T = TypeVar("T")
#: one request waits this long at most; who waits longer asks again
_POLL_SECONDS = 30.0
_LEASE_SECONDS = 60.0


class Spaces(Noun):
    at = f"{API}/spaces"

    def show(self, space: str) -> SpaceInfo:
        return self._transport.call("GET", self._of(space), SpaceInfo)

    def drop(self, space: str) -> None:
        """With everything in it."""
        self._transport.call("DELETE", self._of(space), type(None))

    def list(self, *, limit: int = 100) -> Iterator[SpaceInfo]:
        return pages(self._transport, self.at, Page[SpaceInfo], limit)


class Space:
    """Templates are values and types: `space.get("job", int)`, `any` for any type. True is no int, 1 is no 1.0."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self.name = name

    def put(self, *fields: Field, id: str = "") -> int:
        """Its place; stored when this returns. With the `id` of a tuple that is there, this is that tuple."""
        return self._call("put", PlacedAnswer, {"fields": fields, "id": id or secrets.token_urlsafe(12)}).seq

    def get(self, *template: object, timeout: float | None = None, lease: float = _LEASE_SECONDS) -> "TakenTuple":
        """Takes the oldest match, waiting for one: for ever, or until NotFound after `timeout` seconds."""
        return self._patiently(lambda wait: self._get(template, wait, lease), timeout)

    def getp(self, *template: object, lease: float = _LEASE_SECONDS) -> "TakenTuple | None":
        """The same without waiting; None when there is no match."""
        return self._get(template, 0.0, lease)

    def query(self, *template: object, timeout: float | None = None) -> Fields:
        """Looks at the oldest match and leaves it there, waiting for one as `get` does."""
        return self._patiently(lambda wait: self._query(template, wait), timeout)

    def queryp(self, *template: object) -> Fields | None:
        return self._query(template, 0.0)

    def get_all(self, *template: object) -> list[Fields]:
        """Removes every match at once, without a lease; at most 10,000."""
        found = self._call("get_all", FoundAnswer, {"template": template_of(template)}, repeatable=False)
        return [one.fields for one in found.tuples]

    def query_all(self, *template: object) -> list[Fields]:
        """The oldest 10,000 matches."""
        return [one.fields for one in self._call("query_all", FoundAnswer, {"template": template_of(template)}).tuples]

    def replace(self, template: tuple[object, ...], fields: Fields) -> int:
        """In one step: the oldest match goes, if there is one, and `fields` come."""
        body = {"template": template_of(template), "fields": fields}
        return self._call("replace", PlacedAnswer, body, repeatable=False).seq

    def end(self, verb: str, taken: Taken, **more: float) -> None:
        """`acknowledge`, `give_back` or `keep` what was taken; a TakenTuple has these verbs."""
        self._call(verb, type(None), {"seq": taken.seq, "ticket": taken.ticket, **more})

    def _get(self, template: tuple[object, ...], wait: float, lease: float) -> "TakenTuple | None":
        ticket = secrets.token_urlsafe(12)
        body = {"template": template_of(template), "wait": wait, "lease": lease, "ticket": ticket}
        taken = self._call("get", GotAnswer, body, wait).taken
        return TakenTuple(self, taken) if taken else None

    def _query(self, template: tuple[object, ...], wait: float) -> Fields | None:
        found = self._call("query", FoundAnswer, {"template": template_of(template), "wait": wait}, wait).tuples
        return found[0].fields if found else None

    def _patiently(self, poll: Callable[[float], T | None], timeout: float | None) -> T:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _POLL_SECONDS if until is None else max(0.0, until - time.monotonic())
            if (found := poll(min(left, _POLL_SECONDS))) is not None:
                return found
            if left <= 0:
                raise NotFound(f"no match came to the space {self.name!r} in {timeout:g} s")

    def _call(self, verb: str, answer: type[T], body: object, patience: float = 0.0, *, repeatable: bool = True) -> T:
        path = f"{_path(self.name)}/{verb}"
        return self._transport.call("POST", path, answer, body=body, timeout=patience + 30, repeatable=repeatable)


class TakenTuple:
    """Yours until its lease is over. As a `with` block: acknowledged at its end, given back when it fails."""

    def __init__(self, space: Space, taken: Taken) -> None:
        self._space = space
        self._taken = taken
        self.fields = taken.fields
        self.seq = taken.seq
        self.id = taken.id

    def acknowledge(self) -> None:
        self._space.end("acknowledge", self._taken)

    def give_back(self) -> None:
        self._space.end("give_back", self._taken)

    def keep(self, lease: float = _LEASE_SECONDS) -> None:
        """`lease` seconds more from now on."""
        self._space.end("keep", self._taken, lease=lease)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __getitem__(self, place: int) -> Field:
        return self.fields[place]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if failure is None:
            self.acknowledge()
        else:
            self.give_back()


def _path(space: str) -> str:
    return f"{API}/spaces/{quote(space, safe='')}"
