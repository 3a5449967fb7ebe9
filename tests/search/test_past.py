"""`commit:` over real mirrors: files as they were, read when somebody asks."""

import asyncio
import shutil
import signal
from multiprocessing import active_children
from pathlib import Path

import pytest

from skep.base.caller import SYSTEM
from skep.base.child_process import run_apart
from skep.base.errors import BadQuery, Busy, Damaged
from skep.search import commits as past
from skep.storage.code_index.model import Limits, Tip
from tests.support.forge.repository import Repo

from .conftest import READER, Library


async def mirrored(library: Library, name: str, made: Path, **given: object) -> tuple[str, Repo, list[str]]:
    """A source with three commits, of which only the last is in the index."""
    repo = Repo.init(made / name.replace("/", "-"))
    commits = [
        repo.commit({"hive.py": b"def build(): straw\n", "old.txt": b"straw\n"}),
        repo.commit(
            {"hive.py": b"def build(): wood\n", "old.txt": None, ".skepignore": b"*.bin\n", "a.bin": b"wood\n"}
        ),
        repo.commit({"hive.py": b"def build(): plastic\n"}),
    ]
    repo.tag("v1", commits[0])
    id = await library.add(
        name,
        {"hive.py": "def build(): plastic\n"},
        tips=[Tip("main", commits[-1])],
        **given,  # type: ignore[arg-type]
    )
    folder = library.core.gather._where(id)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(repo.folder, folder)
    return id, Repo(folder), commits


async def found(library: Library, text: str) -> list[tuple[str, str, str, list[str]]]:
    hits = (await library.search(text)).hits
    return [(hit.path, hit.branch, hit.commit, [line.text for line in hit.lines]) for hit in hits]


async def test_files_as_they_were(library: Library, tmp_path: Path) -> None:
    _, _, (first, second, third) = await mirrored(library, "bees", tmp_path)
    assert await found(library, "straw") == []
    assert await found(library, f"straw commit:{first} file:hive") == [
        ("hive.py", first, first, ["def build(): straw"])
    ]
    assert {path for path, *_ in await found(library, "straw commit:v1")} == {"hive.py", "old.txt"}
    assert await found(library, f"wood commit:{second[:8]}") == [("hive.py", second[:8], second, ["def build(): wood"])]
    assert await found(library, "/pla.*ic/ commit:main") == [("hive.py", "main", third, ["def build(): plastic"])]
    assert await found(library, f"plastic commit:{first}") == []
    assert await found(library, "type:path old commit:v1") == [("old.txt", "v1", first, [])]
    answer = await library.search("build commit:v1")
    assert answer.counted.exact
    assert answer.facets is not None
    assert answer.hits[0].fetched_at >= 1000.0


async def test_what_was_defined(library: Library, tmp_path: Path) -> None:
    """Found out when it is asked for, once."""
    _, _, (first, *_) = await mirrored(library, "bees", tmp_path)
    assert await found(library, "straw commit:v1")
    assert not list(next(iter(kept(library).values())).glob("*.book"))
    assert await found(library, "sym:^build$ commit:v1") == [("hive.py", "v1", first, ["def build(): straw"])]
    assert await found(library, "sym:straw commit:v1") == []
    (hit,) = (await library.search("build commit:v1 -sym:nothing", Limits(seconds=600.0, explain=True))).hits
    assert "definition" in [reason.name for reason in hit.why]
    (book,) = next(iter(kept(library).values())).glob("*.book")
    book.write_bytes(b"nonsense")
    with pytest.raises(Damaged):
        await library.search("sym:build commit:v1")
    assert await found(library, "sym:build commit:v1")


async def test_what_is_made_of_a_source_goes_with_it(library: Library, tmp_path: Path) -> None:
    """At once, and at the next start if nobody was there to see it go."""
    ids = [(await mirrored(library, name, tmp_path))[0] for name in ("bees", "wasps")]
    for name in ("bees", "wasps"):
        assert await found(library, f"straw commit:v1 repo:{name}")
    await library.core.sources.remove(SYSTEM, ids[0])
    await library.core.search.catalogue.refresh(library.core.search._db)
    following = asyncio.create_task(library.core.search.follow())
    while len(kept(library)) > 1:
        await asyncio.sleep(0)
    await library.core.sources.remove(SYSTEM, ids[1])
    while kept(library):
        await asyncio.sleep(0)
    following.cancel()


async def test_pages_and_streams(library: Library, tmp_path: Path) -> None:
    await mirrored(library, "bees", tmp_path)
    first = await library.search("straw commit:v1", Limits(lines=1, seconds=600.0))
    rest = await library.search("straw commit:v1", Limits(lines=1, seconds=600.0), page=first.next_page)
    assert {hit.path for hit in (*first.hits, *rest.hits)} == {"hive.py", "old.txt"}
    stream = [one async for one in await library.core.search.stream(READER, "straw commit:v1", Limits(seconds=600.0))]
    assert {one.path for one in stream[:-1]} == {"hive.py", "old.txt"}  # type: ignore[union-attr]


async def test_only_what_the_caller_may_see(library: Library, tmp_path: Path) -> None:
    _, _, commits = await mirrored(library, "secret", tmp_path, visibility="private")
    await mirrored(library, "open", tmp_path)
    private = await library.search("straw commit:v1", caller=SYSTEM)
    assert {hit.name.rpartition("/")[2] for hit in private.hits} == {"secret", "open"}
    public = await library.search("straw commit:v1")
    assert {hit.name.rpartition("/")[2] for hit in public.hits} == {"open"}
    with pytest.raises(BadQuery, match="no commit"):
        await library.search(f"straw commit:{commits[0]} repo:secret")


async def test_what_no_branch_reaches_is_not_shown(library: Library, tmp_path: Path) -> None:
    """The mirror keeps what was rewritten upstream; that is nobody's business who searches."""
    _, mirror, commits = await mirrored(library, "bees", tmp_path)
    mirror.git("update-ref", "refs/skep/kept/1", commits[2])
    mirror.git("update-ref", "refs/heads/main", commits[1])
    with pytest.raises(BadQuery, match="there is no commit") as caught:
        await library.search(f"plastic commit:{commits[2]}")
    assert "a branch or a tag of the source reaches" in str(caught.value.hint)
    assert await found(library, f"wood commit:{commits[1]}")


BAD = {
    "straw commit:deadbeef": ("no commit deadbeef", 7),
    "straw commit:nowhere": ("no commit nowhere", 7),
    "straw commit:--all": ("not known", 7),
    "straw commit:main..v1": ("not known", 7),
    "straw commit:HEAD@{1}": ("not known", 7),
    "straw commit:v1 commit:main": ("given twice", 17),
    "straw -commit:v1": ("cannot be negated", 7),
    "straw commit:v1 branch:main": ("any branch", 24),
    "straw commit:v1 type:repo": ("about files", 7),
    "type:commit straw commit:v1": ("about files", 19),
}


@pytest.mark.parametrize("text", BAD)
async def test_what_cannot_be_asked(library: Library, tmp_path: Path, text: str) -> None:
    await mirrored(library, "bees", tmp_path)
    with pytest.raises(BadQuery) as caught:
        await library.search(text)
    message, column = BAD[text]
    assert message in caught.value.message
    assert caught.value.hint
    assert caught.value.column == column


async def test_a_word_with_a_colon_is_a_word(library: Library) -> None:
    await library.add("bees", {"log.txt": "commit: fix the hive\n"})
    assert await library.paths("commit: fix") == ["log.txt"]


async def test_too_many_sources_are_not_read(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "_MOST_SOURCES", 1)
    for name in ("one", "two"):
        await mirrored(library, name, tmp_path)
    with pytest.raises(BadQuery, match="2 of them") as caught:
        await library.search("straw commit:v1")
    assert caught.value.column == 7
    assert {path for path, *_ in await found(library, "straw commit:v1 repo:two")} == {"hive.py", "old.txt"}


def kept(library: Library) -> dict[str, Path]:
    made = library.core.search._finder.past
    assert made
    return {path.name: path for path in made._folder.iterdir()}


async def test_it_is_made_once_and_kept(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, commits = await mirrored(library, "bees", tmp_path)
    answers = await asyncio.gather(*(library.search("straw commit:v1") for _ in range(5)))
    assert {len(answer.hits) for answer in answers} == {2}
    assert len(kept(library)) == 1
    before = kept(library)
    monkeypatch.setattr(past, "_KEPT", 2)
    for commit in commits[1:]:
        await library.search(f"build commit:{commit}")
    assert len(kept(library)) == 2
    assert not before.keys() & kept(library).keys()


async def test_damage_and_a_kill_cost_one_answer(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mirrored(library, "bees", tmp_path)
    assert await found(library, "straw commit:v1")
    (folder,) = kept(library).values()
    next(folder.glob("*/manifest")).write_bytes(b"nonsense")
    with pytest.raises(Damaged):
        await library.search("straw commit:v1")
    with monkeypatch.context() as endless:
        endless.setattr(past, "run_apart", lambda work: run_apart(signal.pause))
        asking = asyncio.create_task(library.search("straw commit:v1"))
        while not (children := active_children()):
            await asyncio.sleep(0)
        for child in children:
            child.kill()
        with pytest.raises(Damaged, match="cannot be indexed"):
            await asking
    assert len(await found(library, "straw commit:v1")) == 2


async def test_who_cannot_wait_asks_again(library: Library, tmp_path: Path) -> None:
    await mirrored(library, "bees", tmp_path)
    with pytest.raises(Busy, match="still being read"):
        await library.search("straw commit:v1", Limits(seconds=0.01))
    assert len(await found(library, "straw commit:v1")) == 2
