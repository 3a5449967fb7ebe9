"""The activity diagram of use case 06 (MN Synchronize), branch by branch, with a node that registered here."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from skep.base.caller import SYSTEM
from skep.dataone.testing import MemberNode
from skep.storage.database import Database
from skep.testing.documents import ORE, resource_map
from tests.dataone.farm import CN, Farm
from tests.dataone.objects import EML, NODE, meta_of
from tests.support.dataone_objects import put_object

OURS = b"<eml>ours</eml>"
MAP = resource_map("p", {"m": ["d"]})


@pytest.fixture
async def database(sqlite: Database) -> AsyncIterator[Database]:
    """The rows are the same on each; what breaks is tried on both elsewhere."""
    yield sqlite


class Offer(msgspec.Struct, frozen=True):
    #: what CNRead.getSystemMetadata finds; None: it fails
    known: bytes | None
    body: bytes
    format: str = EML


class Outcome(msgspec.Struct, frozen=True):
    verdict: str
    #: bytes were fetched from the Member Node, and these are on the CN then
    fetched: bool
    kept: bytes | None
    #: replica info
    holders: frozenset[str]
    #: watchers that are notified: index, replication
    notified: bool = True
    #: the Member Node is notified
    error: str = ""


TEST = "urn:node:Test"
BOTH = frozenset({TEST, CN})
BRANCHES = {
    "known, duplicate object: duplicate content": (
        Offer(OURS, OURS),
        Outcome("replica", False, OURS, frozenset({NODE, CN, TEST})),
    ),
    "known, no duplicate object: duplicate identifier": (
        Offer(OURS, b"<eml>theirs</eml>"),
        Outcome("duplicate", False, OURS, frozenset({NODE, CN}), notified=False, error="SynchronizationFailed"),
    ),
    "new content, science metadata": (Offer(None, b"<eml/>"), Outcome("new", True, b"<eml/>", BOTH)),
    "new content, resource map": (Offer(None, MAP, ORE), Outcome("new", True, MAP, BOTH)),
    "new content, neither": (Offer(None, b"1,2", "text/csv"), Outcome("new", False, None, frozenset({TEST}))),
}


@pytest.mark.parametrize("branch", BRANCHES)
async def test_branch(farm: Farm, node: MemberNode, branch: str) -> None:
    offer, outcome = BRANCHES[branch]
    await farm.nodes.register(SYSTEM, node.document())
    held = await farm.sources.held((await farm.nodes.approve(SYSTEM, node.id)).source or "")
    assert held is not None
    if offer.known is not None:
        await put_object(farm.store, meta_of("p", offer.known), offer.known, NODE)
        for work in ("index", "replicate"):
            await farm.store.worked(work, await farm.store.backlog(work, 10))
    node.put("p", offer.body, offer.format)
    for _ in range(2):  # what the node is told goes with the next visit
        assert await farm.visit(held) is None
    one = await farm.store.get("p")
    assert one is not None
    waiting = {work: [pid for pid, _ in await farm.store.backlog(work, 10)] for work in ("index", "replicate")}
    assert waiting in ({"index": [], "replicate": []}, {"index": ["p"], "replicate": ["p"]})
    assert outcome == Outcome(
        (await farm.verdicts("p"))[-1],
        bool(node.asked("/object/p")),
        await farm.content("p"),
        frozenset(replica.replica_member_node for replica in one.meta.replica),
        bool(waiting["index"]),
        "".join(error.name for error in node.errors),
    )
