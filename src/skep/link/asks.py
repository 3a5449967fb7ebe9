"""Asks of one stream, at the coordinator: each runs by itself; the answers of one turn leave together."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from skep.errors import BadInput, Busy, SkepError
from skep.link.messages import ASKS_LIMIT, Answer, AnswerBody, Ask, Declined
from skep.link.wire import Wire

log = logging.getLogger(__name__)


class Asks:
    def __init__(self, wire: Wire, do: Callable[[Ask], Awaitable[AnswerBody]]) -> None:
        self._wire = wire
        self._do = do
        self._running: dict[int, asyncio.Task[None]] = {}
        self._answers: list[Answer] = []
        self._answered = asyncio.Event()

    def take(self, ask: Ask) -> None:
        if len(self._answers) > 2 * ASKS_LIMIT:
            raise BadInput("asks come in, but their answers are not read")
        if ask.n in self._running:
            raise BadInput(f"ask {ask.n} is under way already")
        if len(self._running) >= ASKS_LIMIT:
            self._answer(ask.n, Declined.of(Busy(f"{ASKS_LIMIT} asks are under way", hint="wait for their answers")))
        else:
            self._running[ask.n] = asyncio.create_task(self._run(ask))

    def forget(self, n: int) -> None:
        if task := self._running.get(n):
            task.cancel()

    async def send(self) -> None:
        while True:
            await self._answered.wait()
            self._answered.clear()
            answers, self._answers = self._answers, []
            await self._wire.write(answers)

    async def close(self) -> None:
        """Returns once none is under way."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, ask: Ask) -> None:
        try:
            body: AnswerBody | Declined = await self._do(ask)
        except SkepError as error:
            body = Declined.of(error)
        except asyncio.CancelledError:
            self._answer(ask.n, Declined("forgotten", "nobody waits for it"))
            raise
        except Exception:
            log.exception("an ask failed")
            body = Declined.of(SkepError("the coordinator failed", hint="its log says more"))
        finally:
            del self._running[ask.n]
        self._answer(ask.n, body)

    def _answer(self, n: int, body: AnswerBody | Declined) -> None:
        self._answers.append(Answer(n, body))
        self._answered.set()
