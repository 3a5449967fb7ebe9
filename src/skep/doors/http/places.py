"""From words to offsets: where somebody begins who reads a topic without a group."""

from typing import Annotated

from litestar import get
from litestar.params import FromPath, QueryParameter

from skep.doors.http.given import Asker, TheCore
from skep.model.answers import PlacesAnswer

Start = Annotated[
    str, QueryParameter(max_length=60, description="`beginning`, `end`, `offset:N` or `time:SECONDS` since 1970")
]


@get("/topics/{topic:str}/places", tags=["topics"], summary="Where reading begins in each partition")
async def topic_places(core: TheCore, caller: Asker, topic: FromPath[str], start: Start = "beginning") -> PlacesAnswer:
    return PlacesAnswer(await core.topics.places(caller, topic, start))


HANDLERS = [topic_places]
