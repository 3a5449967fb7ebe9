"""Search over everything the caller may see, past Litestar: pages of JSON, or a stream."""

from collections.abc import AsyncGenerator
from typing import Annotated

import msgspec
from litestar import delete, get, put
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.types import HTTPScope, Receive, Send

from skep.base.caller import Caller
from skep.base.errors import SkepError
from skep.config.settings import Settings
from skep.interfaces.http.asgi import STREAMED, left, query_of, respond, unless
from skep.interfaces.http.dependencies import Asker, TheCore
from skep.search.api import Completions, Hit, SavedSearch, Searches, SearchSpec, SearchSummary, SourceHit
from skep.search.service import Search
from skep.storage.code_index.model import Limits

PATH = "/api/v1/search"
EVENTS, LINES = "text/event-stream", "application/x-ndjson"

TAG = "search"
_Meta = msgspec.Meta
Query = Annotated[str, QueryParameter(description="the query", max_length=10_000)]
Cursor = Annotated[int | None, QueryParameter(ge=0, description="where in the query; its end, if not given")]


class Searching(msgspec.Struct, frozen=True):
    """The query."""

    q: Annotated[str, _Meta(description="the query; at most 10,000 characters")]
    lines: Annotated[int, _Meta(ge=1, le=10_000, description="matching lines to return")] = 50
    context: Annotated[int, _Meta(ge=0, le=50, description="lines before and after each matching line")] = 0
    page: Annotated[str, _Meta(max_length=20_000, description="`next_page` of the page before")] = ""
    count: Annotated[int, _Meta(ge=0, le=1_000_000, description="go on counting matching lines up to this many")] = 0
    explain: Annotated[bool, _Meta(description="say what each score is made of")] = False
    facets: Annotated[bool, _Meta(description="say which languages and sources the files are of")] = False
    seconds: Annotated[float, _Meta(gt=0, description="longest time; what was found is given")] | None = None


_HEADERS = [(name.encode(), value.encode()) for name, value in STREAMED.items()]
_encode = msgspec.json.Encoder().encode
_NAMES: dict[type, str] = {Hit: "hit", SourceHit: "source", SearchSummary: "summary"}
Found = AsyncGenerator[Hit | SourceHit | SearchSummary, None]


class SearchDoor:
    def __init__(self, search: Search, settings: Settings) -> None:
        self._search = search
        self._settings = settings

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        caller: Caller = scope["user"]
        asked = query_of(scope, Searching)
        limits = Limits(
            lines=asked.lines,
            context=asked.context,
            count=asked.count,
            explain=asked.explain,
            seconds=longest(self._settings, asked.seconds),
        )
        accepted = next((value for name, value in scope["headers"] if name == b"accept"), b"")
        for media in (EVENTS, LINES):
            if media.encode() in accepted:
                found = await self._search.stream(caller, asked.q, limits)
                await unless(left(receive), _stream(send, found, media))
                return
        answer = await self._search.search(caller, asked.q, limits, page=asked.page, with_facets=asked.facets)
        await respond(send, 200, _encode(answer))


@get("/search/complete", summary="What may stand at the cursor of a query")
async def complete(core: TheCore, caller: Asker, q: Query = "", cursor: Cursor = None) -> Completions:
    return Completions(await core.search.complete(caller, q, len(q) if cursor is None else cursor))


@get("/searches", summary="Saved searches of the caller")
async def list_searches(core: TheCore, caller: Asker) -> Searches:
    return Searches(await core.searches.list(caller))


@put("/searches/{name:str}", summary="Save a search; what newly matches is told on its topic")
async def save_search(core: TheCore, caller: Asker, name: FromPath[str], data: JSONBody[SearchSpec]) -> SavedSearch:
    return await core.searches.save(caller, name, data)


@delete("/searches/{name:str}", summary="Remove a saved search")
async def remove_search(core: TheCore, caller: Asker, name: FromPath[str]) -> None:
    await core.searches.remove(caller, name)


def longest(settings: Settings, seconds: float | None) -> float:
    return min(seconds or settings.search_seconds, settings.search_seconds)


async def _stream(send: Send, found: Found, media: str) -> None:
    """One line, or one event, for each; the summary is the last, or what went wrong."""
    headers = [(b"content-type", f"{media}; charset=utf-8".encode()), *_HEADERS]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        async for item in found:
            await _send(send, _one(_NAMES[type(item)], item, media))
    except SkepError as error:
        said = {"code": error.code, "message": error.message, "hint": error.hint}
        await _send(send, _one("error", said, media))
    finally:
        await found.aclose()
    await _send(send, b"", more=False)


async def _send(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


def _one(name: str, item: object, media: str) -> bytes:
    if media == EVENTS:
        return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(item))
    return _encode({name: item}) + b"\n"
