"""Reports as records, so that they can be searched: `type:report lang:go complexity:[10 TO *]`.

They follow the catalogue: who may see a source may see its report, from the next moment on, and a removed one has none.
"""

from argparse import Namespace
from collections.abc import Sequence
from typing import get_args

import msgspec

from skep.analysis.model import Hot, Report, ReportPoint, Share
from skep.base.answers import ReportAnswer, shown_before
from skep.base.caller import Caller, Visibility
from skep.base.clock import Clock
from skep.base.errors import NotFound
from skep.client import Client
from skep.interfaces.terminal import clean, in_json, print_table
from skep.languages import blob_facts
from skep.search.api import RecordHit, RecordPage
from skep.search.query import language
from skep.sources.catalogue import CATALOGUE, named
from skep.sources.model import Held
from skep.sources.service import Sources
from skep.storage.database import Database, Row, Tx, Value, among
from skep.storage.records.base import Ask, Field, Kind, OneOf, Record, Records

# `skep report`: what analysis found out about a source.

_LANGUAGES, _FUNCTIONS = 12, 10


def report(client: Client, args: Namespace) -> None:
    answer = client.sources.report(args.ref, args.commit)
    if in_json(args, answer):
        return
    found = answer.report
    print(clean(f"{answer.name} at {found.commit[:12]}  licence: {found.licence or 'unknown'}"))
    print(_totals(found) + "\n")
    rows = [_share(one.name or "other", one.share) for one in found.languages[:_LANGUAGES]]
    print_table(("LANGUAGE", "FILES", "LINES", "COMMENTS", "BYTES"), rows)
    if found.hot:
        print()
        print_table(("SCORE", "COMPLEXITY", "FUNCTION", "PLACE"), [_hot(one) for one in found.hot[:_FUNCTIONS]])


def _totals(found: Report) -> str:
    total, parts = found.total, []
    for name, share in (("test", found.test), ("vendored", found.vendored), ("generated", found.generated)):
        if share.files:
            parts.append(f"{100 * share.lines // max(1, total.lines)} % {name}")
    marks = f" ({', '.join(parts)})" if parts else ""
    means = f"mean score {found.score}, mean complexity {found.complexity}"
    return f"{total.files:,} files, {total.lines:,} lines{marks}; {found.functions:,} functions, {means}"


def _share(name: str, share: Share) -> tuple[str, ...]:
    return name, f"{share.files:,}", f"{share.lines:,}", f"{share.comments:,}", f"{share.bytes:,}"


def _hot(one: Hot) -> tuple[str, ...]:
    return f"{one.score:.1f}", str(one.complexity), one.name, f"{one.path}:{one.line}"


KIND = Kind(
    "reports",
    (
        Field("name", "text"),
        Field("visibility", "keyword", stored=False),
        Field("language", "keyword", many=True, faceted=True),
        Field("licence", "keyword", faceted=True),
        Field("files", "int"),
        Field("lines", "int"),
        Field("functions", "int"),
        Field("complexity", "float"),
        Field("function", "text", many=True),
        Field("path", "text", many=True),
    ),
    words=("name", "function", "path"),
    also={"lang": "language", "l": "language", "license": "licence"},
    meant={"language": language, "licence": blob_facts.named},
)
#: as they are completed
NAMES = {
    "name": "words of the source's name",
    "lang": "has files in this language",
    "licence": "its SPDX identifier: MIT, Apache-2.0",
    "files": "how many it has: [100 TO *]",
    "lines": "how many they have: [* TO 5000]",
    "functions": "how many it has",
    "complexity": "of its functions, on average",
    "function": "the name of one of the longest or most complex",
    "path": "words of the path of one of these",
}
_AT_ONCE = 1_000
#: reports are read from so long before the newest that was read: clocks differ, and who came first may be stored last
_OVERLAP_SECONDS = 60.0
_STEPS = [
    """
    CREATE TABLE report_place (
        name TEXT PRIMARY KEY, revision BIGINT NOT NULL, number BIGINT NOT NULL, since DOUBLE PRECISION NOT NULL
    )
    """
]
_NOTE = (
    "INSERT INTO report_place (name, revision, number, since) VALUES (:name, :revision, :number, :since) "
    "ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, number = excluded.number, since = excluded.since"
)
_VISIBILITIES: tuple[Visibility, ...] = get_args(Visibility)


class ReportRecords:
    def __init__(self, db: Database, records: Records, name: str = "") -> None:
        """`name`: of these records, where several processes have some of their own."""
        self._db = db
        self._records = records
        self._name = name
        #: what was read so far: of the catalogue, and of the reports
        self._place = (-1, -1)
        self._since = 0.0
        #: those of the overlap
        self._read: set[tuple[str, float]] = set()

    async def start(self) -> None:
        await self._db.migrate("report_records", _STEPS)
        anew = await self._records.declare(KIND)
        for row in await self._db.read("SELECT * FROM report_place WHERE name = :name", name=self._name):
            if not anew:
                self._place, self._since = (row["revision"], row["number"]), row["since"]
        await self.refresh()
        if anew:
            await self._records.filled(KIND.name)

    async def follow(self) -> None:
        """For ever: what has changed in the catalogue, or was reported anew."""
        async with self._db.listen(CATALOGUE) as bell:
            while True:
                await self.refresh()
                await bell.wait(30.0)

    async def refresh(self) -> None:
        before = self._place, self._since
        while changed := await named(self._db, *self._place, _AT_ONCE, {}):
            if gone := [source.id for source in changed if not source.living]:
                await self._records.delete(KIND.name, OneOf("id", gone))
            await self._put([source.id for source in changed if source.living])
            self._place = (changed[-1].revision, changed[-1].number)
        sql = "SELECT source, at FROM report WHERE at > :since ORDER BY at"
        newest = [(row["source"], row["at"]) for row in await self._db.read(sql, since=self._since - _OVERLAP_SECONDS)]
        fresh = [one for one in newest if one not in self._read]
        for first in range(0, len(fresh), _AT_ONCE):
            await self._put([source for source, _ in fresh[first : first + _AT_ONCE]])
        self._since = max((at for _, at in newest), default=self._since)
        self._read = {one for one in newest if one[1] > self._since - _OVERLAP_SECONDS}
        if before != (self._place, self._since):
            said: dict[str, Value] = {
                "name": self._name,
                "revision": self._place[0],
                "number": self._place[1],
                "since": self._since,
            }
            await self._db.write(lambda tx: tx.rows(_NOTE, **said), runtime=True)

    async def _put(self, sources: Sequence[str]) -> None:
        """As they stand now; those that have no report have no record."""
        places, names = among(sources)
        rows = await self._db.read(
            "SELECT source.id, source.name, source.visibility, report.body FROM source JOIN report "  # noqa: S608
            "ON report.source = source.id AND report.at = (SELECT max(at) FROM report WHERE source = source.id) "
            f"WHERE source.state <> 'removed' AND source.id IN ({places})",
            **names,
        )
        if rows:
            await self._records.put(KIND.name, [_record(row) for row in rows])

    async def search(self, caller: Caller, words: str, limit: int, page: str) -> RecordPage:
        """What `type:report` asks for."""
        start = shown_before(page)
        visible = [one for one in _VISIBILITIES if caller.sees(one)]
        found = await self._records.search(
            KIND.name, Ask(words, only=(OneOf("visibility", visible),), start=start, limit=limit)
        )
        hits = [
            RecordHit(one.id, str(one.values.get("name", "")), dict(one.values), one.id, one.score)
            for one in found.records
        ]
        goes_on = found.total > start + len(hits) and bool(hits)
        return RecordPage(hits, found.total, str(start + len(hits)) if goes_on else "")


def _record(row: Row) -> Record:
    report = msgspec.json.decode(row["body"], type=Report)
    hot = [*report.hot, *report.complex]
    return Record(
        row["id"],
        {
            "name": row["name"],
            "visibility": row["visibility"],
            "language": [one.name for one in report.languages if one.name],
            "licence": report.licence or "unknown",
            "files": report.total.files,
            "lines": report.total.lines,
            "functions": report.functions,
            "complexity": report.complexity,
            "function": list(dict.fromkeys(one.name for one in hot)),
            "path": list(dict.fromkeys(one.path for one in hot)),
        },
    )


# Reports of sources: one for each commit that was analysed, the newest kept.

#: of one source
KEPT = 100
_REPORTS_STEPS = (
    """
    CREATE TABLE report (
        source TEXT NOT NULL, version TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, files BIGINT NOT NULL,
        lines BIGINT NOT NULL, functions BIGINT NOT NULL, score DOUBLE PRECISION NOT NULL,
        complexity DOUBLE PRECISION NOT NULL, body TEXT NOT NULL, PRIMARY KEY (source, version));
    CREATE INDEX report_newest ON report (source, at);
    CREATE INDEX report_at ON report (at)
    """,
)


class SourceReports:
    def __init__(self, db: Database, clock: Clock, sources: Sources) -> None:
        self._db = db
        self._clock = clock
        self._sources = sources

    async def start(self) -> None:
        """Reports of sources that are gone go too."""
        await self._db.migrate("report", _REPORTS_STEPS)
        gone = "NOT EXISTS (SELECT 1 FROM source WHERE source.id = report.source AND source.state <> 'removed')"
        await self._db.write(lambda tx: tx.rows(f"DELETE FROM report WHERE {gone}"))  # noqa: S608

    async def store(self, held: Held, epoch: int, report: Report) -> bool:
        """False: it comes from somebody who no longer holds the source."""
        if held.epoch != epoch:
            return False
        now, body = self._clock.now(), msgspec.json.encode(report).decode()

        async def work(tx: Tx) -> None:
            await tx.rows(
                "INSERT INTO report (source, version, at, files, lines, functions, score, complexity, body) VALUES"
                " (:source, :version, :at, :files, :lines, :functions, :score, :complexity, :body)"
                " ON CONFLICT (source, version) DO UPDATE SET at = excluded.at, files = excluded.files,"
                " lines = excluded.lines, functions = excluded.functions, score = excluded.score,"
                " complexity = excluded.complexity, body = excluded.body",
                source=held.source,
                version=report.commit,
                at=now,
                files=report.total.files,
                lines=report.total.lines,
                functions=report.functions,
                score=report.score,
                complexity=report.complexity,
                body=body,
            )
            await tx.rows(
                "DELETE FROM report WHERE source = :source AND version NOT IN"
                " (SELECT version FROM report WHERE source = :source ORDER BY at DESC LIMIT :kept)",
                source=held.source,
                kept=KEPT,
            )
            tx.ring(CATALOGUE)

        await self._db.write(work)
        return True

    async def show(self, caller: Caller, ref: str, commit: str = "") -> ReportAnswer:
        """The newest, or that of a commit (any beginning of its id)."""
        source = await self._sources.show(caller, ref)
        rows = await self._db.read(
            "SELECT source, version, at, files, lines, functions, score, complexity FROM report"
            " WHERE source = :source ORDER BY at",
            source=source.id,
        )
        found = [row for row in rows if row["version"].startswith(commit)]
        if not found:
            of = f" of {commit}" if commit else ""
            raise NotFound(f"there is no report{of} about {source.name}", hint="it is made after the index")
        version = found[-1]["version"]
        (one,) = await self._db.read(
            "SELECT body FROM report WHERE source = :source AND version = :version", source=source.id, version=version
        )
        report = msgspec.json.decode(one["body"], type=Report)
        return ReportAnswer(source.id, source.name, found[-1]["at"], report, [_point(row) for row in rows])


def _point(row: Row) -> ReportPoint:
    return ReportPoint(
        row["version"], row["at"], row["files"], row["lines"], row["functions"], row["score"], row["complexity"]
    )
