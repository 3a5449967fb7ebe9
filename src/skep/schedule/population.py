"""Sources to try a schedule on: groups that change at a rate of their own."""

from typing import Annotated

import msgspec
from msgspec import Meta


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sources: Annotated[int, Meta(ge=1)]
    commits_per_day: Annotated[float, Meta(ge=0, le=86_400)]


class Population(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    group: Annotated[tuple[Group, ...], Meta(min_length=1)]

    def rates(self) -> list[float]:
        """Commits per day of each source."""
        return [group.commits_per_day for group in self.group for _ in range(group.sources)]


#: share of the sources, commits a day: few are busy, most sleep
_MIX = ((0.01, 20.0), (0.09, 2.0), (0.30, 0.2), (0.60, 0.02))


def mix(sources: int) -> Population:
    groups = [(max(1, round(sources * share)), commits) for share, commits in _MIX]
    return Population(tuple(Group(count, commits) for count, commits in groups))
