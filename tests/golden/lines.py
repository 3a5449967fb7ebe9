"""Golden data is lines. Each line is complete in itself: `where > it > is = value`.

A value that holds text for people is JSON with its quotes; everything else (types, SQL, names) is bare.
The lines of a file are sorted, so a renamed thing moves as a whole and a diff shows one line for one difference.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

SEPARATOR = " > "
_SCALAR = (str, int, float, bool, type(None))
#: ids of Skep: a prefix with a ULID, or with a digest that depends on a ULID
_ULID = re.compile(r"\b([a-z]{3})_[0-9A-HJKMNP-TV-Z]{26}")
_DIGEST = re.compile(r"\b([a-z]{3})_[a-z2-7]{32}\b")
_PORT = re.compile(r"\b(127\.0\.0\.1|localhost):\d+")


def line(*parts: str) -> str:
    """The last part is the value, the others say where it is."""
    text = SEPARATOR.join(parts[:-1]) + " = " + parts[-1]
    return text.replace("\r", "\\r").replace("\n", "\\n")


def quoted(value: object) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def flat(value: Any, *where: str) -> Iterator[str]:
    """A JSON value, one line for each leaf. Named members of a list are found by their name, others by their number."""
    if isinstance(value, Mapping) and value:
        for key in sorted(value, key=str):
            yield from flat(value[key], *where, str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str) and not all(isinstance(v, _SCALAR) for v in value):
        names = [one.get("name") if isinstance(one, Mapping) else None for one in value]
        unique = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
        for number, (name, one) in enumerate(zip(names, value, strict=True)):
            yield from flat(one, *where, f"[{name if unique else number}]")
    else:
        yield line(*where, quoted(value))


def plain(text: str, paths: Mapping[str, str] | None = None) -> str:
    """Without what differs from run to run: ids, ports, folders."""
    for path, name in (paths or {}).items():
        text = text.replace(path, name)
    return _PORT.sub(r"\1:PORT", _DIGEST.sub(r"\1_DIGEST", _ULID.sub(r"\1_ID", text)))


def document(lines: Iterable[str]) -> str:
    """The text of a file."""
    return "".join(f"{one}\n" for one in sorted(set(lines)))
