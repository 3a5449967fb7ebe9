"""`type:commit`: commits by their message, author and time, read from the mirrors as they stand.

Nothing is indexed for it. Git tells the commits of the branches that can be searched, newest first; of each source as
many are looked for as a page can show, until time is over.
"""

import asyncio
import os
import re
import shutil
from collections.abc import Callable
from contextlib import aclosing
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec

from skep.base.caller import Caller
from skep.base.child_process import Ended, run_apart
from skep.base.clock import Clock
from skep.base.errors import BadInput, BadQuery, Busy, Damaged
from skep.languages.blob_facts import VERSION, analyse
from skep.search.api import CommitHit
from skep.search.catalogue import Catalogue
from skep.search.query import Asked, moment, needed
from skep.sources.catalogue import Named
from skep.sources.git.browse import Logged, log
from skep.sources.git.documents import Rules, changed, documents, ignored, stamp
from skep.sources.git.process import TookTooLong, environment, run
from skep.storage.code_index.analysis_files import SUFFIX, Entry, write_book
from skep.storage.code_index.base import Hits, Searcher, Standing, Visible, compile_term
from skep.storage.code_index.model import And, Language, Limits, Not, Or, Query, Term, Tip, Within, terms
from skep.storage.code_index.trigram.builder import TrigramBuilder
from skep.storage.code_index.trigram.shard import Shard

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


# `commit:`: the files of a source as they were at any commit, indexed when somebody asks for it.
#
# What was made is kept for the next one who asks, in a folder for each commit; the longest unused go first, and those
# of
# a source with it. What its files define is found out when somebody asks for that, into a book beside the shards.

#: sources one question may be about: each of them is read whole
_MOST_SOURCES = 8
#: bytes of content of one commit; what is beyond is found by name
_PAST_MOST_BYTES = 2 << 30
#: commits that are kept, and bytes of all of them
_KEPT, _KEPT_BYTES = 50, 4 << 30
_GIT_SECONDS = 20.0
_BOOK = "definitions"


class _Wanted(msgspec.Struct, frozen=True):
    source: Named
    #: its id
    commit: str


class Past:
    def __init__(
        self, catalogue: Catalogue, searcher: Searcher, mirror: Callable[[str], Path], folder: Path, rules: Rules
    ) -> None:
        self._catalogue = catalogue
        self._searcher = searcher
        self._mirror = mirror
        self._folder = folder
        self._rules = rules
        #: by what is made; whoever asks for the same meanwhile waits for the same
        self._making: dict[Path, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()

    async def search(self, query: Query, visible: Visible, limits: Limits, asked: Asked) -> Hits:
        """What is asked for, of which `query` is resolved; at a commit, or a tag or branch that is at it."""
        name = asked.commit
        wanted = await self._find(query, visible, asked)
        by_symbol = any(term.field == "symbol" for term in terms(query))
        try:
            async with asyncio.timeout(limits.seconds):
                made = [await self._made(one) for one in wanted]
                books = [await self._book(folder) for folder in made] if by_symbol else []
        except TimeoutError:
            raise Busy(f"the files of {name} are still being read", hint="ask again in a moment") from None
        shards = [shard for folder in made for shard in _shards(folder)]
        standings = {one.source.number: self._standing(one, name) for one in wanted}
        beside = partial(self._searcher.search_beside, shards, books, standings)
        try:
            return await asyncio.to_thread(beside, query, visible, limits)
        except Damaged:
            for folder in made:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise

    def _standing(self, one: _Wanted, name: str) -> Standing:
        now = self._searcher.standing(one.source.number)
        return Standing(one.source.id, one.source.number, (Tip(name, one.commit),), now.fetched_at if now else 0.0)

    async def _find(self, query: Query, visible: Visible, asked: Asked) -> list[_Wanted]:
        name, column = asked.commit, asked.columns["commit"]
        numbers = [number for _, number in self._searcher.indexed() if number < len(visible) and visible[number]]
        known = [self._catalogue.find(number) for number in numbers if may(query, number) is not False]
        sources = [source for source in known if source]
        if len(sources) > _MOST_SOURCES:
            raise BadQuery(
                f"`commit:` reads whole sources, and this is about {len(sources)} of them",
                hint=f"name at most {_MOST_SOURCES} with repo:",
                column=column,
            )
        found = [(source, await _commit(self._mirror(source.id), name)) for source in sources]
        wanted = [_Wanted(source, commit) for source, commit in found if commit]
        if not wanted:
            raise BadQuery(
                f"there is no commit {name} here",
                hint="it has to be one that a branch or a tag of the source reaches",
                column=column,
            )
        return wanted

    async def _made(self, one: _Wanted) -> Path:
        """Where its shards are."""
        number, mirror = one.source.number, str(self._mirror(one.source.id))
        folder = self._folder / f"{number}-{one.commit}-{stamp(self._rules)}"
        await self._once(folder, partial(_build, mirror, one.commit, number, self._rules, str(folder)))
        await asyncio.to_thread(os.utime, folder)
        return folder

    async def _book(self, folder: Path) -> Path:
        """Of what the files there define."""
        book = folder / f"{_BOOK}{SUFFIX}"
        await self._once(book, partial(_annotate, str(folder)))
        return book

    async def _once(self, made: Path, work: Callable[[], None]) -> None:
        """Have it made, if it is not there."""
        task = self._making.get(made)
        if task is None:
            task = self._making[made] = asyncio.create_task(self._make(made, work))
            task.add_done_callback(partial(self._over, made))
        await asyncio.shield(task)  # whoever gives up does not end it for the others

    def _over(self, made: Path, task: asyncio.Task[None]) -> None:
        del self._making[made]
        if not task.cancelled():
            task.exception()  # whoever asked may have given up

    async def _make(self, made: Path, work: Callable[[], None]) -> None:
        if await asyncio.to_thread(made.exists):
            return
        async with self._turn:
            await asyncio.to_thread(_make_room, self._folder)
            try:
                await run_apart(work)
            except (Ended, OSError) as error:
                raise Damaged(f"the files of that commit cannot be indexed: {error}", hint="ask again") from error

    async def forget(self) -> None:
        """Remove what was made of sources that are gone."""
        await asyncio.to_thread(_forget, self._folder, self._catalogue)


async def _commit(mirror: Path, name: str) -> str | None:
    """Its id, if a branch or a tag reaches it: what was rewritten upstream is kept, but not for everybody."""
    try:
        said = await _git(mirror, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        reached = said and await _git(
            mirror, "for-each-ref", "--count=1", f"--contains={said}", "--format=x", "refs/heads", "refs/tags"
        )
    except TookTooLong:
        raise Busy(f"it takes too long to find {name}", hint="name the branch or tag instead") from None
    return said if reached else None


async def _git(mirror: Path, *args: str) -> str:
    done = await run(["-C", str(mirror), *args], environment(), seconds=_GIT_SECONDS)
    return done.out.decode().strip() if done.code == 0 else ""


def _build(mirror: str, commit: str, number: int, rules: Rules, folder: str) -> None:
    """Runs apart. The folder appears when it is whole."""
    os.nice(5)
    tips, aside = (Tip("", commit),), Path(f"{folder}.new")
    shutil.rmtree(aside, ignore_errors=True)
    files, _ = changed(Path(mirror), None, tips, ignored(Path(mirror), commit, rules.ignore))
    found = documents(Path(mirror), files, rules, budget=_PAST_MOST_BYTES)
    TrigramBuilder().build(number, found, aside, lambda _: None)
    aside.rename(folder)


def _annotate(folder: str) -> None:
    """Runs apart."""
    os.nice(5)
    shards = [Shard(path) for path in _shards(Path(folder))]
    files = (shard.document(nth) for shard in shards for nth in range(shard.documents))
    write_book(Path(folder), _BOOK, (Entry(one.blob, analyse(one.path, one.content)[1], b"") for one in files), VERSION)


def _shards(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()]


def _forget(folder: Path, catalogue: Catalogue) -> None:
    for one in folder.iterdir() if folder.exists() else ():
        if catalogue.find(int(one.name.partition("-")[0])) is None:
            shutil.rmtree(one, ignore_errors=True)


def _make_room(folder: Path) -> None:
    """What is removed while somebody searches it stays open until that is over."""
    folder.mkdir(parents=True, exist_ok=True)
    newest = sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)
    left = _KEPT_BYTES
    for nth, one in enumerate(newest, start=1):
        left -= sum(file.stat().st_size for file in one.rglob("*"))
        if nth >= _KEPT or left < 0 or one.suffix == ".new":
            shutil.rmtree(one, ignore_errors=True)
