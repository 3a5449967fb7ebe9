"""What is stored of objects, and what can be asked of it, on each database."""

import hashlib

import pytest
from msgspec.structs import replace

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import NotAllowed
from skep.dataone.decision import Verdict
from skep.dataone.store import Store
from skep.dataone.types import AccessPolicy, AccessRule, Checksum
from skep.topics.service import CHANGES, Topics
from tests.dataone.farm import CN
from tests.dataone.objects import NODE, meta_of
from tests.support.dataone_objects import put_object

DATA = b"<eml/>"
ANYBODY = Caller("anonymous", frozenset({"read"}))


async def content(store: Store, pid: str) -> bytes:
    found = await store.get(pid)
    assert found is not None
    return b"".join([chunk async for chunk in store.content(found)])


async def test_an_object_is_stored_with_its_bytes_history_story_and_tasks(store: Store) -> None:
    assert await put_object(store, meta_of("a", DATA), DATA, NODE) == "new"
    assert await put_object(store, meta_of("a", DATA), DATA, NODE) == "unchanged"
    later = meta_of("a", DATA, archived=True, date_sys_metadata_modified=2_000)
    assert await put_object(store, later, None, NODE) == "update"
    assert await put_object(store, meta_of("a", DATA, rights_holder="x"), None, "urn:node:B") == "replica"
    found = await store.get("a")
    assert found is not None and found.meta.archived and found.meta.rights_holder == "rita"
    assert [one.replica_member_node for one in found.meta.replica] == [NODE, "urn:node:B", CN]
    assert await content(store, "a") == DATA
    assert [one.archived for _, _, one in await store.history("a")] == [None, True]
    verdicts: list[Verdict | str] = [chapter.verdict for chapter in await store.story("a")]
    assert sorted(verdicts) == ["new", "replica", "unchanged", "update"]
    assert [pid for pid, _ in await store.backlog("index", 10)] == ["a"]
    assert [pid for pid, _ in await store.backlog("replicate", 10)] == ["a"]
    await store.worked("index", await store.backlog("index", 10))
    assert await store.backlog("index", 10) == []


async def test_number_and_stamp_rise_with_every_change_also_within_one_moment(store: Store) -> None:
    seen: list[tuple[int | None, int]] = []
    archived = meta_of("a", DATA, archived=True)
    named = meta_of("a", DATA, archived=True, file_name="x")
    for meta, node in ((meta_of("a", DATA), NODE), (archived, NODE), (archived, "urn:node:B"), (named, NODE)):
        await put_object(store, meta, DATA, node)
        (one,) = (await store.listing(None, by="stamp")).object_info
        found = await store.get("a")
        assert found is not None
        seen.append((found.meta.serial_version, one.date_sys_metadata_modified))
    assert [serial for serial, _ in seen] == [1, 2, 3, 4]
    assert sorted({stamp for _, stamp in seen}) == [stamp for _, stamp in seen]


async def test_each_change_of_state_is_told_once_and_in_order(store: Store, topics: Topics) -> None:
    for meta in (meta_of("a", DATA), meta_of("a", DATA), meta_of("a", DATA, archived=True)):
        await put_object(store, meta, None, NODE)
    told = await topics.read(SYSTEM, CHANGES, 0, 10)
    assert [b'"seq":1' in one.body for one in told] == [True, False] and len({one.id for one in told}) == 2


async def test_a_refused_update_changes_nothing(store: Store) -> None:
    await put_object(store, meta_of("a", DATA), DATA, NODE)
    assert await put_object(store, meta_of("a", b"other"), b"other", NODE) == "duplicate"
    assert await put_object(store, meta_of("a", DATA, submitter="eve", archived=True), None, NODE) == "illegal"
    found = await store.get("a")
    assert found is not None and found.meta.submitter == "sam" and not found.meta.archived
    assert await content(store, "a") == DATA


async def test_series_and_versions_from_either_side(store: Store) -> None:
    await put_object(store, meta_of("a", b"1", series_id="s", date_uploaded=1), b"1", NODE)
    await put_object(store, meta_of("b", b"2", series_id="s", obsoletes="a", date_uploaded=2), b"2", NODE)
    await put_object(store, meta_of("c", b"3", obsoletes="b", date_uploaded=3), b"3", NODE)
    newest = await store.get("s")
    assert newest is not None and newest.meta.identifier == "b"
    assert await store.versions("b") == await store.versions("c") == ["a", "b", "c"]
    assert await put_object(store, meta_of("s", b"4"), b"4", NODE) == "illegal", "a series has that name"
    assert await put_object(store, meta_of("d", b"5", series_id="a"), b"5", NODE) == "illegal"
    foreign = meta_of("e", b"6", series_id="s", submitter="eve", rights_holder="eve", authoritative_member_node="urn:x")
    assert await put_object(store, foreign, b"6", "urn:x") == "unauthorised"


async def test_a_series_is_explained_by_its_head(store: Store) -> None:
    links = (("b", {"date_uploaded": 1}), ("a", {"obsoletes": "b", "date_uploaded": 3}), ("old", {"date_uploaded": 0}))
    for pid, more in links:
        await put_object(store, meta_of(pid, DATA, series_id="s", **more), DATA, NODE)
    story = await store.explain(SYSTEM, "s")
    assert (story.series, story.pid, story.members) == ("s", "a", ["old", "b", "a"])
    assert story == replace(await store.explain(SYSTEM, "a"), series="s", members=story.members)
    await put_object(store, meta_of("c", DATA, series_id="s", obsoletes="a", access_policy=None), DATA, NODE)
    assert (await store.explain(SYSTEM, "s")).pid == "c"
    story = await store.explain(ANYBODY, "s")
    assert (story.pid, story.state, story.members, story.chapters) == ("s", "series", ["old", "b", "a"], [])
    await put_object(store, meta_of("d", DATA, series_id="hidden", access_policy=None), DATA, NODE)
    for unseen in ("hidden", "nothing"):
        with pytest.raises(NotAllowed):
            await store.explain(ANYBODY, unseen)


async def test_listing_shows_what_somebody_may_read(store: Store) -> None:
    for n in range(5):
        await put_object(store, meta_of(f"p{n}", b"x", date_sys_metadata_modified=n * 10), None, NODE)
    secret = meta_of("secret", b"x", access_policy=AccessPolicy((AccessRule(("ann",), ("write",)),)))
    await put_object(store, secret, None, NODE)
    for subjects, total in ((["public"], 5), (["public", "ann"], 6), (["rita"], 6), (None, 6)):
        assert (await store.listing(subjects, count=0)).total == total
    page = await store.listing(None, since=10, until=40, start=1, count=1)
    assert ([one.identifier for one in page.object_info], page.total) == (["p2"], 3)
    assert (await store.listing(None, id="p3")).object_info[0].identifier == "p3"
    assert (await store.listing(None, node="urn:other")).total == 0
    await put_object(store, meta_of("p0", b"x", access_policy=None, date_sys_metadata_modified=50), None, NODE)
    assert (await store.listing(["public"], count=0)).total == 4, "it became private"
    await put_object(store, meta_of("p1", b"x", access_policy=None, date_sys_metadata_modified=50), None, NODE)
    await put_object(store, meta_of("secret", b"x", date_sys_metadata_modified=5_000), None, NODE)
    assert (await store.listing(["public"], count=0)).total == 4, "and another public"


async def test_reservations(store: Store) -> None:
    await store.reserve("r", "eve")
    await store.reserve("r", "eve")
    assert await store.reserved_for("r") == "eve"
    assert await put_object(store, meta_of("r", b"x"), b"x", NODE) == "unauthorised"
    assert await put_object(store, meta_of("r", b"x", submitter="eve"), b"x", NODE) == "new"


async def test_what_was_taken_before_it_was_known_is_asked_for_its_checksum(store: Store) -> None:
    """It is the same object by another algorithm, and not refused for that."""
    given = meta_of("p", b"x")
    await put_object(store, given, None, NODE)
    other = replace(given, checksum=Checksum(hashlib.md5(b"x").hexdigest(), "MD5"))
    await put_object(store, other, None, "urn:node:B")
    rows = await store.db.read("SELECT state, tries FROM offer WHERE source = 'put:urn:node:B'")
    assert [(row["state"], row["tries"]) for row in rows] == [("queued", 1)]
    assert [one.verdict for one in await store.story("p")] == ["new", "later"]
