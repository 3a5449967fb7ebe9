"""What is known around the objects of one batch when they are decided."""

from collections.abc import Sequence

import msgspec

from skep.dataone.asks import Brought
from skep.dataone.decide import Circumstances
from skep.dataone.nodes import kinds
from skep.dataone.series import Version, head, members
from skep.dataone.tables import VERSION, decode_meta, replica, version
from skep.dataone.types import Replica, SystemMetadata
from skep.engines.db.base import Row, Tx, Value, among


class Batch:
    """Kept up to date while they are decided one after the other."""

    def __init__(self, cn: str) -> None:
        """`cn`: what we are called among nodes."""
        self.known: dict[str, Row] = {}
        self.metas: dict[str, SystemMetadata] = {}
        #: whose word they are
        self.said_by: dict[str, str] = {}
        #: identifier -> node -> its copy
        self.copies: dict[str, dict[str, Replica]] = {}
        #: Member Nodes that we harvest, and Coordinating Nodes
        self.members: set[str] = set()
        self.coordinators = {cn}
        #: series -> identifier -> what says that it belongs there
        self.series: dict[str, dict[str, Version]] = {}
        self.heads: dict[str, SystemMetadata] = {}
        self.reserved: dict[str, str] = {}
        self.offers: dict[str, Row] = {}
        #: those of which others say that they came after them
        self.later: set[str] = set()

    async def read(self, tx: Tx, source: str, brought: Sequence[Brought]) -> None:
        pids = [one.pid for one in brought]
        series = [one.meta.series_id for one in brought if one.meta and one.meta.series_id]
        places, names = among(pids + series)
        for row in await tx.rows(f"SELECT * FROM sysmeta WHERE pid IN ({places})", **names):  # noqa: S608
            self.known[row["pid"]] = row
            self.said_by[row["pid"]] = row["said_by"]
            self.metas[row["pid"]] = msgspec.structs.replace(decode_meta(row["body"]), serial_version=row["serial"])
        for row in await tx.rows(f"SELECT id, subject FROM reservation WHERE id IN ({places})", **names):  # noqa: S608
            self.reserved[row["id"]] = row["subject"]
        await self._read_series(tx, places, names)
        places, names = among(pids)
        for row in await tx.rows(f"SELECT * FROM replica WHERE pid IN ({places})", **names):  # noqa: S608
            self.copies.setdefault(row["pid"], {})[row["node"]] = replica(row)
        sql = f"SELECT obsoleted_by FROM sysmeta WHERE obsoleted_by IN ({places})"  # noqa: S608
        self.later = {row["obsoleted_by"] for row in await tx.rows(sql, **names)}
        for urn, kind in (await kinds(tx)).items():
            (self.coordinators if kind == "cn" else self.members).add(urn)
        self.offers = {
            row["pid"]: row
            for row in await tx.rows(
                f"SELECT * FROM offer WHERE source = :source AND pid IN ({places})",  # noqa: S608
                source=source,
                **names,
            )
        }

    async def _read_series(self, tx: Tx, places: str, names: dict[str, Value]) -> None:
        sql = f"SELECT {VERSION} FROM sysmeta WHERE deleted = 0 AND series IN ({places})"  # noqa: S608
        for row in await tx.rows(sql, **names):
            self.series.setdefault(row["series"], {})[row["pid"]] = version(row)
        heads = {name: head(members(claims.values())) or "" for name, claims in self.series.items()}
        if heads:
            places, names = among(list(heads.values()))
            rows = await tx.rows(f"SELECT pid, body FROM sysmeta WHERE pid IN ({places})", **names)  # noqa: S608
            bodies = {row["pid"]: decode_meta(row["body"]) for row in rows}
            self.heads = {name: bodies[pid] for name, pid in heads.items() if pid in bodies}

    def around(self, one: Brought, meta: SystemMetadata, urn: str, version: str) -> Circumstances:
        series, row = meta.series_id or "", self.known.get(one.pid)
        return Circumstances(
            node=urn,
            version="v1" if version == "v1" else "v2",
            known=self.metas.get(one.pid),
            deleted=bool(row and row["deleted"]),
            copies=self.copies.get(one.pid, {}),
            coordinators=self.coordinators,
            reserved_for=self.reserved.get(one.pid) or (None if series in self.heads else self.reserved.get(series)),
            head=self.heads.get(series),
            confused=series == one.pid or one.pid in self.series or series in self.metas,
            proof=one.proof,
        )

    def unproved(self, one: Brought, meta: SystemMetadata) -> bool:
        """It was not known when it was taken: nobody asked its node for the checksum in our algorithm."""
        known = self.metas.get(one.pid)
        if known is None or one.proof is not None or not (known.checksum.known and meta.checksum.known):
            return False
        return known.checksum.agrees(meta.checksum) is None

    def holds(self, pid: str, urn: str) -> bool:
        return (copy := self.copies.get(pid, {}).get(urn)) is not None and copy.replication_status == "completed"

    def learn(self, meta: SystemMetadata, said_by: str, stamp: int) -> set[str]:
        """It is this from now on; others that belong to its series only now or no longer, or were or are its newest."""
        pid, row = meta.identifier, self.known.get(meta.identifier)
        self.metas[pid] = meta
        self.said_by[pid] = said_by
        self.later |= {meta.obsoleted_by or ""}
        if not meta.series_id:
            return set()
        since = row["series_since"] if row and row["series"] == meta.series_id else stamp
        claims = self.series.setdefault(meta.series_id, {})
        before = members(claims.values())
        claims[pid] = Version(
            *(pid, meta.obsoletes, meta.obsoleted_by, meta.date_uploaded or 0),
            node=meta.authoritative_member_node or "",
            said_by=said_by,
            since=since,
        )
        after = members(claims.values())
        if (newest := head(after)) in self.metas:
            self.heads[meta.series_id] = self.metas[newest]
        changed = {one.pid for one in before} ^ {one.pid for one in after} | {head(before) or pid} ^ {newest or pid}
        return changed - {pid}
