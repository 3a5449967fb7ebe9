"""What an operator asks first: is it ready, what is there, who is alive. Also as Prometheus text."""

from skep import __version__
from skep.base.answers import Status, TaskLoad
from skep.base.caller import SYSTEM, Caller
from skep.base.clock import Clock
from skep.base.errors import SkepError
from skep.fleet.members import Fleet
from skep.fleet.tunnels import Servers
from skep.spaces.processes import Statuses
from skep.storage.code_index.base import Searcher
from skep.storage.database import Database

_LATE_SECONDS = _MINUTE = 60.0
#: facts of a worker that are numbers and change
_SAMPLED = ("cpu_percent", "memory_used", "disk_free", "network_in", "network_out", "load", "processes")


class StatusView:
    def __init__(
        self, db: Database, clock: Clock, fleet: Fleet, searcher: Searcher, statuses: Statuses, servers: Servers
    ) -> None:
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._searcher = searcher
        self._statuses = statuses
        self._servers = servers
        self._started = clock.now()

    async def show(self, caller: Caller) -> Status:
        caller.need("read")
        rows = await self._db.read(
            "SELECT state, count(*) AS n, count(CASE WHEN next_poll < :due THEN 1 END) AS late, "
            "min(last_looked) AS oldest FROM source WHERE state <> 'removed' GROUP BY state",
            due=self._clock.now() - _LATE_SECONDS,
        )
        moving = await self._db.read("SELECT count(*) AS n FROM source_replica WHERE complete = 0")
        fresh = [row for row in rows if row["state"] == "current"]
        size, members = self._searcher.size(), await self._fleet.members()
        return Status(
            __version__,
            self._started,
            {row["state"]: int(row["n"]) for row in rows},
            members,
            size.shards,
            size.documents,
            size.bytes,
            await self._fleet.orders_pending(),
            await self._statuses.living({one.id for one in members if one.state == "alive"}),
            await self._servers.list(),
            int(moving[0]["n"]),
            sum(int(row["late"]) for row in fresh),
            min((row["oldest"] for row in fresh), default=None),
            await self._load(),
            {one.id: str(offer.facts.get("isolation", "")) for one, offer in await self._fleet.workers()},
        )

    async def _load(self) -> TaskLoad:
        """There is an index for each of these."""
        rows = await self._db.read(
            "SELECT 'ready' AS name, count(*) AS n FROM task WHERE state = 'WAITING' AND needs_left = 0 "
            "UNION ALL SELECT 'placed', count(*) FROM task WHERE state IN ('SCHEDULED', 'ACCEPTED', 'RUNNING') "
            "UNION ALL SELECT 'ended', COALESCE(sum(tasks), 0) FROM context WHERE ended_at > :since",
            since=self._clock.now() - _MINUTE,
        )
        return TaskLoad(**{row["name"]: int(row["n"]) for row in rows})

    async def ready(self) -> str:
        """Empty when searches and changes are served; else the reason why not."""
        try:
            await self._db.read("SELECT 1 AS one")
        except SkepError as error:
            return f"the database does not answer: {error.message}"
        if not any(member.state == "alive" and member.role == "worker" for member in await self._fleet.members()):
            return "no worker is attached"
        return ""

    async def metrics(self) -> str:
        status = await self.show(SYSTEM)
        lines = [
            "# HELP skep_up_seconds Seconds since this process started.",
            "# TYPE skep_up_seconds gauge",
            f"skep_up_seconds {self._clock.now() - self._started:.3f}",
            "# HELP skep_sources Sources by state.",
            "# TYPE skep_sources gauge",
            *(f'skep_sources{{state="{state}"}} {n}' for state, n in sorted(status.sources.items())),
            "# HELP skep_members Members by state.",
            "# TYPE skep_members gauge",
            *(f'skep_members{{member="{m.id}",role="{m.role}",state="{m.state}"}} 1' for m in status.members),
        ]
        gauges = {
            "index_shards": ("Shards that answer searches.", status.shards),
            "index_documents": ("Documents in them, dead ones included.", status.documents),
            "index_bytes": ("Bytes of content in them.", status.indexed_bytes),
            "sources_late": ("Current sources that should have been looked at a minute ago.", status.late),
            "sources_moving": ("Copies of sources that workers are making.", status.moving),
            "orders_pending": ("Orders no worker has confirmed yet.", status.orders_pending),
        }
        for name, (about, value) in gauges.items():
            lines += [f"# HELP skep_{name} {about}", f"# TYPE skep_{name} gauge", f"skep_{name} {value}"]
        lines += [*await self._tasks(status.tasks), *await self._backlog(), *await self._audits()]
        lines += await self._machines()
        return "\n".join(lines) + "\n"

    async def _tasks(self, load: TaskLoad) -> list[str]:
        repairs = await self._db.read("SELECT kind, n FROM repair ORDER BY kind")
        return [
            "# HELP skep_tasks Tasks that wait for a worker, and tasks that have one.",
            "# TYPE skep_tasks gauge",
            f'skep_tasks{{state="ready"}} {load.ready}',
            f'skep_tasks{{state="placed"}} {load.placed}',
            "# HELP skep_task_repairs_total Irregular tasks and contexts that were put right.",
            "# TYPE skep_task_repairs_total counter",
            *(f'skep_task_repairs_total{{kind="{row["kind"]}"}} {row["n"]}' for row in repairs),
        ]

    async def _backlog(self) -> list[str]:
        """Of DataONE: what waits to be indexed, by each process where several share the database, and to be copied."""
        rows = await self._db.read("SELECT work, count(*) AS n, min(at) AS oldest FROM backlog GROUP BY work")
        found = {"index": (0, 0.0), "replicate": (0, 0.0)}
        found |= {row["work"]: (int(row["n"]), max(0.0, self._clock.now() - row["oldest"])) for row in rows}
        return [
            "# HELP skep_dataone_backlog Objects that are to be looked at again.",
            "# TYPE skep_dataone_backlog gauge",
            *(f'skep_dataone_backlog{{work="{work}"}} {n}' for work, (n, _) in sorted(found.items())),
            "# HELP skep_dataone_backlog_seconds For how long the oldest of them has been due.",
            "# TYPE skep_dataone_backlog_seconds gauge",
            *(f'skep_dataone_backlog_seconds{{work="{work}"}} {age:.3f}' for work, (_, age) in sorted(found.items())),
        ]

    async def _audits(self) -> list[str]:
        """Of DataONE: what was wrong when store and index were last compared, by each process that has an index."""
        rows = await self._db.read("SELECT * FROM index_audit ORDER BY work")
        now = self._clock.now()
        return [
            "# HELP skep_dataone_audit_records Records that were missing, old or surplus at the last audit.",
            "# TYPE skep_dataone_audit_records gauge",
            *(
                f'skep_dataone_audit_records{{work="{row["work"]}",wrong="{wrong}"}} {row[wrong]}'
                for row in rows
                for wrong in ("missing", "old", "surplus")
            ),
            "# HELP skep_dataone_audit_seconds How long ago that was.",
            "# TYPE skep_dataone_audit_seconds gauge",
            *(f'skep_dataone_audit_seconds{{work="{row["work"]}"}} {max(0.0, now - row["at"]):.3f}' for row in rows),
        ]

    async def _machines(self) -> list[str]:
        """The newest sample of each worker's machine."""
        workers = await self._fleet.workers()
        lines = []
        for name in _SAMPLED:
            lines += [f"# HELP skep_worker_{name} As the worker last sampled it.", f"# TYPE skep_worker_{name} gauge"]
            lines += [f'skep_worker_{name}{{member="{m.id}"}} {offer.facts.get(name, 0)}' for m, offer in workers]
        return lines
