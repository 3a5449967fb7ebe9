"""The table of renames, `docs/project/renames.tsv`. The golden data, the access table and the replay read it.

The columns are surface, old, new, divided by tabs; empty lines and lines that begin with `#` are comments. A fourth
column is a regular expression of request paths: such a row applies only there, and so only to the replay.
`surface` is a kind of name, a surface of the golden data, several of them with commas, or `*`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).parents[1] / "docs" / "project" / "renames.tsv"
#: kinds of names, and the surfaces of the golden data in which each is visible
KINDS: Mapping[str, tuple[str, ...]] = {
    "class": ("client", "errors", "openapi", "rpc"),
    "code": ("cli", "client", "errors"),
    "column": ("explain", "schema"),
    "command": ("cli",),
    "field": ("client", "cli", "openapi", "payloads", "rpc"),
    "header": ("openapi",),
    "html": ("pages",),
    "label": ("pages",),
    "metric": ("metrics",),
    "query": ("client", "openapi"),
    "route": ("client", "dataone", "errors", "openapi", "pages"),
    "setting": ("cli", "settings"),
    "table": ("explain", "schema"),
    "text": ("cli", "errors", "openapi", "payloads"),
    "topic": ("openapi", "pages", "payloads"),
    "value": ("client", "cli", "openapi", "payloads", "rpc"),
    "verb": ("audit",),
}
EVERYWHERE = "*"
_KNOWN = {EVERYWHERE, *KINDS, *(surface for surfaces in KINDS.values() for surface in surfaces)}


class Rename(NamedTuple):
    surface: str
    old: str
    new: str
    #: a regular expression of request paths; empty: everywhere
    where: str = ""


class RenameError(ValueError):
    """The table is wrong; the text says where."""


def read_table(path: Path = TABLE) -> list[Rename]:
    """A file that is absent renames nothing."""
    found: list[Rename] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else (), 1):
        cells = text.split("\t")
        if not text.strip() or text.startswith("#") or cells[:3] == ["surface", "old", "new"]:
            continue
        if not 3 <= len(cells) <= 4 or not cells[1] or not cells[2]:
            raise RenameError(f"{path}:{number}: a row needs surface, old and new, divided by tabs: {text!r}")
        for surface in map(str.strip, cells[0].split(",")):
            if surface not in _KNOWN:
                raise RenameError(f"{path}:{number}: unknown surface {surface!r}; known: {', '.join(sorted(_KNOWN))}")
            found.append(Rename(surface, *cells[1:]))
    return found
