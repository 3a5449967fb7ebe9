"""Metrics of a server that has done something: names, types, help, labels."""

import re
from collections.abc import AsyncIterator

from ..lines import line, quoted
from ..scene import Scene

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
#: labels with a value from a fixed set; others name something
_FIXED = ("role", "work", "wrong")


async def record(scene: Scene) -> AsyncIterator[str]:
    async with scene.http(scene.reader) as client:
        answer = await client.get("/metrics")
    yield line("media type", answer.headers["content-type"])
    for text in answer.text.splitlines():
        if text.startswith("# "):
            _, what, name, rest = text.split(" ", 3)
            yield line(name, what, quoted(rest) if what == "HELP" else rest)
        elif found := _SAMPLE.fullmatch(text):
            labels = _LABEL.findall(found["labels"] or "")
            shown = [f"{name}={value}" if name in _FIXED else name for name, value in labels]
            yield line(found["name"], "labels", " ".join(shown))
        else:
            yield line("not understood", text)
