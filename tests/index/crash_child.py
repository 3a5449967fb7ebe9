"""Builds, adopts and merges without end, until somebody kills it. Prints each commit once it is adopted.

With the name of a step it kills itself, before or after it.
"""

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skep.storage.code_index.model import Delta, Document, Fence, Tip
from skep.storage.code_index.trigram import builder, searcher, shard
from skep.storage.code_index.trigram.builder import TrigramBuilder
from skep.storage.code_index.trigram.searcher import TrigramSearcher, open_trigram
from skep.storage.sqlite import open_sqlite

#: more than the shards of one size that stand beside each other, so that there is something to merge
FILES = 12
#: where each is found, and which of its calls is the last: the first ones make what a merge needs
STEPS: dict[str, tuple[Any, str, int]] = {
    "a shard is written": (builder.ShardWriter, "finish", 10),
    "it is moved in": (shard, "_move", 10),
    "its folder is synced": (shard, "sync_folders", 10),
    "the adoption is committed": (searcher.Tables, "adopt", 10),
    "the adoption is shown": (TrigramSearcher, "_show", 10),
    "what died is removed": (shard, "remove", 1),
    "shards are merged": (searcher, "merge", 1),
    "a merged shard takes their place": (TrigramSearcher, "_adopt_merged", 1),
    "the merge is committed": (searcher.Tables, "swap", 1),
}


def content(commit: int) -> bytes:
    return b"word %d\n" % commit


def die(step: str, moment: str) -> None:
    owner, name, last = STEPS[step]
    real: Callable[..., Any] = getattr(owner, name)
    left = last

    def is_last() -> bool:
        nonlocal left
        left -= 1
        return left == 0

    @functools.wraps(real)
    def dies(*args: Any, **more: Any) -> Any:
        kills = is_last()
        if kills and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = real(*args, **more)
        if asyncio.iscoroutine(done):
            return _awaited(done, kills)
        if kills:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    async def _awaited(done: Any, kills: bool) -> Any:
        result = await done
        if kills:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dies)


async def main(data: Path) -> None:
    db = await open_sqlite("sqlite:", data=data, durability="full")
    index = await open_trigram("file:", data=data, db=db)
    await index.start()
    standing = index.standing(1)
    commit = int(standing.commit) if standing else 0
    while True:
        path = b"f%d" % ((commit + 1) % FILES)
        document = Document(path, "0" * 40, content(commit + 1))
        shards = TrigramBuilder().build(1, [document], data / "built", lambda _: None)
        base = (Tip("main", str(commit)),) if commit else None
        delta = Delta("src_1", 1, (Tip("main", str(commit + 1)),), base, shards, (path,))
        assert await index.adopt(delta, Fence("src_1", 1, 0.0))
        commit += 1
        sys.stdout.write(f"{commit}\n")
        sys.stdout.flush()
        await index.merge_once()


if __name__ == "__main__":
    if sys.argv[2:]:
        die(*sys.argv[2:])
    asyncio.run(main(Path(sys.argv[1])))
