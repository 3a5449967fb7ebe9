"""Files that people hand to a command."""

import sys
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from skep.base.errors import BadInput

T = TypeVar("T")


def read_text(file: str) -> str:
    """`-` is standard input."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{file}: is not UTF-8: {error}") from error


def read_toml(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(file))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{file}: is not TOML: {error}") from error


def read_one(file: str, kind: type[T], hint: str) -> T:
    return _fitted(file, read_toml(file), kind, hint)


def read_tables(file: str, name: str, kind: type[T]) -> list[T]:
    """One as the whole of a TOML file, or several as `[[name]]`; all are looked at before anything is done with one."""
    content, hint = read_toml(file), f"docs/{name}s.md shows what a {name} is made of"
    return _fitted(file, content.get(name, [content]), list[kind], hint)  # type: ignore[valid-type]


def _fitted(file: str, content: object, kind: type[T], hint: str) -> T:
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"{file}: {error}", hint=hint) from error
