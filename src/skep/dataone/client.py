"""A Member Node's API as a harvester calls it: bounded, never faster than the node can bear, and trusting nothing."""

import asyncio
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Protocol, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from skep.base.clock import Clock
from skep.base.errors import BadInput
from skep.dataone.api import Limits
from skep.dataone.encoding import encode, parse, render, show_time, write_form
from skep.dataone.rpc import Errand
from skep.dataone.types import Checksum, D1Error, Doc, Node, NodeList, ObjectFormatList, ObjectList, SystemMetadata
from skep.net.connection import NetworkError
from skep.net.guard import Guard
from skep.net.http import Exchange
from skep.sources.git.http import Reply
from skep.sources.model import Key

# Which span of time a node is asked for next (pure). Times are milliseconds of the node's clock, ends are exclusive.
#
# A window with too many objects is halved, as far down as one millisecond: objects of one moment stay together.

#: what a node may commit late, or under an older time than it shows it
OVERLAP = 300_000
#: the newest moments are asked for again next time: others may still join them
SETTLE = 10_000


class Window(msgspec.Struct, frozen=True):
    since: int
    #: None: whatever is newer
    until: int | None

    def place(self, now: int) -> int:
        """Everything before is listed once this window is. `now`: the node's time before it was asked."""
        return max(self.since, now - SETTLE) if self.until is None else self.until


def begin(place: int) -> int:
    return max(0, place - OVERLAP)


#: a probe asks how many there are in a window; the last window it gives is the one to list
Search = Generator[Window, int, Window]


def choose(since: int, now: int, most: int, span: int | None = None) -> Search:
    """Yields windows to be counted, is sent how many objects each has, returns the one to list: the largest found that
    has at most `most`, or a single moment. `span`: what the window before was like."""
    whole = Window(since, None)
    if (yield whole) <= most or since >= now:
        return whole
    low, high = since + 1, max(since + 2, now)
    middle = min(high, since + 2 * span) if span else (low + high) // 2
    best: Window | None = None
    while low < high:
        window = Window(since, middle)
        if (count := (yield window)) > most:
            high = middle - 1
        else:
            best = window
            low = middle
            if 2 * count >= most or middle == high:
                break
        middle = (low + high + 1) // 2
    return best or Window(since, low)


LARGEST = 64 << 20
#: it wants to be left alone for a while
BUSY = (429, 503)
_REDIRECTS = 3
#: bytes that an answer has to have brought before it is worth asking for the rest at once
_WORTH = 1 << 20
T = TypeVar("T", bound=Doc)


class Refused(Exception):
    """The node did not give what was asked for. Status 0: no answer came; -1: none that can be read. `name`: of the
    error, if it was one of DataONE's. The text is for people."""

    def __init__(self, status: int, message: str, retry_after: float | None = None, name: str = "") -> None:
        super().__init__(f"{status} {message}" if status > 0 else message)
        self.status = status
        self.name = name
        self.retry_after = retry_after


class Sink(Protocol):
    """Takes the bytes of an answer, from the beginning when it is new and after each `reset`."""

    #: bytes so far
    size: int

    @property
    def full(self) -> bool:
        """It wants no more: then it was we who hung up."""
        ...

    def reset(self) -> None: ...

    def write(self, chunk: bytes) -> object: ...


class _Hashed:
    """Of an answer no more than its checksum."""

    def __init__(self, errand: Errand) -> None:
        self._errand = errand
        self.reset()

    def reset(self) -> None:
        self.hash = Checksum("", self._errand.hash).hash()
        self.size = 0

    def write(self, chunk: bytes) -> int | None:
        """What is too long has another checksum, whatever follows."""
        self.hash.update(chunk)
        self.size += len(chunk)
        return 0 if self.full else None

    @property
    def full(self) -> bool:
        return self.size > self._errand.most


class Gate:
    """Lets requests through as the node's limits permit, which may change meanwhile."""

    def __init__(self) -> None:
        self.limits = Limits()
        self._bytes = 0
        self._next = 0.0
        self._left = asyncio.Event()

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """One object of any size fits, if nothing else is under way."""
        while self._bytes and self._bytes + size > self.limits.bytes:
            self._left.clear()
            await self._left.wait()
        self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size
            self._left.set()

    async def turn(self) -> None:
        if self.limits.rate:
            now = asyncio.get_running_loop().time()
            self._next = max(now, self._next + 1 / self.limits.rate)
            await asyncio.sleep(self._next - now)


class NodeClient:
    """For one node. `version` is part of each path: /v1 or /v2."""

    def __init__(self, http: Exchange, guard: Guard, clock: Clock, base: str, version: str, key: Key | None) -> None:
        self._http = http
        self._guard = guard
        self._clock = clock
        self._base = base.rstrip("/")
        self._home = urlsplit(self._base)[:2]
        self.version = version
        self._key = key
        self.gate = Gate()
        #: milliseconds that its clock is ahead, by its last answer
        self.skew = 0
        #: of listObjects, what it accepts
        self.slices = True
        self.ends = True
        #: a Coordinating Node like us
        self.sibling = False
        #: where its lists are for good now, by its own word
        self.moved = ""

    async def node(self) -> Node:
        """By version 2 where that is spoken. A Coordinating Node lists all that it knows."""
        try:
            return await self._read(Node, "/node")
        except Refused as error:
            if error.status == -1 and (found := await self._coordinator()):
                return found
            if self.version == "v1" or error.status not in (400, 404, 501):
                raise
            self.version = "v1"
            return await self._read(Node, "/node")

    async def _coordinator(self) -> Node | None:
        """Itself comes first among its kind."""
        with suppress(Refused):
            nodes = await self._read(NodeList, "/node")
            return next((one for one in nodes.node if one.type == "cn"), None)
        return None

    def try_everything(self) -> None:
        """It may have refused for another reason than that it does not know how."""
        self.slices = self.ends = True

    async def list(self, window: Window, start: int, count: int) -> ObjectList:
        """What the node cannot do is left out: then the list is whole. Behind its end it is empty."""
        asked: dict[str, str] = {"fromDate": show_time(window.since)} if window.since else {}
        if window.until is not None and self.ends:
            asked["toDate"] = show_time(window.until)
        if self.slices:
            asked |= {"start": str(start), "count": str(count)}
        try:
            path = "/changed" if self.sibling else "/object"
            return await self._read(ObjectList, f"{path}?{urlencode(asked)}" if asked else path)
        except Refused as error:
            if error.status not in (400, 501):
                raise
            if start:
                return ObjectList(start=start)
            if self.slices:
                self.slices = False
            elif "toDate" in asked:
                self.ends = False
            else:
                raise
            return await self.list(window, 0, count)

    async def meta(self, pid: str) -> SystemMetadata:
        return await self._read(SystemMetadata, f"/meta/{encode(pid)}")

    async def checksum(self, pid: str, algorithm: str) -> Checksum:
        return await self._read(Checksum, f"/checksum/{encode(pid)}?checksumAlgorithm={algorithm}")

    async def formats(self) -> ObjectFormatList:
        """Of a Coordinating Node."""
        return await self._read(ObjectFormatList, "/formats")

    async def object(self, pid: str, into: Sink) -> None:
        await self._whole(f"/object/{encode(pid)}", into)

    async def replica(self, pid: str, into: Sink) -> None:
        """As a holder of copies asks. A node that does not know that call, or cannot find out who we are, may still
        give what everybody may have."""
        try:
            await self._whole(f"/replica/{encode(pid)}", into)
        except Refused as error:
            if error.status <= 0 or error.status in BUSY:
                raise
            into.reset()
            try:
                await self.object(pid, into)
            except Refused as other:
                raise (error if other.status in (401, 403) else other) from None

    async def _whole(self, path: str, into: Sink) -> None:
        """What breaks off half-way goes on from there, as long as that leads further."""
        before = 0
        while True:
            try:
                await self._ask(path, into=into)
                return
            except Refused as error:
                if error.status or into.size < before + _WORTH:
                    raise
                before = into.size

    # of a Coordinating Node

    async def nodes(self) -> NodeList:
        return await self._read(NodeList, "/node")

    async def notify(self, pid: str, parts: Mapping[str, str | bytes]) -> int:
        """What became of a copy; the status of the answer."""
        path = f"/replicaNotifications/{encode(pid)}"
        return (await self._ask(path, form=write_form(parts), any=True, method="PUT")).status

    async def permits(self, pid: str, subject: str) -> bool:
        """May the node that speaks as this subject have a copy?"""
        path = f"/replicaAuthorizations/{encode(pid)}?{urlencode({'targetNodeSubject': subject})}"
        return (await self._ask(path, any=True)).status == 200

    # for others

    async def run(self, errand: Errand) -> Reply:
        """Whatever it is answered with."""
        if errand.hash:
            return await self._hashed(errand)
        if not errand.parts:
            return await self._ask(errand.path, any=True)
        parts = {name: value if value.startswith(b"<") else value.decode() for name, value in errand.parts.items()}
        return await self._ask(errand.path, form=write_form(parts), any=True)

    async def _hashed(self, errand: Errand) -> Reply:
        into = _Hashed(errand)
        status = (await self._ask(errand.path, into=into, any=True)).status
        return Reply(status, render(Checksum(into.hash.hexdigest(), errand.hash)), "", "", 0)

    async def _read(self, kind: type[T], path: str) -> T:
        before = self._clock.now()
        reply = await self._ask(path)
        if kind in (ObjectList, Node):
            self._measure(reply, before)
        try:
            return parse(kind, reply.body, largest=LARGEST)
        except BadInput as error:
            raise Refused(-1, f"{path}: {error.message}") from None

    async def _ask(
        self,
        path: str,
        *,
        form: tuple[str, bytes] | None = None,
        into: Sink | None = None,
        any: bool = False,
        method: str = "",
    ) -> Reply:
        """Of redirects a few are followed, and with our credentials only to the same host."""
        url, origin, reply = f"{self._base}/{self.version}{path}", self._home, None
        for _ in range(_REDIRECTS):
            await self.gate.turn()
            reply = await self._exchange(url, origin, form, into, method)
            if reply.status not in (301, 302, 303, 307, 308) or not reply.redirect:
                break
            if form and reply.status == 303:  # what was posted has arrived
                break
            if reply.status in (301, 308) and path.startswith("/object?"):
                self.moved = reply.redirect.partition("?")[0]
            url, origin = reply.redirect, urlsplit(reply.redirect)[:2]
        if reply is None or (reply.status != 200 and not any):
            raise _refused(path, reply)
        return reply

    async def _exchange(
        self, url: str, origin: tuple[str, str], form: tuple[str, bytes] | None, into: Sink | None, method: str
    ) -> Reply:
        parts = self._guard.check_url("{}://{}/node".format(*origin))
        key = self._key if origin == self._home else None
        certificate = key.certificate if key else ""
        headers = [f"Authorization: Bearer {key.token}"] if key and not certificate else []
        if form:
            headers.append(f"Content-Type: {form[0]}")
        try:
            addresses = await self._guard.resolve(parts.host, parts.port)
        except (OSError, TimeoutError):
            raise Refused(0, f"the host '{parts.host}' was not found") from None
        body, write, start = form[1] if form else None, into.write if into else None, into.size if into else 0
        path = url.partition("//")[2].removeprefix(origin[1]).partition("#")[0]
        target = path if path.startswith("/") else f"/{path}"
        try:
            return await self._http.ask(
                *(parts, addresses, target, headers, body),
                into=write,
                start=start,
                certificate=certificate,
                method=method,
            )
        except NetworkError as error:
            if into and into.full:
                return Reply(200, b"", "", "", 0)
            raise Refused(0, f"{parts.authority}: {error}") from None

    def _measure(self, reply: Reply, before: float) -> None:
        line = next((line for line in reply.head if line[:5].lower() == b"date:"), b"")
        try:
            date = parsedate_to_datetime(line[5:].decode("latin-1").strip()).timestamp()
        except (ValueError, TypeError):
            return
        # its seconds are whole: what lies between is no skew
        ahead = max(0.0, date - self._clock.now()) or min(0.0, date + 1.0 - before)
        self.skew = int(ahead * 1000)

    @property
    def now(self) -> int:
        """Milliseconds, by the node's clock."""
        return int(self._clock.now() * 1000) + self.skew


def _refused(path: str, reply: Reply | None) -> Refused:
    if reply is None:
        return Refused(0, f"{path}: it sends us round in circles")
    pause, name = float(reply.retry_after) if reply.retry_after else None, ""
    try:
        error = parse(D1Error, reply.body)
        name, said = error.name, f"{error.name}: {error.description[:300]}"
    except BadInput:
        said = "and says nothing that we understand"
    return Refused(reply.status, f"{path}: {said}", pause, name)
