"""Object formats: what of an object is kept follows from the type of its format."""

from collections.abc import Iterable
from importlib.resources import files

from skep.dataone.types import FormatType, MediaType, ObjectFormat


class Formats:
    """Those that were shipped, until others are given. An unknown format is kept as data, and judged again later."""

    def __init__(self, known: Iterable[ObjectFormat] | None = None) -> None:
        self.all = {one.format_id: one for one in (_shipped() if known is None else known)}

    def type_of(self, format_id: str) -> FormatType:
        found = self.all.get(format_id)
        return found.format_type if found else "DATA"


def _shipped() -> Iterable[ObjectFormat]:
    for line in files("skep.dataone").joinpath("formats.tsv").read_text("utf-8").splitlines():
        id, type, media, extension, name = line.split("\t")
        # the file says no other types
        yield ObjectFormat(id, name, type, MediaType(media) if media else None, extension or None)  # type: ignore[arg-type]
