"""Asks of one member, at its own end: numbered, gathered into frames, asked again on every new stream."""

import asyncio
import itertools
from typing import NamedTuple

from skep.errors import SkepError, Unavailable
from skep.link.messages import ASKS_LIMIT, Answer, AnswerBody, Ask, AskBody, Declined, Forget
from skep.link.wire import Wire
from skep.model.space import Get, GiveBack, Got


class _Waiting(NamedTuple):
    body: AskBody
    future: asyncio.Future[AnswerBody]


class Asking:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._places = asyncio.Semaphore(ASKS_LIMIT)
        self._waiting: dict[int, _Waiting] = {}
        #: not sent on the present stream
        self._fresh: list[Ask | Forget] = []
        self._asked = asyncio.Event()
        self._ended = False

    async def ask(self, body: AskBody, timeout: float | None) -> AnswerBody:
        try:
            async with asyncio.timeout(timeout), self._places:
                return await self._ask(body)
        except TimeoutError:
            raise Unavailable(f"the coordinator did not answer in {timeout:g} s") from None

    async def _ask(self, body: AskBody) -> AnswerBody:
        if self._ended:
            raise _over()
        n = next(self._numbers)
        future: asyncio.Future[AnswerBody] = asyncio.get_running_loop().create_future()
        self._waiting[n] = _Waiting(body, future)
        self._say(Ask(n, body))
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._say(Forget(n))
            elif not future.exception():  # answered in the moment in which it was cancelled
                self._unwanted(body, future.result())
            raise

    def _say(self, message: Ask | Forget) -> None:
        self._fresh.append(message)
        self._asked.set()

    async def send(self, wire: Wire) -> None:
        """On a new stream: everything unanswered, then what comes."""
        new = {message.n for message in self._fresh if isinstance(message, Ask)}
        self._waiting = {n: waiting for n, waiting in self._waiting.items() if not waiting.future.done()}
        self._fresh = [Ask(n, waiting.body, n not in new) for n, waiting in self._waiting.items()]
        self._asked.set()
        while True:
            await self._asked.wait()
            self._asked.clear()
            messages, self._fresh = self._fresh, []
            await wire.write(messages)

    def answered(self, answer: Answer) -> None:
        waiting = self._waiting.pop(answer.n, None)
        if waiting is None:
            return
        if waiting.future.done():
            self._unwanted(waiting.body, answer.body)
        elif isinstance(answer.body, Declined):
            waiting.future.set_exception(answer.body.error())
        else:
            waiting.future.set_result(answer.body)

    def _unwanted(self, asked: AskBody, answer: AnswerBody | Declined) -> None:
        """Who asked was cancelled: what was taken for it goes back at once."""
        if isinstance(asked, Get) and isinstance(answer, Got):
            self._say(Ask(next(self._numbers), GiveBack(asked.space, answer.taken.seq, answer.taken.ticket)))

    def end(self) -> None:
        """There will be no further stream."""
        self._ended = True
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_exception(_over())


def _over() -> SkepError:
    return Unavailable("the link to the coordinator has ended")
