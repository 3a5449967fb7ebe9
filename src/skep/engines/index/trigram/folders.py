"""The index folder: one folder per shard, moved in whole."""

import errno
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from skep.disk import sync_file, sync_folders
from skep.engines.index.trigram.manifest import is_shard_id
from skep.engines.index.trigram.shard import Shard
from skep.errors import Damaged
from skep.model.search import ShardInfo


def move_in(shards: Sequence[ShardInfo], folder: Path, number: int | None = None) -> list[Shard]:
    """Open the shards and move them into `folder`, durably; those that are there already stay.

    Damaged, and nothing moved, when one is in neither place or is not what it says it is: with a `number`, one that
    holds documents of that source and no other. Who may see a document follows from it.
    """
    opened = [_open(info, folder, number) for info in shards]
    for info in shards:
        if not (folder / info.id).exists():
            _move(Path(info.folder), folder / info.id)
    if opened:
        sync_folders(folder)
    return opened


def _open(info: ShardInfo, folder: Path, number: int | None) -> Shard:
    inside = folder / info.id
    return open_shard(info, inside if is_shard_id(info.id) and inside.exists() else Path(info.folder), number)


def open_shard(info: ShardInfo, folder: Path, number: int | None) -> Shard:
    """Damaged when what is in the folder is not what `info` says, or not of that source."""
    if not is_shard_id(info.id):
        raise Damaged(f"'{info.id}' is not the id of a shard")
    shard = Shard(folder)
    if shard.id != info.id:
        raise Damaged(f"{info.folder} is shard {shard.id}, not {info.id}")
    if number is not None and shard.manifest.sources != [number]:
        raise Damaged(f"shard {shard.id} holds documents of other sources than number {number}")
    return shard


def _move(outside: Path, inside: Path) -> None:
    try:
        outside.rename(inside)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        aside = inside.with_name(inside.name + ".copy")
        shutil.copytree(outside, aside, copy_function=_copy_durably)
        sync_folders(aside)
        aside.rename(inside)
        shutil.rmtree(outside)


def _copy_durably(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    with Path(target).open("rb") as file:
        sync_file(file)


def remove(folder: Path, ids: Collection[str]) -> None:
    """Searches that still read these shards have them open and are not disturbed."""
    for id in ids:
        shutil.rmtree(folder / id, ignore_errors=True)


def remove_unnamed(folder: Path, named: Collection[str]) -> None:
    """What a killed process left behind: moved in but never adopted, or half merged."""
    for path in folder.iterdir():
        if path.is_dir() and path.name not in named:
            shutil.rmtree(path, ignore_errors=True)
