"""A Member Node as a kind of source. It has no mirror here: what is harvested belongs to the coordinator's store."""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from skep.base.clock import Clock, SystemClock
from skep.base.cron import Cron
from skep.base.errors import BadInput, BadUrl, NoSpace, SkepError, Unavailable
from skep.config.settings import Settings
from skep.dataone.client import BUSY, NodeClient, Refused, Window
from skep.dataone.formats import Formats
from skep.dataone.harvest import Visit
from skep.dataone.listing import PAGE, Unsteady
from skep.dataone.rpc import Harvest, MeetNode, PlanHarvest
from skep.dataone.types import Schedule
from skep.net import urls
from skep.net.guard import Guard
from skep.net.http import Exchange
from skep.sources.credentials import Keyring
from skep.sources.git.ls_refs import ca_bundle
from skep.sources.model import Failure, Held, Key, Progress, SourceSettings
from skep.sources.source_type import Ask, Look, Moved, Report, Same

#: seconds after which a node with much to bring lets others before it goes on
_TURN = 60.0
#: seconds after which a node is asked again what it is
_MEET = 86_400.0
_MOVED = Moved("", {})


def base_of(url: str) -> str:
    """Without its version, which follows from what the node says of itself."""
    return url.rstrip("/").removesuffix("/v1").removesuffix("/v2")


def _place(url: str) -> str:
    """The same as an address of the catalogue, which has a path: a node may be all that its host is."""
    base = base_of(url)
    return base if urlsplit(base).path else f"{base}/v2"


class DataoneAddresses:
    """What the catalogue knows of Member Nodes: their base URLs."""

    def __init__(self, settings: Settings) -> None:
        self._guard = Guard(settings, SystemClock(), local=False)

    def check(self, url: str, *, local: bool) -> None:
        if self._guard.check_url(_place(url)).scheme not in ("http", "https"):
            raise BadUrl(f"{url[:200]!r} is no Member Node", hint="its base URL begins with https://")

    def clean(self, url: str) -> str:
        return urls.clean(_place(url))

    def canonical(self, url: str) -> str:
        return f"dataone:{urls.canonical(_place(url))}"

    def name(self, canonical: str) -> str:
        return urls.name(canonical.removeprefix("dataone:"))

    def host(self, url: str) -> str:
        return urlsplit(url).netloc

    def check_settings(self, settings: SourceSettings) -> None:
        if settings.refs or settings.branches or settings.force_push:
            raise BadInput("a Member Node has no refs, branches or history")


class DataoneKind:
    def __init__(self, settings: Settings, data: Path, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._guard = Guard(settings, clock, local=False)
        self._keyring = Keyring()
        self._formats = Formats()
        self._folder = data.absolute() / "worker" / "packs"
        self._http: Exchange | None = None
        self._clients: dict[str, NodeClient] = {}
        #: sources with more to do, those that brought something last time, and those that a look has listed just now
        self._more: set[str] = set()
        self._changed: set[str] = set()
        self._listed: set[str] = set()
        #: source -> when it last said what it is
        self._met: dict[str, float] = {}
        self._ask: Ask | None = None

    async def look(self, source: Held, *, asked: bool = False) -> Look:
        """One page, where it is time to list; the coordinator says what of it is new."""
        self._listed.discard(source.source)
        waits = False
        try:
            plan = await self._plan(source, asked)
            waits = plan.due > 0
            if not plan.known or (plan.list and self._forgets(source)):
                return _MOVED
            if not plan.list:
                return _MOVED if plan.due or plan.full is not None else Same()
            visit = self._visit(source, plan)
            client, window = self._client(source), Window(plan.place, None)
            now = client.now
            page = await client.list(window, 0, PAGE)
            if page.total != len({one.identifier for one in page.object_info}) + len(page.unread):
                return _MOVED
            # the first answer of a process also tells what time it is there
            place = window.place(min(now, client.now))
            told = await visit.tell(page, full=False, place=place, last=True)
            self._listed.add(source.source)
            return _MOVED if told.due or plan.full is not None else Same()
        except (Refused, SkepError) as error:
            if waits and isinstance(error, Refused) and error.status not in BUSY:
                return _MOVED  # what waits is brought, whatever is the matter with its list
            return _failure(source, error)

    def heavy(self, source: Held) -> bool:
        return False

    def more(self, source: Held) -> bool:
        return source.source in self._more

    def changed(self, source: Held) -> bool:
        return source.source in self._changed

    async def fetch(self, source: Held, moved: Moved, report: Report) -> Mapping[str, str] | Failure:
        for marked in (self._more, self._changed):
            marked.discard(source.source)
        try:
            listed = source.source in self._listed
            self._listed.discard(source.source)
            plan = await self._plan(source, not listed)
            if not plan.known or self._forgets(source):
                plan = await self._meet(source)
            visit = self._visit(source, plan)
            until = self._clock.now() + _TURN
            whole = await self._go(visit, plan, listed, until, report)
            if visit.whole:
                self._changed.add(source.source)
            if visit.failed and not (visit.due and visit.brought):
                raise visit.failed
            if isinstance(whole, Failure):
                return whole
            if visit.due or not whole:
                self._more.add(source.source)
            return {}
        except (Refused, Unsteady, SkepError, OSError) as error:
            return _failure(source, error)

    async def _go(self, visit: Visit, plan: Harvest, listed: bool, until: float, report: Report) -> Failure | bool:
        """True when everything is listed. Listing goes before bringing as long as little waits, and a pass over
        everything comes last."""
        visit.rest = plan.place if plan.list and not listed else None
        if plan.due < plan.queue[0]:
            await visit.list_on()
        await visit.bring(until, lambda done, total: report(Progress("fetch", done, total)))
        whole: Failure | bool = visit.rest is None and not visit.failed
        if whole and plan.full is not None and not visit.due:
            whole = await visit.list_all(plan.full, full=True)
            await visit.bring(until, lambda done, total: report(Progress("fetch", done, total)))
        return whole

    async def versions(self, source: Held) -> Mapping[str, str]:
        return {}

    async def mend(self, source: Held) -> Failure | None:
        return None

    async def check(self, source: Held) -> Failure | None:
        return None

    async def remove(self, source: Held) -> None:
        self._clients.pop(source.source, None)

    def connect(self, ask: Ask) -> None:
        self._ask = ask

    def unlock(self, keys: Sequence[Key]) -> None:
        self._keyring.fill(keys)
        self._clients.clear()

    async def close(self) -> None:
        if self._http is not None:
            self._http.close()

    async def _plan(self, source: Held, asked: bool) -> Harvest:
        if self._ask is None:
            raise Unavailable("there is no coordinator yet")
        found = await self._ask(PlanHarvest(source.source, source.epoch, asked))
        assert isinstance(found, Harvest)
        if found.known:
            client = self._client(source)
            client.version, client.gate.limits = found.version, found.limits
            client.sibling = bool(found.sibling)
        return found

    def _forgets(self, source: Held) -> bool:
        """It may have become another node since it was asked: accept copies, say, or keep other hours."""
        return self._met.get(source.source, 0.0) + _MEET <= self._clock.now()

    async def _meet(self, source: Held) -> Harvest:
        """What the node says of itself now."""
        client = self._client(source)
        client.try_everything()
        node = await client.node()
        assert self._ask is not None
        await self._ask(MeetNode(source.source, source.epoch, node=node, skew=client.skew))
        self._met[source.source] = self._clock.now()
        return await self._plan(source, True)

    def _visit(self, source: Held, plan: Harvest) -> Visit:
        assert self._ask is not None
        return Visit(source, plan, self._client(source), self._ask, self._clock, self._formats, self._folder)

    def _client(self, source: Held) -> NodeClient:
        if self._http is None:
            self._http = Exchange(ca=ca_bundle(), timeout=self._settings.look_timeout, largest=64 << 20)
            # what a killed process left behind is brought again
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
        known = self._clients.get(source.source)
        if known is None:
            key = self._keyring.find(source, self._guard.check_url(source.url), certificates=True)
            known = NodeClient(self._http, self._guard, self._clock, base_of(source.url), "v2", key)
            self._clients[source.source] = known
        return known


def _failure(source: Held, error: Exception) -> Failure:
    if isinstance(error, Refused):
        kinds = {401: "auth", 403: "auth", 404: "gone", 429: "rate_limited", 503: "rate_limited", -1: "corrupt"}
        kind = kinds.get(error.status, "network")
        return Failure(kind, f"{source.url}: {error}"[:1_000], error.retry_after)  # type: ignore[arg-type]
    if isinstance(error, SkepError):
        words = f"{error.message} {error.hint}".strip()
        if isinstance(error, NoSpace):
            return Failure("disk", words)
        return Failure("internal" if isinstance(error, Unavailable) else "blocked", words)
    return Failure("disk" if isinstance(error, OSError) else "corrupt", f"{source.url}: {error}")


# A node's Quartz schedule as a cron (pure). What is wrong with it is repaired and said; none stops the scheduler.

#: where nothing can be made of a schedule
HOURLY = "0 * * * *"
_ANY = ("?", "*", "")
_DAY = re.compile(r"(?<![/\d])\d+")


def cron_of(schedule: Schedule) -> tuple[Cron, str]:
    """And what had to be repaired; empty: nothing. Seconds and years do not matter here."""
    words = {name: "".join(getattr(schedule, name).split()) for name in ("min", "hour", "mday", "mon", "wday")}
    wrong = []
    if words["mday"] not in _ANY and words["wday"] not in _ANY:
        wrong.append("both days are set, the day of the month is kept")
        words["wday"] = "?"
    # Sunday is 1 there, and a step counts from its first number
    words["wday"] = _DAY.sub(lambda found: str((int(found[0]) + 6) % 7), words["wday"])
    text = " ".join("*" if word in _ANY else word for word in words.values())
    try:
        return Cron(text), "; ".join(wrong)
    except BadInput as error:
        return Cron(HOURLY), f"its schedule is not understood ({error.message}): it is looked at every hour"
