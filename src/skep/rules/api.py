"""A Rule turns changes, or the clock, into contexts: what it waits for (RuleSpec) and how it stands (Rule)."""

from typing import Literal

import msgspec

from skep.tasks.model import ContextSpec


class RuleSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A rule as it is made: of changes (`source` or `labels`), or of the clock (`cron`)."""

    name: str
    #: what is submitted each time it fires
    context: ContextSpec
    #: pattern of the names of sources: `github.com/org/*`, `**` for all
    source: str = ""
    #: labels the source must have, all of them
    labels: tuple[str, ...] = ()
    #: patterns of branches (`release/*`) or full names (`refs/tags/v*`); empty: the default branch
    refs: tuple[str, ...] = ()
    #: patterns of changed paths, of which one is enough; empty: any
    paths: tuple[str, ...] = ()
    #: minute, hour, day, month and day of the week, in UTC
    cron: str = ""
    #: fire for a first clone too
    first: bool = False
    #: a newer context cancels the one that still runs for the same source and ref
    latest: bool = False
    enabled: bool = True


class RuleEdit(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is not given stays."""

    context: ContextSpec | None = None
    source: str | None = None
    labels: tuple[str, ...] | None = None
    refs: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None
    cron: str | None = None
    first: bool | None = None
    latest: bool | None = None
    enabled: bool | None = None


class Fired(msgspec.Struct, frozen=True):
    #: id; the context itself is forgotten some time after it has ended
    context: str
    cause: str
    at: float


class Rule(msgspec.Struct, frozen=True):
    spec: RuleSpec
    #: file: from `skep.toml`, and changed only there
    origin: Literal["api", "file"]
    created_at: float
    #: the newest time it fired
    last: Fired | None = None


class Occasion(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a rule fires for; its context gets these as properties. All empty: the clock."""

    source: str = ""
    #: empty for a private source: whoever may read sees contexts
    source_name: str = ""
    ref: str = ""
    old: str = ""
    new: str = ""
    batch: str = ""
