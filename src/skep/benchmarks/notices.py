"""Steps that are told are POSTed to the webhook of their benchmark, until it takes them or was asked often enough."""

import logging
from functools import partial

import msgspec

from skep.benchmarks.tables import step_of
from skep.clock import Clock
from skep.connection import NetworkError
from skep.engines.db.base import Database, Row, Tx, update
from skep.errors import SkepError
from skep.sources.git.guard import Guard
from skep.sources.git.http import Http
from skep.topics.service import STEPS

log = logging.getLogger(__name__)

_MOST_TRIES = 8
_FIRST_PAUSE = 15.0
_NAP = 60.0
_AT_ONCE = 20


class Notices:
    def __init__(self, db: Database, clock: Clock, http: Http, guard: Guard) -> None:
        self._db = db
        self._clock = clock
        self._http = http
        self._guard = guard

    async def follow(self) -> None:
        """Until cancelled."""
        async with self._db.listen(STEPS) as bell:
            while True:
                await self.once()
                rows = await self._db.read(
                    "SELECT min(next_try) AS at FROM step WHERE webhook <> '' AND state = 'told'"
                )
                due = rows[0]["at"]
                await bell.wait(_NAP if due is None else min(_NAP, max(0.0, due - self._clock.now())))

    async def once(self) -> None:
        rows = await self._db.read(
            "SELECT * FROM step WHERE webhook <> '' AND state = 'told' AND next_try <= :now "
            "ORDER BY next_try LIMIT :most",
            now=self._clock.now(),
            most=_AT_ONCE,
        )
        for row in rows:
            wrong = await self._post(row)
            tries = row["tries"] + 1
            done = not wrong or tries >= _MOST_TRIES
            if wrong:
                log.warning(
                    "a webhook was not told of a step", extra={"step": row["id"], "reason": wrong, "tries": tries}
                )
            await self._db.write(partial(self._note, row=row, tries=tries, done=done))

    async def _note(self, tx: Tx, row: Row, tries: int, done: bool) -> None:
        webhook, again = "" if done else row["webhook"], self._clock.now() + _FIRST_PAUSE * 2.0**tries
        await update(tx, "step", "id", id=row["id"], webhook=webhook, tries=tries, next_try=again)

    async def _post(self, row: Row) -> str:
        """Empty, or what went wrong. Redirects are not followed: they could lead where the guard has not looked."""
        url, body = str(row["webhook"]), msgspec.json.encode(step_of(row))
        try:
            parts = self._guard.check_url(url.partition("?")[0])
            reply = await self._http.ask(url, ["Content-Type: application/json"], body, await self._guard.pins(parts))
        except (SkepError, NetworkError, OSError, TimeoutError) as error:
            return str(error) or type(error).__name__
        return "" if 200 <= reply.status < 300 else f"it answered with status {reply.status}"
