"""What is asked of a holder of copies at the same moment, and again."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from skep.base.caller import Caller
from skep.base.errors import NotAllowed, TooLarge
from skep.dataone.client import NodeClient
from skep.dataone.hosted_replicas import Copies
from skep.dataone.store import Store
from skep.dataone.types import AccessPolicy, AccessRule, Node, NodeList
from tests.dataone.objects import PUBLIC, meta_of

CN, ANYBODY = Caller("CN=cn", frozenset({"read"})), Caller("anonymous", frozenset({"read"}), known=False)
NODES = NodeList(
    (
        Node(identifier="urn:node:cn", name="cn", base_url="https://cn.example/cn", subject=("CN=cn",), type="cn"),
        Node(identifier="urn:node:A", name="A", base_url="https://a.example/mn"),
    )
)


class Listing:
    async def nodes(self) -> NodeList:
        return NODES


@pytest.fixture
def copies(store: Store) -> Copies:
    async def client(base: str) -> Listing:
        return Listing()

    given: Callable[[str], Awaitable[NodeClient]] = client  # type: ignore[assignment]  # it is asked for nodes only
    return Copies(store, given, cn="https://cn.example/cn", urn="urn:node:H", base="https://h.example/mn", room=1_000)


async def test_no_more_is_taken_than_there_is_room_for(copies: Copies) -> None:
    metas = [meta_of(f"p{n}", b"x" * 400) for n in range(8)]
    await copies.member("urn:node:A")
    found = await asyncio.gather(*(copies.request(CN, one, "urn:node:A") for one in metas), return_exceptions=True)
    assert [type(one) for one in found if one is not None] == [TooLarge] * 6


@pytest.mark.parametrize("state", ["wanted", "held"])
async def test_what_is_asked_for_again_is_hidden_if_it_is_private_by_now(copies: Copies, state: str) -> None:
    """Nobody may have been able to tell us that it changed."""
    public = meta_of("p", b"x", access_policy=PUBLIC)
    private = meta_of(
        "p", b"x", access_policy=AccessPolicy((AccessRule(("bob",), ("read",)),)), date_sys_metadata_modified=2_000
    )
    db = copies.store.db
    await copies.request(CN, public, "urn:node:A")
    await db.write(lambda tx: tx.rows("UPDATE dataone_copy SET state = :state, due = NULL", state=state))
    await copies.request(CN, private, "urn:node:A")
    await copies.request(CN, public, "urn:node:A")  # which was on its way for longer
    await db.write(lambda tx: tx.rows("UPDATE dataone_copy SET state = 'held'"))
    with pytest.raises(NotAllowed):
        await copies.get(ANYBODY, "p")
    assert (await copies.listing(ANYBODY)).total == 0
