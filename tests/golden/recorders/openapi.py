"""The OpenAPI document, as a server gives it."""

from collections.abc import AsyncIterator
from typing import Any

from ..lines import flat
from ..scene import Scene


def _remove_examples(value: Any) -> None:
    """They are random: Litestar makes them up where its test library is installed."""
    match value:
        case dict():
            value.pop("examples", None)
            for one in value.values():
                _remove_examples(one)
        case list():
            for one in value:
                _remove_examples(one)


async def record(scene: Scene) -> AsyncIterator[str]:
    async with scene.http(scene.reader) as client:
        found = (await client.get("/api/v1/openapi.json")).json()
    found["info"]["version"] = "VERSION"
    _remove_examples(found)
    for path, methods in found.pop("paths").items():
        for method, one in methods.items():
            for text in flat(one, f"{method.upper()} {path}"):
                yield text
    for text in flat(found, "document"):
        yield text
