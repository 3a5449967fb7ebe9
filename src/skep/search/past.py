"""`commit:`: the files of a source as they were at any commit, indexed when somebody asks for it.

What was made is kept for the next one who asks, in a folder for each commit; the longest unused go first, and those of
a source with it. What its files define is found out when somebody asks for that, into a book beside the shards.
"""

import asyncio
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from skep.analysis.facts import VERSION, analyse
from skep.engines.index.apart import Ended, run_apart
from skep.engines.index.base import Hits, Searcher, Standing, Visible
from skep.engines.index.books import SUFFIX, Entry
from skep.engines.index.library import write_book
from skep.engines.index.trigram import TrigramBuilder
from skep.engines.index.trigram.shard import Shard
from skep.errors import BadQuery, Busy, Damaged
from skep.model.search import Limits, Query, Tip, terms
from skep.search.catalogue import Catalogue
from skep.search.commits import may
from skep.search.query import Asked
from skep.sources.git.plan import Rules, changed, documents, ignored, stamp
from skep.sources.git.process import TookTooLong, environment, run
from skep.sources.views import Named

#: sources one question may be about: each of them is read whole
_MOST_SOURCES = 8
#: bytes of content of one commit; what is beyond is found by name
_MOST_BYTES = 2 << 30
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
    found = documents(Path(mirror), files, rules, budget=_MOST_BYTES)
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
