"""One visit to a Member Node, on the worker that holds it: list what is new, bring what is queued, run errands.

Nothing is remembered here: how far we are and what waits is the coordinator's, so that any number of objects costs the
same memory, and a kill loses nothing.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from skep.base.clock import Clock
from skep.base.ids import new_id
from skep.dataone.api import Limits
from skep.dataone.client import BUSY, NodeClient, Refused
from skep.dataone.formats import Formats
from skep.dataone.listing import ASK_BYTES, Listing, weight
from skep.dataone.rpc import Bring, Brought, Errand, Harvest, Objects, Queued, Ran, TakeObjects, Wanted
from skep.dataone.types import Checksum, SystemMetadata
from skep.sources.model import Held
from skep.sources.source_type import Ask

# The bytes of an object on their way in: nothing is believed of them that was not counted and hashed here.


class Catch:
    """The bytes of one object as they come: counted, hashed, and kept in memory or in a file."""

    def __init__(self, expected: SystemMetadata, file: Path | None) -> None:
        self._expected = expected
        self.file = file
        self.reset()

    def reset(self) -> None:
        self.size = 0
        self.hash = self._expected.checksum.hash()
        self.kept = bytearray()
        if self.file:
            self.file.write_bytes(b"")

    def write(self, chunk: bytes) -> int | None:
        """A node that gives more than it promised is not listened to any longer."""
        self.size += len(chunk)
        self.hash.update(chunk)
        if self.file:
            with self.file.open("ab") as file:
                file.write(chunk)
        else:
            self.kept += chunk
        return 0 if self.full else None

    @property
    def full(self) -> bool:
        return self.size > self._expected.size

    def beginning(self, most: int) -> bytes:
        if self.file is None:
            return bytes(self.kept[:most])
        with self.file.open("rb") as file:
            return file.read(most)

    def wrong(self) -> str:
        """What is not as promised, with both values."""
        if self.size != self._expected.size:
            return f"it has {self.size} bytes or more, not {self._expected.size} as promised"
        found = Checksum(self.hash.hexdigest(), self._expected.checksum.algorithm)
        if not self._expected.checksum.agrees(found):
            return f"its {found.name} is {found.value}, not {self._expected.checksum.value} as promised"
        return ""


#: objects and bytes that are handed over together, and the seconds that the first of them waits for others: of a slow
#: node, too, no more than that is lost by a kill
_OBJECTS, _BYTES, _SECONDS = 500, 4 << 20, 5.0
#: such lots under way
_ON_THE_WAY = 3
#: objects taken from the queue together; as many may be open when more are taken
_TAKE = 500
#: larger ones go to disk by themselves
_LARGE = 1 << 20
#: of wrong bytes, as many are kept
_ASIDE = 1 << 18
#: refusals that have an end: who we are may be settled, and the node have time
_PASSES = (401, 403, 407, 408, 429)
#: answers in a row that did not come, until the node is left alone
_DEAD = 10
#: no more is wanted
_HOME = Wanted("")


class Visit(Listing):
    def __init__(
        self, source: Held, plan: Harvest, client: NodeClient, ask: Ask, clock: Clock, formats: Formats, folder: Path
    ) -> None:
        """`folder`: where packs are until they are handed over."""
        super().__init__(source, plan, client, ask)
        self._clock = clock
        self._formats = formats
        self._folder = folder
        self._ticket = new_id("hrv", clock.now())
        #: None: list on
        self._items: asyncio.Queue[Wanted | Errand | None] = asyncio.Queue()
        #: no hand is at that
        self._listed = asyncio.Event()
        self._listed.set()
        #: given out and not ended; rung when one ends
        self._open = 0
        self._ended = asyncio.Event()
        self._hands: set[asyncio.Task[None]] = set()
        self._hiring = True
        self._done: list[Brought] = []
        self._ran: list[Ran] = []
        self._pack = bytearray()
        self._weight = 0
        self._since = 0.0
        self._handing: set[asyncio.Task[Queued]] = set()
        self._silent = 0
        self._broken: BaseException | None = None
        #: objects handed over, and those of them that came whole
        self.brought = self.whole = 0

    async def bring(self, until: float, report: Callable[[int, int], None]) -> None:
        """What waits, and what is listed meanwhile, until there is nothing more or it is time to let others."""
        if isinstance(self.failed, Refused) and not self.failed.status:
            self._silent = _DEAD - 1  # its list did not answer: one object that does not either is enough
        try:
            while self._clock.now() < until or not self.brought:
                self._list_on()
                taken = await self._ask(TakeObjects(*self._me, ticket=self._ticket, most=_TAKE))
                assert isinstance(taken, Objects)
                self.due = taken.due
                self._hire(taken.limits)
                if not taken.wanted and not taken.errands:
                    if not self._listed.is_set():
                        await self._listed.wait()
                    elif self._open or self._done or self._handing:
                        await self._wait(0)
                        await self._hand_over(wait=True)  # and may be asked for once more
                    else:
                        break
                    continue
                items: tuple[Wanted | Errand, ...] = (*taken.errands, *taken.wanted)
                for item in items:
                    self._items.put_nowait(item)
                self._open += len(items)
                report(self.brought, self.brought + self.due)
                # an errand is free to be taken again until it is reported
                await self._wait(0 if taken.errands else _TAKE)
                if taken.errands:
                    await self._hand_over(wait=True)
            await self._wait(0)
            await self._hand_over(wait=True)
        except Refused:
            await self._send_home()
            await self._hand_over(wait=True)  # what it gave before counts
            raise
        finally:
            everybody = [*self._hands, *self._handing]
            for hand in everybody:
                hand.cancel()
            await asyncio.gather(*everybody, return_exceptions=True)

    @property
    def waiting(self) -> int:
        return self.due + self._open

    def _list_on(self) -> None:
        """While little waits one of the hands lists, and the others bring."""
        if self.rest is not None and self._listed.is_set() and self.waiting < self._plan.queue[0]:
            self._listed.clear()
            self._items.put_nowait(None)
            self._open += 1

    def _hire(self, limits: Limits) -> None:
        """As many hands as there may be by now; those who are too many leave."""
        self._client.gate.limits = limits
        while self._hiring and len(self._hands) < limits.connections:
            hand = asyncio.create_task(self._work())
            self._hands.add(hand)
            hand.add_done_callback(self._leave)

    def _leave(self, hand: asyncio.Task[None]) -> None:
        self._hands.discard(hand)
        if not hand.cancelled() and (error := hand.exception()) is not None:
            self._broken = self._broken or error
        self._ended.set()

    async def _wait(self, most: int) -> None:
        """Until no more than so many are open; whatever broke a hand ends the visit."""
        while self._open > most and self._broken is None:
            self._ended.clear()
            await self._ended.wait()
        if self._broken is not None:
            raise self._broken

    async def _send_home(self) -> None:
        """Each ends what is in hand, and begins nothing more."""
        self._hiring = False  # a new one would take the word that is meant for another, who would wait for ever
        while not self._items.empty():
            self._items.get_nowait()
        for _ in self._hands:
            self._items.put_nowait(_HOME)
        await asyncio.gather(*self._hands, return_exceptions=True)

    async def _work(self) -> None:
        hand = asyncio.current_task()
        assert hand is not None
        while len(self._hands) <= self._client.gate.limits.connections:
            item = await self._items.get()
            if item is _HOME:
                return
            if isinstance(item, Errand):
                self._ran.append(await self._run(item))
            elif item is None:
                try:
                    await self.list_on()
                finally:
                    self._listed.set()
            else:
                await self._fetch(item)
            self._open -= 1
            self._ended.set()
            full = len(self._done) >= _OBJECTS or len(self._pack) >= _BYTES or self._weight >= ASK_BYTES
            if full or (self._done and self._clock.now() >= self._since + _SECONDS):
                await self._hand_over()
        self._hands.discard(hand)  # at once, or another that looks at the same moment would leave as well

    async def _run(self, errand: Errand) -> Ran:
        try:
            reply = await self._client.run(errand)
        except Refused as error:
            return Ran(errand.id, error.status)
        return Ran(errand.id, reply.status, reply.body[:10_000])

    async def _fetch(self, wanted: Wanted) -> None:
        meta = None
        try:
            meta = await self._client.meta(wanted.pid)
            self._silent = 0
            if meta.identifier != wanted.pid or weight(meta) > ASK_BYTES:
                wrong = "its system metadata is too large" if meta.identifier == wanted.pid else "it is another object"
                self._trouble(wanted.pid, f"{wrong}: {meta.identifier[:100]}", "never")
                return
            proof = None
            if wanted.known is not None and meta.checksum.agrees(wanted.known) is None and wanted.known.known:
                proof = await self._client.checksum(wanted.pid, wanted.known.name)
            if wanted.have or not self._wants(meta):
                self._add(Brought(pid=wanted.pid, meta=meta, proof=proof))
            else:
                async with self._client.gate.room(meta.size):
                    await self._bytes(wanted.pid, meta, proof)
        except Refused as error:
            # what a sibling tells of and cannot give is not deleted
            lost = meta is not None and self._plan.sibling and error.status == 404
            self._refused(wanted.pid, Refused(500, str(error)) if lost else error)

    def _wants(self, meta: SystemMetadata) -> bool:
        if not meta.checksum.known:
            return False
        kind = self._plan.formats.get(meta.format_id) or self._formats.type_of(meta.format_id)
        if sibling := self._plan.sibling:
            held = {one.replica_member_node for one in meta.replica if one.replication_status == "completed"}
            return kind != "DATA" and sibling in held
        return kind != "DATA" or meta.size <= self._plan.data_bytes > 0

    async def _bytes(self, pid: str, meta: SystemMetadata, proof: Checksum | None) -> None:
        large = self._folder / new_id("pck", self._clock.now()) if meta.size > _LARGE else None
        catch = Catch(meta, large)
        try:
            if meta.size:  # of nothing, the checksum says enough
                await self._client.object(pid, catch)
            if wrong := catch.wrong():
                kept = catch.beginning(_ASIDE)
                self._add(Brought(pid=pid, trouble=wrong, kind="soon", start=len(self._pack), size=len(kept)))
                self._pack += kept
            elif large:
                one = Brought(pid=pid, meta=meta, proof=proof, start=0)
                await self._bring([one], [], large)
            else:
                self._add(Brought(pid=pid, meta=meta, proof=proof, start=len(self._pack)))
                self._pack += catch.kept
        finally:
            if large:
                large.unlink(missing_ok=True)

    def _refused(self, pid: str, error: Refused) -> None:
        """A node that wants to be left alone, or is not there, is: what is queued stays so. What it was asked for waits
        longer than the others, or one object that is never answered would keep them all from coming."""
        if error.status in (404, 410):
            kind = "absent"
        elif error.name == "NotAuthorized":
            kind = "denied"
        elif error.status == -1 or (400 <= error.status < 500 and error.status not in _PASSES):
            kind = "soon"
        else:
            kind = "later"
        self._trouble(pid, str(error), kind)
        self._silent = 0 if error.status else self._silent + 1
        if error.status in BUSY or self._silent >= _DEAD:
            raise error

    def _trouble(self, pid: str, why: str, kind: str) -> None:
        self._add(Brought(pid=pid, trouble=why[:1_000], kind=kind))  # type: ignore[arg-type]  # one of them

    def _add(self, one: Brought) -> None:
        if not self._done:
            self._since = self._clock.now()
        self._done.append(one)
        self._weight += weight(one)

    async def _hand_over(self, *, wait: bool = False) -> None:
        """While some lots are on their way the next is gathered; with too many of them, hands have to wait."""
        if self._done or self._ran:
            done, ran, pack = self._done, self._ran, self._pack
            self._done, self._ran, self._pack, self._weight = [], [], bytearray(), 0
            self._handing.add(asyncio.create_task(self._send(done, ran, pack)))
        while self._handing and (wait or len(self._handing) > _ON_THE_WAY):
            ended, _ = await asyncio.wait(self._handing, return_when=asyncio.FIRST_COMPLETED)
            self._handing -= ended
            for one in ended:
                one.result()

    async def _send(self, done: list[Brought], ran: list[Ran], data: bytearray) -> Queued:
        if all(one.start is None for one in done):
            return await self._bring(done, ran, None)
        pack = self._folder / new_id("pck", self._clock.now())
        try:
            await asyncio.to_thread(pack.write_bytes, data)
            return await self._bring(done, ran, pack)
        finally:
            pack.unlink(missing_ok=True)

    async def _bring(self, done: list[Brought], ran: list[Ran], pack: Path | None) -> Queued:
        found = await self._ask(
            Bring(*self._me, ticket=self._ticket, objects=tuple(done), ran=tuple(ran), pack=str(pack or ""))
        )
        assert isinstance(found, Queued)
        self.due = found.due
        self._hire(found.limits)
        self.brought += len(done)
        self.whole += sum(one.meta is not None for one in done)
        return found
