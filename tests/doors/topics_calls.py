"""How tests of /api/v1/topics call it."""

from typing import Any

import httpx
import msgspec

from skep.base.answers import ErrorAnswer
from skep.topics.api import Messages, Posted, PostedAnswer

API = "/api/v1/topics"
EVENT = "application/cloudevents+json"
EVENTS = "application/cloudevents-batch+json"


def wrong(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, msgspec.json.decode(answer.content, type=ErrorAnswer).error.code


def posted(answer: httpx.Response) -> list[Posted]:
    assert answer.status_code == 201, answer.text
    return msgspec.json.decode(answer.content, type=PostedAnswer).posted


async def read(client: httpx.AsyncClient, topic: str = "news", **params: Any) -> Messages:
    answer = await client.get(f"{API}/{topic}/messages", params=params)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=Messages)


async def bodies(client: httpx.AsyncClient, topic: str = "news") -> list[Any]:
    return [message.body for message in (await read(client, topic)).messages]
