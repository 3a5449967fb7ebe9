"""Work that keeps a core busy, in a process of its own that ends with it, or with whoever waits for it."""

import asyncio
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

T = TypeVar("T")


class Ended(Exception):
    """Somebody ended the process."""


async def run_apart(work: Callable[[], T]) -> T:
    """`work`, what it returns and what it raises can be pickled."""
    context = get_context("spawn")
    hearing, telling = context.Pipe(duplex=False)
    child = context.Process(target=_do, args=(telling, work), daemon=True)
    child.start()
    telling.close()  # or it would not end with the child
    try:
        result, error = await asyncio.to_thread(hearing.recv)
    except EOFError:
        raise Ended("the process that did it was ended") from None
    finally:
        child.kill()
        await asyncio.to_thread(child.join)
        hearing.close()
    if error is not None:
        raise error
    done: T = result
    return done


def _do(telling: Connection, work: Callable[[], Any]) -> None:
    said: tuple[Any, Exception | None]
    try:
        said = work(), None
    except Exception as error:  # told to whoever waits
        said = None, error
    telling.send(said)
