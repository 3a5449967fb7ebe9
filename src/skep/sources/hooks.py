"""Webhooks: a forge says that somebody pushed, and the source is looked at now.

Whoever does not prove a secret learns nothing, not even whether the repository is mirrored here. What was taken once is
known for a day: a repeat changes nothing.
"""

import asyncio
from collections.abc import Mapping

from skep.clock import Clock
from skep.engines.db.base import Database, Row, Tx, insert
from skep.errors import BadInput, NeedsToken
from skep.fleet.service import Fleet
from skep.model.credential import Key
from skep.sources.base import Addresses
from skep.sources.credentials import Credentials
from skep.sources.deliveries import Delivery, Forge, proven, read

_REMEMBERED = 86_400.0
#: bytes: larger payloads are read in a thread
_LARGE = 65_536
#: URLs of one payload that are looked up
_MOST_URLS = 20


class Hooks:
    def __init__(
        self, db: Database, clock: Clock, fleet: Fleet, credentials: Credentials, addresses: Addresses
    ) -> None:
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._credentials = credentials
        self._addresses = addresses

    async def take(self, forge: Forge, headers: Mapping[str, str], body: bytes) -> None:
        """NeedsToken unless the delivery is proven; then whatever it is about is fetched, once."""
        now, known = self._clock.now(), await self._credentials.hooks()

        def believe() -> tuple[list[Key], Delivery]:
            """Nothing is decoded of what is not signed."""
            keys = [key for key in known if proven(forge, headers, body, key.token, now)]
            if not keys:
                raise NeedsToken("this delivery is not signed with a secret that is known here")
            return keys, read(forge, headers, body)

        keys, delivery = await asyncio.to_thread(believe) if len(body) > _LARGE else believe()
        sources = [row["id"] for row in await self._about(delivery) if any(self._covers(key, row) for key in keys)]

        async def work(tx: Tx) -> None:
            await tx.rows("DELETE FROM delivery WHERE at < :old", old=now - _REMEMBERED)
            for mark in delivery.marks:
                if not await insert(tx, "delivery", "ON CONFLICT (id) DO NOTHING RETURNING id", id=mark, at=now):
                    return
            for source in sources:
                await self._fleet.ask(tx, "fetch", source)

        if delivery.moving:
            await self._db.write(work)

    async def _about(self, delivery: Delivery) -> list[Row]:
        """The sources that mirror the repository: the same one may be mirrored by https and by ssh."""
        return await self._db.read(
            "SELECT DISTINCT source.id, url.canonical FROM url JOIN source ON source.id = url.source "
            "WHERE url.canonical IN (:canonicals)",
            canonicals=list(self._canonicals(delivery)),
        )

    def _canonicals(self, delivery: Delivery) -> set[str]:
        found = set()
        for url in delivery.urls[:_MOST_URLS]:
            try:
                canonical = self._addresses.canonical(url)
            except BadInput:
                continue
            found.add(canonical)
            if canonical.startswith("https://"):
                found.add("http" + canonical.removeprefix("https"))
        return {url for url in found if "://" in url}

    def _covers(self, key: Key, row: Row) -> bool:
        """The secret of one host or source moves no other."""
        host = self._addresses.host(row["canonical"])
        return key.source in ("", row["id"]) and key.host in (host, host.rpartition(":")[0])
