"""The recorded files, and how they are compared with what the tree does now."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from tests.renames import Rename

from .lines import document
from .renames import translate

FOLDER = Path(__file__).parent / "data"
_SHOWN = 400


def path_of(surface: str, folder: Path = FOLDER) -> Path:
    return folder / f"{surface}.txt"


def write(found: Mapping[str, str], folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for surface, text in found.items():
        path_of(surface, folder).write_bytes(text.encode())


def difference(surface: str, found: str, table: Sequence[Rename] = (), folder: Path = FOLDER) -> list[str]:
    """Empty where the recorded file says exactly this, byte for byte."""
    path = path_of(surface, folder)
    try:
        recorded = path.read_bytes()
    except FileNotFoundError:
        return [f"{path.name} is missing: `scripts/golden record` writes it"]
    if recorded == found.encode() and not table:
        return []
    old = recorded.decode("utf-8", "backslashreplace")
    if table:
        problem = [] if old == document(old.splitlines()) else [f"{path.name} is not sorted, or has a line twice"]
        old = document(translate(surface, old.splitlines(), table))
        if old == found:
            return problem
    shown = _differing(old.splitlines(), found.splitlines())
    more = [f"... and {len(shown) - _SHOWN} more lines"] if len(shown) > _SHOWN else []
    return [*shown[:_SHOWN], *more] or [f"{path.name} differs in its line ends, or in bytes that are not text"]


def _differing(old: list[str], new: list[str]) -> list[str]:
    """Lines that only one side has. What both begin and end with is left out first: then it is quick."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    old, new = old[same:], new[same:]
    tail = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(reversed(old), reversed(new), strict=False)))
    old, new = old[: len(old) - tail], new[: len(new) - tail]
    lines = difflib.unified_diff(old, new, "recorded", "now", lineterm="", n=0)
    return [one for one in lines if not one.startswith("@@")]


def strangers(surfaces: Iterable[str], folder: Path = FOLDER) -> list[str]:
    """Files that no surface writes."""
    known = {path_of(one, folder).name for one in surfaces}
    return sorted(one.name for one in folder.iterdir() if one.name not in known)
