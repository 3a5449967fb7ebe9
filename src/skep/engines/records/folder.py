"""Records in a folder, through tantivy: the engine that needs no server."""

import shutil
from pathlib import Path

from skep.engines.records.base import Kind
from skep.engines.records.shelf import FolderShelf
from skep.engines.records.shelved import Shelved


async def open_folder(url: str, *, data: Path) -> "FolderRecords":
    """`file:` is DATA/records, `file:PATH` another folder."""
    path = url.partition(":")[2]
    return FolderRecords(Path(path) if path else data / "records")


class FolderRecords(Shelved):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def open(self, kind: Kind) -> FolderShelf:
        return FolderShelf(self._folder / kind.name, kind)

    def set_aside(self, kind: Kind) -> None:
        """One of them is kept for whoever wants to know what happened."""
        folder = self._folder / kind.name
        aside = folder.with_name(folder.name + ".damaged")
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
