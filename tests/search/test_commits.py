"""`type:commit` over real mirrors: what is found, for whom, in which order, page by page."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from skep.base.caller import SYSTEM
from skep.base.errors import BadInput, BadQuery
from skep.search.query import moment
from skep.sources.git.browse import log
from skep.storage.code_index.model import Limits, Tip

from .conftest import Library

DAY = 86_400


class Made(NamedTuple):
    """A commit to make: days since the epoch, who, and what is said."""

    day: int
    author: str
    message: bytes


BEES = [
    Made(100, "Ann <ann@example.org>", b"Build a hive\n\nOf straw, as ever.\n"),
    Made(200, "Bob <bob@other.org>", b"Fix the lid\n\nIt let rain in.\nReviewed-by: Ann\n"),
    Made(300, "Ann <ann@example.org>", b"Revert the lid\r\n"),
    Made(400, "Zoë <z@example.org>", b"Honig f\xfcr alle\n"),
    Made(500, "Bob <bob@other.org>", b""),
]


def repository(folder: Path, commits: list[Made], branch: str = "main") -> str:
    """A bare one with one branch; the id of its newest commit."""
    subprocess.run(["git", "init", "--quiet", "--bare", str(folder)], check=True)
    stream = b""
    for nth, one in enumerate(commits, start=1):
        who = f"{one.author} {one.day * DAY} +0000"
        stream += f"commit refs/heads/{branch}\nmark :{nth}\nauthor {who}\ncommitter {who}\n".encode()
        stream += b"data %d\n%b\n" % (len(one.message), one.message)
    git = ["git", "-C", str(folder)]
    subprocess.run([*git, "fast-import", "--quiet"], input=stream, check=True)
    return subprocess.run([*git, "rev-parse", branch], check=True, capture_output=True, text=True).stdout.strip()


async def mirrored(library: Library, made: Path, name: str, commits: list[Made], **given: object) -> str:
    bare = made / name.replace("/", "-")
    tip = repository(bare, commits)
    id = await library.add(name, {"a.txt": "a\n"}, tips=[Tip("main", tip)], **given)  # type: ignore[arg-type]
    folder = library.core.gather._where(id)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(bare, folder)
    return id


@pytest.fixture
async def bees(library: Library, tmp_path: Path) -> Library:
    await mirrored(library, tmp_path, "bees/hive", BEES)
    return library


async def subjects(library: Library, text: str) -> list[str]:
    return [one.subject for one in (await library.search(f"type:commit {text}")).commits]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ["", "Honig f\ufffdr alle", "Revert the lid", "Fix the lid", "Build a hive"]),
        ("lid", ["Revert the lid", "Fix the lid"]),
        ("lid rain", ["Fix the lid"]),
        ("LID", []),
        ("LID case:no -revert", ["Fix the lid"]),
        ("(straw or rain)", ["Fix the lid", "Build a hive"]),
        ("/^re(vert|viewed)/", ["Revert the lid", "Fix the lid"]),
        ("author:ann", ["Revert the lid", "Build a hive"]),
        ("author:@other\\.org>$ lid", ["Fix the lid"]),
        ('author:"Zoë"', ["Honig f\ufffdr alle"]),
        ("-author:ann -author:bob", ["Honig f\ufffdr alle"]),
        ("after:1970-10", ["", "Honig f\ufffdr alle", "Revert the lid"]),
        ("before:1970-07-20", ["Build a hive"]),
        ("after:1970-07-20 before:1970-07-21", ["Fix the lid"]),
        ("after:1d", []),
        ("after:1960 before:1970-07-20", ["Build a hive"]),
        ("before:1960", []),
        ("count:1", [""]),
        ("repo:hive lid -author:bob", ["Revert the lid"]),
        ("repo:nowhere", []),
        ("repo:nowhere or lid author:bob", ["Fix the lid"]),
        ("-repo:hive", []),
        ("branch:^main$ rain", ["Fix the lid"]),
        ("branch:release", []),
    ],
)
async def test_what_is_found(bees: Library, text: str, wanted: list[str]) -> None:
    assert await subjects(bees, text) == wanted


async def test_a_hit_says_who_when_where_and_why(bees: Library) -> None:
    answer = await bees.search("type:commit rain")
    (hit,) = answer.commits
    assert (hit.name, hit.author, hit.at) == ("example.org/bees/hive", "Bob <bob@other.org>", 200.0 * DAY)
    assert (len(hit.commit), hit.lines) == (40, ("It let rain in.",))
    assert (answer.counted.files, answer.counted.exact, answer.partial, answer.next_page) == (1, True, False, "")


async def test_pages_have_each_commit_once_while_new_ones_arrive(bees: Library, tmp_path: Path) -> None:
    await mirrored(bees, tmp_path, "bees/fork", BEES)  # the same commits, once more
    text, page, found = "type:commit", "", []
    for turn in range(5):
        answer = await bees.search(text, Limits(seconds=60.0, lines=2), page=page)
        found += [(one.name, one.commit) for one in answer.commits]
        page = answer.next_page
        assert answer.partial is bool(page)
        if not turn:
            await mirrored(bees, tmp_path, "bees/newer", [Made(900, "Eve <e@x.org>", b"Swarm\n")])
    assert (page, len(found), len(set(found))) == ("", 10, 10)
    counted = (await bees.search(text, Limits(seconds=60.0, lines=2, count=100))).counted
    assert (counted.files, counted.exact) == (11, True)


async def test_private_sources_are_for_those_who_see_them(library: Library, tmp_path: Path) -> None:
    await mirrored(library, tmp_path, "bees/secret", BEES, visibility="private")
    assert await subjects(library, "lid") == []
    answer = await library.search("type:commit lid", caller=SYSTEM)
    assert len(answer.commits) == 2


async def test_a_mirror_that_cannot_be_read_makes_the_answer_partial(bees: Library, tmp_path: Path) -> None:
    broken = await mirrored(bees, tmp_path, "bees/broken", BEES)
    shutil.rmtree(bees.core.gather._where(broken) / "objects")
    answer = await bees.search("type:commit lid")
    assert [one.name for one in answer.commits] == ["example.org/bees/hive"] * 2
    assert (answer.partial, answer.counted.exact) == (True, False)


async def test_what_was_found_in_time_is_shown(bees: Library) -> None:
    answer = await bees.search("type:commit lid", Limits(seconds=1e-6))
    assert (answer.partial, answer.counted.exact) == (True, False)


async def test_thousands_of_commits_are_read_until_there_are_enough(library: Library, tmp_path: Path) -> None:
    many = [Made(n, "Ann <a@x.org>", b"Step %d\n\n%b\n" % (n, b"x" * 300)) for n in range(1, 5_001)]
    await mirrored(library, tmp_path, "many/steps", many)
    assert await subjects(library, "count:2 /^Step 1/") == ["Step 1999", "Step 1998"]
    answer = await library.search("type:commit Step", Limits(seconds=60.0, lines=1, count=1_000))
    assert not answer.counted.exact
    assert answer.counted.files > 1_000
    assert (await library.search("type:commit 4999", Limits(seconds=60.0, count=10))).counted.exact


async def test_a_commit_larger_than_any_message_is_not_read(library: Library, tmp_path: Path) -> None:
    await mirrored(library, tmp_path, "big/words", [Made(1, "Ann <a@x.org>", b"x" * (17 << 20))])
    answer = await library.search("type:commit x")
    assert (answer.commits, answer.partial) == ([], True)


async def test_git_is_gone_when_nobody_reads_on(tmp_path: Path) -> None:
    many = [Made(n, "Ann <a@x.org>", b"%d\n%b\n" % (n, b"x" * 2_000)) for n in range(1, 2_001)]
    tip = repository(tmp_path / "bare", many)
    lots = log(tmp_path / "bare", [tip])
    first = await anext(lots)
    assert len(first) < 2_000
    await lots.aclose()
    said = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in said


@pytest.mark.parametrize(
    ("text", "said", "column"),
    [
        ("type:commit file:a", "no `file:`", 18),
        ("type:commit sym:a", "no `sym:`", 17),
        ("type:commit lang:c", "no `lang:`", 13),
        ("type:commit -branch:a", "only narrow", 21),
        ("type:commit after:soon", "`after:soon` is not known", 13),
        ("type:commit -after:2026", "cannot be negated", 13),
        ("type:commit author:", "needs a value", 13),
        ("type:commit /(/", "regular expression", 14),
        ("x author:ann", "about commits", 10),
        ("x before:2026-01-01", "about commits", 3),
    ],
)
async def test_what_is_wrong_is_pointed_at(library: Library, text: str, said: str, column: int) -> None:
    with pytest.raises(BadQuery, match=said) as caught:
        await library.search(text)
    assert caught.value.column == column


async def test_elsewhere_they_are_words(bees: Library) -> None:
    await bees.add("notes/cff", {"CITATION.cff": "author: Ann\n"})
    assert await bees.paths("author: Ann") == ["CITATION.cff"]


@pytest.mark.parametrize("token", ["x", "1.2.3.4", "-1." + "a" * 40 + ".1.1", "1" * 13 + "." + "a" * 40 + ".1.1"])
async def test_a_strange_page_token_is_refused(bees: Library, token: str) -> None:
    with pytest.raises(BadInput, match="none of ours"):
        await bees.search("type:commit", page=token)


async def test_they_come_in_pages_only(bees: Library) -> None:
    with pytest.raises(BadQuery, match="commits come in pages"):
        await bees.core.search.stream(SYSTEM, "type:commit", Limits())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026", 1_767_225_600.0),
        ("2026-01", 1_767_225_600.0),
        ("2026-01-01", 1_767_225_600.0),
        ("2026-01-01T01:00+01:00", 1_767_225_600.0),
        ("2h", 1_000_000_000.0 - 7_200),
        ("1w", 1_000_000_000.0 - 7 * DAY),
        ("2026-13-01", None),
        ("yesterday", None),
        ("", None),
        ("٣d", None),
    ],
)
def test_moments(text: str, wanted: float | None) -> None:
    assert moment(text, 1_000_000_000.0) == wanted
