"""Reports of sources: one for each commit that was analysed, the newest kept."""

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Database, Row, Tx
from skep.errors import NotFound
from skep.model.answers import ReportAnswer
from skep.model.caller import Caller
from skep.model.report import Report, ReportPoint
from skep.model.source import Held
from skep.sources.catalogue import CATALOGUE
from skep.sources.service import Sources

#: of one source
KEPT = 100
_STEPS = (
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
        await self._db.migrate("report", _STEPS)
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
