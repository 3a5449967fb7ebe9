"""Series and chains (pure). Links are derived from either side: one side may never come, and nobody is to be trusted
that there are no branches and no circles."""

from collections.abc import Collection, Sequence

import msgspec


class Version(msgspec.Struct, frozen=True):
    """What the order of versions follows from."""

    pid: str
    obsoletes: str | None = None
    obsoleted_by: str | None = None
    #: milliseconds
    uploaded: int = 0
    #: its authoritative node, as it says itself, and the node that really said all this
    node: str = ""
    said_by: str = ""
    #: milliseconds: since when it says that it belongs to its series
    since: int = 0

    def speaks_for(self, other: "Version") -> bool:
        """May it say what came before or after the other? Only in the name of the other's own node, by the word of that
        node or of whoever told us of the other: anybody else would hide what it does not like."""
        return self.node == other.node and self.said_by in (other.node, other.said_by)


def _upload(one: Version) -> tuple[int, str]:
    """Of several that say the same of another the last counts, in whatever order they are read."""
    return one.uploaded, one.pid


def members(claims: Collection[Version]) -> list[Version]:
    """Of all that say they belong to one series those that do: what the node that had it first says itself, and what
    came after by its word. Until that node says anything, whoever told of it first stands in for it."""
    if not claims:
        return []
    first = min(claims, key=lambda one: (one.since, one.pid))
    own = [one for one in claims if one.node == first.node]
    said = [one for one in own if one.said_by == first.node] or [one for one in own if one.said_by == first.said_by]
    by_pid = {one.pid: one for one in claims}
    found = {one.pid: one for one in said}
    while said:
        after = [by_pid[one.obsoleted_by] for one in said if one.obsoleted_by in by_pid]
        said = [one for one in after if one.pid not in found]
        found |= {one.pid: one for one in said}
    return list(found.values())


def head(members: Sequence[Version], elsewhere: Collection[str] = ()) -> str | None:
    """The member that a series id stands for. `elsewhere`: which of the objects that members point to are known, and
    are no members."""
    if not members:
        return None
    by_pid = {one.pid: one for one in members}
    obsoleted = {one.obsoletes: one for one in sorted(members, key=_upload) if one.obsoletes}

    def is_end(one: Version) -> bool:
        after = one.obsoleted_by
        if not after or after in elsewhere:
            return True
        return after not in by_pid and after not in obsoleted

    ends = [one for one in members if is_end(one)]
    if len(ends) == 1:
        return ends[0].pid
    last = max(ends or members, key=_upload)
    # an upload date may be wrong: whoever obsoletes it is newer
    passed = {last.pid}
    while ends and (after := obsoleted.get(last.pid)) is not None and after.pid not in passed:
        last = after
        passed.add(last.pid)
    return last.pid


def chain(start: str, links: Sequence[Version]) -> list[str]:
    """The versions around `start` from the oldest to the newest, as far as links lead; a circle ends it. What an object
    says itself counts, and of others what `speaks_for` it."""
    by_pid = {one.pid: one for one in links}
    after: dict[str, str] = {}
    before: dict[str, str] = {}
    for one in sorted(links, key=_upload):
        for other, step in ((one.obsoletes, after), (one.obsoleted_by, before)):
            known = by_pid.get(other or "") or by_pid.get(start)
            if other and (known is None or one.speaks_for(known)):
                step[other] = one.pid
    after |= {one.pid: one.obsoleted_by for one in links if one.obsoleted_by}
    before |= {one.pid: one.obsoletes for one in links if one.obsoletes}
    found = [start]
    for step, place in ((before, 0), (after, -1)):
        while (pid := step.get(found[place])) is not None and pid not in found:
            found.insert(0 if place == 0 else len(found), pid)
    return found


def in_order(members: Sequence[Version], newest: str) -> list[str]:
    """Their identifiers, oldest first: as far as links lead to the newest by these, the others by their dates."""
    by_pid = {one.pid: one for one in members}
    linked = [pid for pid in chain(newest, members) if pid in by_pid]
    others = sorted(by_pid.keys() - {*linked}, key=lambda pid: (by_pid[pid].uploaded, pid))
    return [*others, *linked]
