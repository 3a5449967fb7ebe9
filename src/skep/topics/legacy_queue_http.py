"""The topic queue of old, at the root: numbered producers and consumers, one message at a time.

Fields come as JSON in the body, with GET too, or as query parameters. Every answer says `Success` or `Failure`.
"""

from functools import partial
from typing import Any, TypeVar

import msgspec
from litestar import Response, get, post

from skep.base.errors import BadInput, Conflict
from skep.interfaces.http.decoding import aside
from skep.interfaces.http.dependencies import Asked, Asker, PageToken, TheCore
from skep.interfaces.http.errors import wants_page
from skep.topics.api import NOTHING_LEFT, Natural
from skep.topics.legacy_queue import Nothing
from skep.topics.messages_http import is_json
from skep.topics.pages import topics_page

T = TypeVar("T")
Answer = dict[str, Any]
_DONE: Answer = {"status": "Success"}


class Named(msgspec.Struct):
    name: str


class OfTopic(msgspec.Struct):
    topic: str


class Production(OfTopic):
    producer_id: Natural
    message: str


class OfConsumer(OfTopic):
    consumer_id: Natural


@get("/topics")
async def queue_topics(
    request: Asked, core: TheCore, caller: Asker, page: PageToken = ""
) -> Response[bytes] | Response[Answer]:
    if wants_page(request.scope):
        return await topics_page(request, core, caller, page)
    return Response(_DONE | {"topics": await core.queue.topics(caller)})


@post("/topics", status_code=200)
async def queue_create(request: Asked, core: TheCore, caller: Asker) -> Answer:
    caller.need("write")
    name = (await _given(request, Named)).name
    try:
        await core.queue.create(caller, name)
    except Conflict as error:
        raise BadInput(f"Topic '{name}' already exists.") from error
    return _DONE | {"message": f"Topic '{name}' created."}


@post("/producer/register", status_code=200)
async def queue_producer(request: Asked, core: TheCore, caller: Asker) -> Answer:
    caller.need("write")
    topic = (await _given(request, OfTopic)).topic
    id = await core.queue.register(caller, "producer", topic)
    return _DONE | {"producer_id": id, "message": f"Subscribed to topic '{topic}'."}


@post("/consumer/register", status_code=200)
async def queue_consumer(request: Asked, core: TheCore, caller: Asker) -> Answer:
    caller.need("read")
    topic = (await _given(request, OfTopic)).topic
    id = await core.queue.register(caller, "consumer", topic)
    return _DONE | {"consumer_id": id, "message": f"Subscribed to topic '{topic}'."}


@post("/producer/produce", status_code=200)
async def queue_produce(request: Asked, core: TheCore, caller: Asker) -> Answer:
    caller.need("write")
    given = await _given(request, Production)
    # as JSON, so that readers of /api/v1 see the same text, whatever it looks like
    await core.queue.produce(caller, given.topic, given.producer_id, msgspec.json.encode(given.message).decode())
    return _DONE


@get("/consumer/consume")
async def queue_consume(request: Asked, core: TheCore, caller: Asker) -> Answer:
    caller.need("read")
    given = await _given(request, OfConsumer)
    try:
        body = await core.queue.consume(caller, given.topic, given.consumer_id)
    except Nothing as error:
        raise BadInput(NOTHING_LEFT) from error
    return _DONE | {"message": _text(body)}


@get("/size")
async def queue_size(request: Asked, core: TheCore, caller: Asker) -> Answer:
    caller.need("read")
    given = await _given(request, OfConsumer)
    return _DONE | {"size": await core.queue.size(caller, given.topic, given.consumer_id)}


async def _given(request: Asked, kind: type[T]) -> T:
    body = await request.body()
    try:
        if body:
            return await aside(len(body), partial(msgspec.json.decode, type=kind), body)
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(str(error)) from error


def _text(body: str) -> str:
    """A message published as a JSON text is that text; any other is what was published."""
    value = msgspec.json.decode(body) if body.startswith('"') and is_json(body.encode()) else None
    return value if isinstance(value, str) else body
