"""A list in git becomes sources, follows its repository, and does not remove much without being asked."""

import json
from typing import Any

import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import Conflict, NotFound
from skep.sources.lists.apply import Apply
from skep.sources.model import SourceSettings
from skep.topics.service import FAILURES
from tests.lists.conftest import ListHouse
from tests.support.forge.repository import Files, Repo


def urls(*names: str) -> bytes:
    return "".join(f"- https://example.org/{name}\n" for name in names).encode()


def many(first: int, last: int) -> list[str]:
    return [f"r{n:04}" for n in range(first, last)]


async def test_an_entry_may_be_pinned_elsewhere_later(house: ListHouse) -> None:
    repo, listed = await house.repository({"a.yaml": b"x: {url: https://example.org/x, workers: [w1]}\n"})
    await house.follower.step()
    await house.push(repo, listed, {"a.yaml": b"x: {url: https://example.org/x, workers: [w2, w3]}\n"})
    await house.follower.step()
    rows = await house.db.read("SELECT pins FROM holding WHERE pins <> '[]'")
    assert [json.loads(row["pins"]) for row in rows] == [["w2", "w3"]]


async def test_files_defaults_and_orders(house: ListHouse) -> None:
    await house.work_for("w1")
    await house.work_for("w2")
    house.clock.time += 1
    await house.fleet.beat("w1", 1, "", {})
    _, listed = await house.repository(
        {
            "DEFAULTS": b"team: all\nhot: true\n",
            "a/DEFAULTS": b"team: a\n",
            "a/one.yaml": b"x: {url: https://example.org/x, workers: [gone, w2]}\ny: https://example.org/y\n",
            "top.yml": urls("z"),
            "l/linux/linux": b"url:\n- https://example.org/linux\n",
            "README": b"- https://example.org/readme\n",
            ".github/x.yaml": urls("hidden"),
            "broken.yaml": b"- https://example.org/ok\n- nonsense\n",
        }
    )
    await house.follower.step()
    named = await house.named()
    assert {name: json.loads(row["labels"]) for name, row in named.items()} == {
        "example.org/x": ["hot", "team=a"],
        "example.org/y": ["hot", "team=a"],
        "example.org/z": ["hot", "team=all"],
        "example.org/linux": ["hot", "team=all"],
        "example.org/ok": ["hot", "team=all"],
    }
    holds = {source: member for member, kind, source in await house.orders() if kind == "hold"}
    assert holds[named["example.org/x"]["id"]] == "w2" and set(holds.values()) <= {"w1", "w2"}
    shown = await house.lists.show(SYSTEM, listed.id)
    assert (shown.state, shown.entries, shown.problems) == ("current", 5, 1)
    (problem,) = await house.lists.problems(SYSTEM, listed.id)
    assert (problem.file, problem.line) == ("broken.yaml", 2)
    first = await house.lists.entries(SYSTEM, listed.id, limit=3)
    rest = await house.lists.entries(SYSTEM, listed.id, limit=3, page=first.next_page)
    assert [one.name for one in first.items + rest.items][:2] == ["x", "y"] and len(first.items + rest.items) == 5


async def test_settings_reach_the_source_and_its_holder(house: ListHouse) -> None:
    await house.work_for("w1")
    mine = (await house.sources.add(SYSTEM, "https://example.org/mine")).source
    files: Files = {
        "a.yaml": b"x: {url: https://example.org/x, poll_min: 30}\nm: {url: https://example.org/mine, poll_min: 30}\n",
        "b.yaml": b"x: {url: https://example.org/x, poll_min: 99, force_push: ask, poll_max: never}\n",
    }
    repo, listed = await house.repository(files)
    await house.follower.step()
    x = (await house.named())["example.org/x"]["id"]
    shown = await house.sources.show(SYSTEM, x)
    assert shown.settings == SourceSettings(poll_min=30, force_push="ask")
    assert (await house.sources.show(SYSTEM, mine.id)).settings == SourceSettings()
    (problem,) = await house.lists.problems(SYSTEM, listed.id)
    assert (problem.file, problem.line) == ("b.yaml", 1) and "poll_max" in problem.message
    for _, _, source in await house.orders():
        await house.done("w1", source)
    await house.push(repo, listed, {"a.yaml": b"- https://example.org/x\n"})
    await house.follower.step()
    held = await house.sources.held(x)
    assert held and held.settings == SourceSettings(poll_min=99, force_push="ask")
    assert ("w1", "hold", x) in await house.orders()


async def test_only_what_changed_is_read_again(house: ListHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    repo, listed = await house.repository(
        {"a/DEFAULTS": b"t: 1\n", "a/x.yaml": urls("x"), "b/y.yaml": urls("y"), "z.yaml": urls("z")}
    )
    await house.follower.step()
    read: list[str] = []
    whole = Apply.file

    async def watched(self: Apply, wanted: Any) -> None:
        read.append(wanted.file)
        await whole(self, wanted)

    monkeypatch.setattr(Apply, "file", watched)
    await house.follower.step()
    assert read == []
    await house.push(repo, listed, {"a/DEFAULTS": b"t: 2\n", "z.yaml": None, "b/new.yaml": urls("new")})
    await house.follower.step()
    assert sorted(read) == ["a/x.yaml", "b/new.yaml", "z.yaml"]
    named = await house.named()
    assert set(named) == {"example.org/x", "example.org/y", "example.org/new"}
    assert json.loads(named["example.org/x"]["labels"]) == ["t=2"]


async def test_another_url_keeps_the_mirror_of_a_named_entry(house: ListHouse) -> None:
    await house.work_for("w1")
    repo, listed = await house.repository({"a.yaml": b"x: https://example.org/old\ny: https://example.org/y\n"})
    await house.follower.step()
    before = (await house.named())["example.org/old"]["id"]
    await house.push(repo, listed, {"a.yaml": b"y: https://example.org/y\nx: https://example.org/new\n"})
    await house.follower.step()
    named = await house.named()
    assert set(named) == {"example.org/new", "example.org/y"} and named["example.org/new"]["id"] == before
    # to the URL of another source: nothing can be kept, and what nobody names any more goes
    await house.push(repo, listed, {"a.yaml": b"y: https://example.org/y\nx: https://example.org/y\n"})
    await house.follower.step()
    assert set(await house.named()) == {"example.org/y"}
    assert ("w1", "release", before) in await house.orders()


async def test_an_entry_that_moves_to_another_file_stays(house: ListHouse) -> None:
    names = many(0, 40)
    repo, listed = await house.repository({"a.yaml": urls(*names), "b.yaml": urls("b")})
    await house.follower.step()
    before = {name: row["id"] for name, row in (await house.named()).items()}
    await house.push(repo, listed, {"a.yaml": None, "c/d.yaml": urls(*names)})
    await house.follower.step()
    assert {name: row["id"] for name, row in (await house.named()).items()} == before
    assert (await house.lists.show(SYSTEM, listed.id)).state == "current"


async def test_the_brake(house: ListHouse) -> None:
    names = many(0, 200)
    repo, listed = await house.repository({"a.yaml": urls(*names)})
    await house.follower.step()
    await house.push(repo, listed, {"a.yaml": urls(*names[10:])})
    await house.follower.step()
    assert len(await house.named()) == 190
    await house.push(repo, listed, {"a.yaml": urls(*names[30:], "added")})
    await house.follower.step()
    shown = await house.lists.show(SYSTEM, listed.id)
    assert (shown.state, shown.waiting) == ("waiting", 20)
    named = await house.named()
    assert len(named) == 191 and "example.org/added" in named
    gone = await house.lists.entries(SYSTEM, listed.id, gone=True)
    assert gone.items[0].url == "https://example.org/r0010" and len(gone.items) == 20
    told = await house.topics.unread("tester", FAILURES, 10)
    assert [json.loads(one.body)["kind"] for one in told] == ["list_waits"]
    await house.follower.step()
    assert len(await house.topics.unread("tester", FAILURES, 10)) == 1
    with pytest.raises(Conflict):
        await house.lists.confirm(SYSTEM, listed.id, "another version")
    await house.lists.confirm(SYSTEM, listed.id, shown.version)
    await house.follower.step()
    assert len(await house.named()) == 171
    assert (await house.lists.show(SYSTEM, listed.id)).state == "current"


async def test_what_waits_is_forgotten_when_it_comes_back(house: ListHouse) -> None:
    repo, listed = await house.repository({"a.yaml": urls(*many(0, 50))})
    await house.follower.step()
    before = await house.named()
    await house.push(repo, listed, {"a.yaml": b"[]"})
    await house.follower.step()
    assert (await house.lists.show(SYSTEM, listed.id)).waiting == 50
    await house.push(repo, listed, {"a.yaml": urls(*many(0, 50))})
    await house.follower.step()
    shown = await house.lists.show(SYSTEM, listed.id)
    assert (shown.state, shown.waiting) == ("current", 0)
    assert {row["id"] for row in (await house.named()).values()} == {row["id"] for row in before.values()}


async def test_a_small_list_that_becomes_empty_waits_too(house: ListHouse) -> None:
    repo, listed = await house.repository({"a.yaml": urls("x", "y")})
    await house.follower.step()
    await house.push(repo, listed, {"a.yaml": None, "other.txt": b""})
    await house.follower.step()
    assert (await house.lists.show(SYSTEM, listed.id)).state == "waiting" and len(await house.named()) == 2


async def test_what_a_person_added_no_list_removes(house: ListHouse) -> None:
    mine = (await house.sources.add(SYSTEM, "https://example.org/mine", labels=("own",))).source
    repo, listed = await house.repository(
        {"a.yaml": b"t: [https://example.org/x]\n", "b.yaml": urls("mine", "later", "x")}
    )
    await house.follower.step()
    await house.sources.add(SYSTEM, "https://example.org/later")
    await house.push(repo, listed, {"a.yaml": None, "b.yaml": urls("x")})
    await house.follower.step()
    assert set(await house.named()) == {"example.org/mine", "example.org/later", "example.org/x"}
    assert (await house.sources.show(SYSTEM, mine.id)).labels == ("own",)


async def test_two_lists_name_one_source(house: ListHouse) -> None:
    _, listed = await house.repository({"a.yaml": b"- {url: https://example.org/x, a: true}\n"})
    await house.follower.step()
    other = await house.lists.add(SYSTEM, "https://example.org/lists2")
    apply_other = {"source": other.source}
    rows = await house.db.read("SELECT version FROM entry WHERE source = :id", id=listed.source)

    async def work(tx: Any) -> None:
        await tx.rows("UPDATE source SET default_branch = 'main' WHERE id = :source", **apply_other)
        await tx.rows(
            "INSERT INTO entry (source, name, seq, version) VALUES (:source, 'refs/heads/main', 1, :version)",
            **apply_other,
            version=rows[0]["version"],
        )

    await house.db.write(work)
    await house.follower.step()
    await house.lists.remove(SYSTEM, listed.id)
    await house.follower.step()
    assert "example.org/x" in await house.named()
    with pytest.raises(NotFound):
        await house.lists.show(SYSTEM, listed.id)
    await house.lists.remove(SYSTEM, other.id)
    await house.follower.step()
    assert "example.org/x" not in await house.named()
    left = await house.db.read("SELECT (SELECT count(*) FROM listed) + (SELECT count(*) FROM list) AS n")
    assert left[0]["n"] == 0


async def test_killed_at_any_transaction(house: ListHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends after each single transaction in turn; what follows finishes the work, and nothing is twice."""
    names = many(0, 30)
    repo, listed = await house.repository({f"{n}.yaml": urls(*names[n * 10 : n * 10 + 10]) for n in range(3)})

    class Killed(BaseException):
        pass

    async def run_killed_after(count: int) -> bool:
        whole, left = house.db.write, count

        async def counted(work: Any, *, runtime: bool = False) -> Any:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            return await whole(work, runtime=runtime)

        with monkeypatch.context() as patch:
            patch.setattr(house.db, "write", counted)
            try:
                await house.follower.step()
            except Killed:
                return True
        return False

    for wanted in (names, [*names[:8], *names[12:], "more"]):
        await house.push(repo, listed, {f"{n}.yaml": urls(*wanted[n * 10 : n * 10 + 10]) for n in range(3)})
        await run_killed_after(1)
        while await run_killed_after(2):  # the last step needs two: nothing is left to remove, and the list is current
            pass
        assert set(await house.named()) == {f"example.org/{name}" for name in wanted}
    rows = await house.db.read("SELECT count(*) AS n FROM url")
    assert rows[0]["n"] == 28  # with the list's own


async def test_a_private_list_makes_private_sources(house: ListHouse) -> None:
    listed = await house.lists.add(SYSTEM, "https://example.org/lists", visibility="private")
    repo = Repo.init(house.folder / "list.git")
    await house.push(
        repo, listed, {"a.yaml": b"- https://example.org/x\n- {url: https://example.org/y, visibility: public}\n"}
    )
    await house.follower.step()
    named = await house.named()
    assert named["example.org/x"]["visibility"] == "private" and named["example.org/y"]["visibility"] == "public"
    reader = Caller("reader", frozenset({"read"}))
    assert await house.lists.list(reader) == []
    with pytest.raises(NotFound):
        await house.lists.entries(reader, listed.id)


async def test_a_damaged_mirror_is_told_and_tried_again(house: ListHouse) -> None:
    _, listed = await house.repository({"a.yaml": urls("x")})
    (house.folder / "list.git").rename(house.folder / "away.git")
    await house.follower.step()
    shown = await house.lists.show(SYSTEM, listed.id)
    assert shown.state == "failing" and shown.failure
    (house.folder / "away.git").rename(house.folder / "list.git")
    house.clock.time += 61
    await house.follower.step()
    assert (await house.lists.show(SYSTEM, listed.id)).state == "current" and await house.named()
