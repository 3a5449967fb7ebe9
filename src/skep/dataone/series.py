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


def head(members: Sequence[Version], elsewhere: Collection[str] = ()) -> str | None:
    """The member that a series id stands for. `elsewhere`: which of the objects that members point to are known, and
    are no members."""
    if not members:
        return None
    by_pid = {one.pid: one for one in members}
    obsoleted = {one.obsoletes: one for one in members if one.obsoletes}

    def is_end(one: Version) -> bool:
        after = one.obsoleted_by
        if not after or after in elsewhere:
            return True
        return after not in by_pid and after not in obsoleted

    ends = [one for one in members if is_end(one)]
    if len(ends) == 1:
        return ends[0].pid
    last = max(ends or members, key=lambda one: (one.uploaded, one.pid))
    # an upload date may be wrong: whoever obsoletes it is newer
    passed = {last.pid}
    while ends and (after := obsoleted.get(last.pid)) is not None and after.pid not in passed:
        last = after
        passed.add(last.pid)
    return last.pid


def chain(start: str, links: Sequence[Version]) -> list[str]:
    """The versions around `start` from the oldest to the newest, as far as links lead; a circle ends it."""
    after = {one.obsoletes: one.pid for one in links if one.obsoletes}
    after |= {one.pid: one.obsoleted_by for one in links if one.obsoleted_by}
    before = {one.obsoleted_by: one.pid for one in links if one.obsoleted_by}
    before |= {one.pid: one.obsoletes for one in links if one.obsoletes}
    found = [start]
    for step, place in ((before, 0), (after, -1)):
        while (one := step.get(found[place])) is not None and one not in found:
            found.insert(0 if place == 0 else len(found), one)
    return found
