"""Adding, finding, changing and removing sources, as different callers see it."""

import pytest

from skep.access.audit import Audit
from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadInput, BadUrl, Conflict, NeedsToken, NotAllowed, NotFound
from skep.fleet import assignments
from tests.rooms.house import WORKER_TOKEN, House

READER = Caller("reader", frozenset({"read"}))
WRITER = Caller("writer", frozenset({"read", "write"}))
STRANGER = Caller("anonymous", frozenset(), known=False)


async def test_adding_twice_is_one_source(house: House) -> None:
    first = await house.sources.add(WRITER, "https://Example.org/Team/Repo.git")
    again = await house.sources.add(WRITER, "https://example.org:443/Team/Repo/")
    assert (first.created, again.created) == (True, False)
    assert first.source.id == again.source.id
    assert first.source.name == "example.org/Team/Repo"


async def test_a_source_is_found_by_id_name_and_any_spelling(house: House) -> None:
    source = (await house.sources.add(WRITER, "https://example.org/a/b")).source
    for ref in (source.id, "example.org/a/b", "https://example.org/a/b.git", "HTTPS://EXAMPLE.ORG/a/b/"):
        assert (await house.sources.show(READER, ref)).id == source.id
    with pytest.raises(NotFound):
        await house.sources.show(READER, "example.org/a/c")


async def test_changing_needs_the_scope(house: House) -> None:
    with pytest.raises(NotAllowed):
        await house.sources.add(READER, "https://example.org/a/b")
    with pytest.raises(NeedsToken):
        await house.sources.add(STRANGER, "https://example.org/a/b")
    assert (await house.sources.list(READER)).items == []


NO_URLS: list[str] = [
    "no url",
    "ext::sh -c touch% /x",
    "--upload-pack=touch x",
    "https://u:p@example.org/x",
    "ftp://example.org/x",
    "",
]


async def test_what_is_no_url_is_refused_and_nothing_is_stored(house: House, subtests: pytest.Subtests) -> None:
    for url in NO_URLS:
        with subtests.test(ascii(url)[:200]):
            with pytest.raises(BadUrl):
                await house.sources.add(SYSTEM, url)
            assert (await house.sources.list(SYSTEM)).items == []


@pytest.mark.parametrize("url", ["http://169.254.169.254/x", "http://127.1/x", "http://2130706433/x", "http://[::1]/x"])
async def test_forbidden_addresses_are_refused_when_added(house: House, url: str) -> None:
    with pytest.raises(NotAllowed):
        await house.sources.add(SYSTEM, url)


async def test_local_folders_are_for_admins(house: House) -> None:
    with pytest.raises(NotAllowed):
        await house.sources.add(WRITER, "/srv/repo")
    assert (await house.sources.add(SYSTEM, "/srv/repo")).source.name == "local/srv/repo"


async def test_private_sources_are_invisible_without_the_scope(house: House) -> None:
    source = (await house.sources.add(SYSTEM, "https://example.org/secret", visibility="private")).source
    assert (await house.sources.list(READER)).items == []
    with pytest.raises(NotFound):
        await house.sources.show(READER, source.id)
    with pytest.raises(Conflict):
        await house.sources.add(WRITER, "https://example.org/secret")
    member = Caller("member", frozenset({"read", "private"}))
    assert (await house.sources.show(member, source.id)).id == source.id


async def test_pages_cover_every_source_once(house: House) -> None:
    for n in range(7):
        await house.sources.add(WRITER, f"https://example.org/{n}")
        house.clock.time += 1
    seen: list[str] = []
    page = await house.sources.list(READER, limit=3)
    seen += [source.name for source in page.items]
    while page.next_page:
        page = await house.sources.list(READER, limit=3, page=page.next_page)
        seen += [source.name for source in page.items]
    assert seen == [f"example.org/{n}" for n in range(7)]


async def test_removed_and_added_again_is_another_source(house: House) -> None:
    old = (await house.sources.add(WRITER, "https://example.org/a")).source
    await house.sources.remove(WRITER, old.id)
    assert (await house.sources.list(READER)).items == []
    new = (await house.sources.add(WRITER, "https://example.org/a")).source
    assert new.id != old.id
    assert new.number != old.number


async def test_a_new_url_keeps_the_source_and_cannot_take_anothers(house: House) -> None:
    source = (await house.sources.add(WRITER, "https://example.org/old")).source
    other = (await house.sources.add(WRITER, "https://example.org/other")).source
    moved = await house.sources.update(WRITER, source.id, url="https://example.org/new", labels=["x"])
    assert (moved.id, moved.name, moved.labels) == (source.id, "example.org/new", ("x",))
    for before in ("https://example.org/old.git", "example.org/old"):
        assert (await house.sources.show(READER, before)).id == source.id
    heir = await house.sources.add(WRITER, "https://example.org/old")
    assert heir.created
    assert (await house.sources.show(READER, "example.org/old")).id == heir.source.id
    with pytest.raises(Conflict):
        await house.sources.update(WRITER, source.id, url=other.url)
    with pytest.raises(BadInput):
        await house.sources.update(WRITER, source.id, labels=["a\nb"])


async def test_orders_wait_for_a_worker_and_are_confirmed_once(house: House) -> None:
    source = (await house.sources.add(WRITER, "https://example.org/a")).source
    with pytest.raises(NeedsToken):
        await house.fleet.join("wrk_x", "wrong", 1, "worker")
    await house.fleet.join("wrk_1", WORKER_TOKEN, 1, "worker")
    (hold,) = await assignments.pending(house.db, "wrk_1", 10)
    assert (hold.kind, hold.source) == ("hold", source.id)
    await house.sources.fetch(WRITER, source.id)
    await house.sources.fetch(WRITER, source.id)
    kinds = [order.kind for order in await assignments.pending(house.db, "wrk_1", 10)]
    assert kinds == ["hold", "fetch"]
    assert [order.n for order in await assignments.confirm(house.db, "wrk_1", [hold.n, 999], 1.0)] == [hold.n]
    await house.sources.remove(WRITER, source.id)
    assert [order.kind for order in await assignments.pending(house.db, "wrk_1", 10)] == ["release"]


async def test_a_manager_is_given_no_sources(house: House) -> None:
    await house.sources.add(WRITER, "https://example.org/a")
    await house.fleet.join("man_1", WORKER_TOKEN, 1, "manager")
    await house.sources.add(WRITER, "https://example.org/b")
    assert not await assignments.pending(house.db, "man_1", 10)
    await house.fleet.join("wrk_1", WORKER_TOKEN, 1, "worker")
    assert len(await assignments.pending(house.db, "wrk_1", 10)) == 2


async def test_a_fetch_asked_again_outlives_the_confirmation_of_the_first(house: House) -> None:
    await house.fleet.join("wrk_1", WORKER_TOKEN, 1, "worker")
    source = (await house.sources.add(WRITER, "https://example.org/a")).source
    await house.sources.fetch(WRITER, source.id)
    first = (await assignments.pending(house.db, "wrk_1", 10))[-1]
    await house.sources.fetch(WRITER, source.id)
    await assignments.confirm(house.db, "wrk_1", [first.n], 1.0)
    assert [order.kind for order in await assignments.pending(house.db, "wrk_1", 10)] == ["hold", "fetch"]


async def test_orders_and_changes_are_in_the_audit_for_admins(house: House) -> None:
    await house.fleet.join("wrk_1", WORKER_TOKEN, 1, "worker")
    sources = [(await house.sources.add(WRITER, f"https://example.org/{n}")).source.id for n in range(25)]
    numbers = [order.n for order in await assignments.pending(house.db, "wrk_1", 100)]
    await assignments.confirm(house.db, "wrk_1", numbers, house.clock.now())
    audit = Audit(house.db, house.clock)
    ordered = (await audit.list(SYSTEM, about="order.hold")).items
    assert sorted(word for one in ordered for word in one.what.split()[1:]) == sorted(sources)
    assert len(ordered) == 2
    first = await audit.list(SYSTEM, about="source.add", limit=20)
    rest = await audit.list(SYSTEM, about="source.add", limit=20, page=first.next_page)
    assert len({one.what for one in [*first.items, *rest.items]}) == 25 and not rest.next_page
    assert {one.verb for one in (await audit.list(SYSTEM, about=sources[3])).items} == {"order.hold"}
    with pytest.raises(NotAllowed):
        await audit.list(WRITER)
    for page in ("x", "-1", "1.5", "\u0661", "9" * 5_000):
        with pytest.raises(BadInput, match="page token"):
            await audit.list(SYSTEM, page=page)
        with pytest.raises(BadInput, match="page token"):
            await house.sources.changes(SYSTEM, sources[0], page=page)
