"""What both engines' transactions share: after one failed statement nothing more happens in it.

PostgreSQL refuses further statements by itself, and then answers COMMIT by rolling back in silence; SQLite would go on.
So both remember the failure: a `work` that swallows it is not taken for a success.
"""

from collections.abc import Mapping, Sequence

from skep.engines.db.base import Param, Row, Statement, Value, spread
from skep.errors import SkepError


class Transaction:
    def __init__(self) -> None:
        self.rung: set[str] = set()
        self.failed: SkepError | None = None
        self.ended = False

    async def rows(self, sql: str, /, **params: Param) -> list[Row]:
        self._check()
        try:
            return await self._rows(*spread(sql, params))
        except SkepError as error:
            self.failed = error
            raise

    async def many(self, sql: str, rows: Sequence[Mapping[str, Value]]) -> None:
        self._check()
        if not rows:
            return
        try:
            await self._many(sql, rows)
        except SkepError as error:
            self.failed = error
            raise

    async def several(self, statements: Sequence[Statement]) -> list[list[Row]]:
        return [await self.rows(sql, **params) for sql, params in statements]

    def ring(self, channel: str) -> None:
        self.rung.add(channel)

    def _check(self) -> None:
        if self.ended:
            raise SkepError("this transaction has ended; use `tx` only inside the function given to write()")
        if self.failed is not None:
            raise self.failed

    async def _rows(self, sql: str, params: Mapping[str, Value]) -> list[Row]:
        raise NotImplementedError

    async def _many(self, sql: str, rows: Sequence[Mapping[str, Value]]) -> None:
        raise NotImplementedError
