"""Reports as records, so that they can be searched: `type:report lang:go complexity:[10 TO *]`.

They follow the catalogue: who may see a source may see its report, from the next moment on, and a removed one has none.
"""

from collections.abc import Sequence
from typing import get_args

import msgspec

from skep.analysis import licence
from skep.engines.db.base import Database, Row, Value, among
from skep.engines.records.base import Ask, Field, Kind, OneOf, Record, Records
from skep.model.answers import shown_before
from skep.model.caller import Caller, Visibility
from skep.model.report import Report
from skep.model.search_answers import RecordHit, RecordPage
from skep.search.fields import language
from skep.sources.catalogue import CATALOGUE
from skep.sources.views import named

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
    meant={"language": language, "licence": licence.named},
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
