"""Who is asked for copies of an object (pure): as many nodes as its policy wants, the best of those that can."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from skep.dataone.types import Node, ReplicationPolicy, SystemMetadata

#: requests that one node has open
MOST_OPEN = 10
#: a node of which fewer copies than this succeed is asked after all others
_RELIABLE = 0.8
_COUNTED = ("queued", "requested", "completed")


class Load(msgspec.Struct, frozen=True):
    """What a node has to do with our copies already."""

    #: requests that it has not answered
    open: int = 0
    #: of copies that it holds or was asked for
    bytes: int = 0
    #: of late, those that it made and those that it failed to make
    made: int = 0
    failed: int = 0

    @property
    def reliable(self) -> bool:
        return self.made >= _RELIABLE * (self.made + self.failed)

    def asked(self, size: int) -> "Load":
        return msgspec.structs.replace(self, open=self.open + 1, bytes=self.bytes + size)


class Plan(msgspec.Struct, frozen=True):
    #: best first
    ask: list[str]
    #: copies for which nobody can be asked now
    lacking: int = 0
    #: somebody could be, but has enough to do
    busy: bool = False


def wanted(meta: SystemMetadata) -> int:
    """Copies. An archived object keeps those it has, and gets no others."""
    policy = meta.replication_policy
    return policy.number_replicas if policy and policy.replication_allowed and not meta.archived else 0


def may_have(meta: SystemMetadata, urn: str) -> bool:
    """May this node be asked for a copy, as far as the object is concerned?"""
    policy = meta.replication_policy
    return policy is not None and wanted(meta) > 0 and urn not in policy.blocked_member_node


def plan(meta: SystemMetadata, nodes: Sequence[Node], held: Collection[str], loads: Mapping[str, Load]) -> Plan:
    """`held`: who has a copy, was asked for one, or failed not long ago."""
    policy = meta.replication_policy
    if policy is None or not wanted(meta):
        return Plan([])
    # neither the original nor we are counted as copies
    others = {node.identifier for node in nodes} - {meta.authoritative_member_node}
    copies = [r for r in meta.replica if r.replication_status in _COUNTED and r.replica_member_node in others]
    more = max(0, wanted(meta) - len(copies))
    fit = [
        node.identifier
        for node in nodes
        if node.identifier in others - {*held} and _takes(node, meta, policy, loads.get(node.identifier, Load()))
    ]
    order = {urn: n for n, urn in enumerate(policy.preferred_member_node)}

    def rank(urn: str) -> tuple[bool, int, int, str]:
        load = loads.get(urn, Load())
        return not load.reliable, order.get(urn, len(order)), load.open, urn

    free = sorted((urn for urn in fit if loads.get(urn, Load()).open < MOST_OPEN), key=rank)[:more]
    lacking = more - len(free)
    return Plan(free, lacking, lacking > 0 and len(fit) > len(free))


def _takes(node: Node, meta: SystemMetadata, wish: ReplicationPolicy, load: Load) -> bool:
    services = node.services.service if node.services else ()
    if not node.replicate or node.state != "up" or node.identifier in wish.blocked_member_node:
        return False
    if not any(one.name == "MNReplication" and one.available for one in services):
        return False
    policy = node.node_replication_policy
    if policy is None:
        return True
    return (
        (policy.max_object_size is None or meta.size <= policy.max_object_size)
        and (policy.space_allocated is None or load.bytes + meta.size <= policy.space_allocated)
        and (not policy.allowed_node or meta.authoritative_member_node in policy.allowed_node)
        and (not policy.allowed_object_format or meta.format_id in policy.allowed_object_format)
    )
