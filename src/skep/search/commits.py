"""`type:commit`: commits by their message, author and time, read from the mirrors as they stand.

Nothing is indexed for it. Git tells the commits of the branches that can be searched, newest first; of each source as
many are looked for as a page can show, until time is over.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import aclosing
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from skep.clock import Clock
from skep.engines.index.base import Searcher, Standing, Visible
from skep.engines.index.dialect import compile_term
from skep.errors import BadInput, Damaged
from skep.model.caller import Caller
from skep.model.search import And, Language, Limits, Not, Or, Query, Term, Within
from skep.model.search_answers import CommitHit
from skep.search.catalogue import Catalogue
from skep.search.checks import needed
from skep.search.moments import moment
from skep.search.query import Asked
from skep.sources.git.log import Logged, log
from skep.sources.views import Named

#: mirrors that are read at once
_AT_ONCE = 4
#: of a message are shown, besides its first line: lines that match, and characters of each line
_MOST_LINES, _MOST_CHARACTERS = 3, 300
#: bytes of a message that are looked through
_MOST_BYTES = 100_000
_TOKEN = re.compile(r"(\d{1,12})\.([0-9a-f]{40,64})\.(\d{1,10})\.(\d{1,9})")

#: newest first; of the same second by id, and the same commit in several sources by their number
_Place = tuple[float, str, int]


class CommitPage(msgspec.Struct, frozen=True):
    commits: list[CommitHit]
    #: those of earlier pages included
    total: int
    #: these are all
    exact: bool
    next_page: str = ""


class _Shown(msgspec.Struct, frozen=True):
    """What earlier pages had: so many, the last of them here."""

    last: _Place | None = None
    count: int = 0

    @staticmethod
    def read(token: str) -> "_Shown":
        found = _TOKEN.fullmatch(token)
        if found is None and token:
            raise BadInput("this page token is none of ours", hint="give back `next_page` as it was")
        return _Shown((-float(found[1]), found[2], int(found[3])), int(found[4])) if found else _Shown()

    @staticmethod
    def token(last: _Place, count: int) -> str:
        return f"{-last[0]:.0f}.{last[1]}.{last[2]}.{count}"


class Commits:
    def __init__(self, catalogue: Catalogue, searcher: Searcher, mirror: Callable[[str], Path], clock: Clock) -> None:
        self._catalogue = catalogue
        self._searcher = searcher
        self._mirror = mirror
        self._clock = clock

    async def page(self, caller: Caller, asked: Asked, limits: Limits, token: str) -> CommitPage:
        query = await self._catalogue.resolve(asked.query)
        look = _Look(query, asked, _Shown.read(token), max(limits.lines, limits.count) + 1, self._clock.now())
        chosen = iter(await asyncio.to_thread(self._chosen, query, self._catalogue.visible(caller)))

        async def read() -> None:
            for source, standing in chosen:
                await look.read(source, standing, self._mirror(source.id))

        try:
            async with asyncio.timeout(limits.seconds), asyncio.TaskGroup() as readers:
                for _ in range(_AT_ONCE):
                    readers.create_task(read())
        except TimeoutError:
            look.is_whole = False
        return look.page(limits.lines)

    def _chosen(self, query: Query, visible: Visible) -> list[tuple[Named, Standing]]:
        """Those whose commits the query may be true for; first those that come first, and that changed last."""
        numbers = [number for _, number in self._searcher.indexed() if number < len(visible) and visible[number]]
        known = [(self._catalogue.find(number), self._searcher.standing(number)) for number in numbers]
        chosen = [(one, at) for one, at in known if one and at and may(query, one.number) is not False]
        return sorted(chosen, key=lambda one: (-one[0].priority, -one[1].fetched_at, one[0].name))


class _Look:
    """One search over several mirrors, and what it found."""

    def __init__(self, query: Query, asked: Asked, shown: _Shown, most: int, now: float) -> None:
        self._query = query
        self._after = moment(asked.after, now) if asked.after else None
        self._before = moment(asked.before, now) if asked.before else None
        self._shown = shown
        self._most = most
        self._search: Callable[[Term], Any] = cache(lambda term: compile_term(term).search)
        self._found: list[tuple[_Place, CommitHit]] = []
        self.is_whole = True

    async def read(self, source: Named, standing: Standing, mirror: Path) -> None:
        branches = [tip for tip in standing.tips if self._is_walked(tip.name)]
        last = self._shown.last
        before = self._before if last is None else min(-last[0] + 1, self._before or -last[0] + 1)
        count = 0
        if not branches:
            return
        try:
            async with aclosing(
                log(mirror, [tip.commit for tip in branches], after=self._after, before=before)
            ) as lots:
                async for lot in lots:
                    found = await asyncio.to_thread(self._sift, lot, source)
                    self._found += found
                    count += len(found)
                    if count >= self._most:
                        self.is_whole = False
                        break
        except Damaged:
            self.is_whole = False

    def _is_walked(self, branch: str) -> bool:
        wanted = [term for term in needed(self._query) if term.field == "branch"]
        return all(self._search(term)(branch.encode("utf-8", "surrogateescape")) for term in wanted)

    def _sift(self, lot: list[Logged], source: Named) -> list[tuple[_Place, CommitHit]]:
        found: list[tuple[_Place, CommitHit]] = []
        for one in lot:
            place = (-one.at, one.commit, source.number)
            if (self._shown.last is None or place > self._shown.last) and self._is_true(
                self._query, one, source.number
            ):
                found.append((place, self._hit(one, source)))
        return found

    def _is_true(self, query: Query, one: Logged, number: int) -> bool:
        match query:
            case Within(numbers):
                return number in numbers
            case And(parts):
                return all(self._is_true(part, one, number) for part in parts)
            case Or(parts):
                return any(self._is_true(part, one, number) for part in parts)
            case Not(part):
                return not self._is_true(part, one, number)
            case Language():
                return False
            case _:
                text = one.author if query.field == "author" else one.message[:_MOST_BYTES]
                return query.field == "branch" or self._search(query)(text) is not None

    def _hit(self, one: Logged, source: Named) -> CommitHit:
        subject, *lines = [line.rstrip() for line in one.message[:_MOST_BYTES].decode("utf-8", "replace").split("\n")]
        searches = [self._search(term) for term in needed(self._query) if term.field in ("any", "content")]
        matching = [line for line in lines if any(search(line.encode()) for search in searches)]
        return CommitHit(
            source.id,
            source.name,
            one.commit,
            one.author.decode("utf-8", "replace"),
            one.at,
            subject[:_MOST_CHARACTERS],
            tuple(line[:_MOST_CHARACTERS] for line in matching[:_MOST_LINES]),
        )

    def page(self, most: int) -> CommitPage:
        self._found.sort(key=lambda one: one[0])
        page, count = self._found[:most], self._shown.count
        more = len(self._found) > most
        token = _Shown.token(page[-1][0], count + len(page)) if more else ""
        return CommitPage([hit for _, hit in page], count + len(self._found), self.is_whole, token)


def may(query: Query, number: int) -> bool | None:
    """Is it true for commits of this source? None: that depends on the commit."""
    match query:
        case Within(numbers):
            return number in numbers
        case Not(part):
            inner = may(part, number)
            return None if inner is None else not inner
        case And(parts) | Or(parts):
            known = [may(part, number) for part in parts]
            decides = isinstance(query, Or)
            if decides in known:
                return decides
            return None if None in known else not decides
        case _:
            return None
