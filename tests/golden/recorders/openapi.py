"""The OpenAPI document, as a server gives it."""

from collections.abc import AsyncIterator

from ..lines import flat
from ..scene import Scene


async def record(scene: Scene) -> AsyncIterator[str]:
    async with scene.http(scene.reader) as client:
        found = (await client.get("/api/v1/openapi.json")).json()
    found["info"]["version"] = "VERSION"
    for path, methods in found.pop("paths").items():
        for method, one in methods.items():
            for text in flat(one, f"{method.upper()} {path}"):
                yield text
    for text in flat(found, "document"):
        yield text
