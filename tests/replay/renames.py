"""What is called otherwise in the newer version: the table of renames, applied to requests and answers.

Of the surfaces of tests/renames.py these count here: route (beginning of a path, `{x}` is one segment), query and field
(names), value, code, topic and verb (whole texts of JSON), header (names), text (any part of a text in an answer), html
and label (any part of a page), setting (names).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.renames import Rename, read_table

Surface = Literal["route", "query", "field", "value", "header", "text", "html", "setting"]
#: kinds of names that are seen as something else too
_SEEN_AS: Mapping[str, tuple[str, ...]] = {"value": ("value", "code", "topic", "verb"), "html": ("html", "label")}


@dataclass(frozen=True)
class Renames:
    lines: tuple[Rename, ...] = ()

    @classmethod
    def read(cls, file: Path) -> "Renames":
        """A file that is absent renames nothing."""
        return cls(tuple(read_table(file)))

    def of(self, surface: Surface, path: str) -> dict[str, str]:
        return {
            one.old: one.new
            for one in self.lines
            if one.surface in _SEEN_AS.get(surface, (surface,)) and (not one.where or re.search(one.where, path))
        }

    # of requests, for the newer version

    def route(self, path: str) -> str:
        """The longest beginning that is renamed decides."""
        for old, new in sorted(self.of("route", path).items(), key=lambda one: len(one[0]), reverse=True):
            pattern = re.sub(r"\\\{\w+\\\}", "([^/?]+)", re.escape(old)) + r"(?=[/?\s]|$)"
            if found := re.match(pattern, path):
                return re.sub(r"\{\w+\}", "{}", new).format(*found.groups()) + path[found.end() :]
        return path

    def path(self, path: str) -> str:
        named, mark, query = self.route(path).partition("?")
        names = self.of("query", path)
        parts = [one.partition("=") for one in query.split("&")] if mark else []
        return named + mark + "&".join(names.get(name, name) + is_ + value for name, is_, value in parts)

    def json(self, value: Any, path: str) -> Any:
        return _walk(value, self.of("field", path), self.of("value", path), {})

    def names(self, given: Mapping[str, Any], surface: Surface, path: str) -> dict[str, Any]:
        names = self.of(surface, path)
        return {names.get(name, name): value for name, value in given.items()}

    # of answers, of the older version

    def answer(self, value: Any, path: str) -> Any:
        return _walk(value, self.of("field", path), self.of("value", path), self.of("text", path))

    def text(self, text: str, path: str, page: bool) -> str:
        names = self.of("text", path) | (self.of("html", path) if page else {})
        return _replaced(text, names)


def _walk(value: Any, fields: Mapping[str, str], values: Mapping[str, str], texts: Mapping[str, str]) -> Any:
    again: Callable[[Any], Any] = lambda one: _walk(one, fields, values, texts)  # noqa: E731
    match value:
        case dict():
            return {fields.get(key, key): again(one) for key, one in value.items()}
        case list():
            return [again(one) for one in value]
        case str():
            return _replaced(values.get(value, value), texts)
    return value


def _replaced(text: str, names: Mapping[str, str]) -> str:
    for old in sorted(names, key=len, reverse=True):
        text = text.replace(old, names[old])
    return text
