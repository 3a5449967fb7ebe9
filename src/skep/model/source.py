"""A Source is an upstream; its Entries (refs) each stand at a version; an Entry that moved is a Change."""

from typing import Annotated, Literal

import msgspec

from skep.model.caller import Visibility

SourceState = Literal["new", "cloning", "current", "failing", "asking", "gone", "removed"]
#: why an upstream could not be looked at or fetched; each class has its own back-off
FailureClass = Literal[
    "gone",
    "auth",
    "blocked",
    "rate_limited",
    "corrupt",
    "too_big",
    "emptied",
    "rewritten",
    "not_git",
    "network",
    "disk",
    "internal",
]
#: what a mirror does when upstream rewrites history: follow and forget; follow and keep the old tips; wait for a person
ForcePush = Literal["follow", "keep", "ask"]
_Seconds = Annotated[float, msgspec.Meta(gt=0)]
_Points = Annotated[int, msgspec.Meta(ge=-500, le=500)]


class Failure(msgspec.Struct, frozen=True):
    kind: FailureClass
    message: str
    #: seconds the upstream asked us to stay away
    retry_after: float | None = None
    #: name of the credential that was not accepted
    credential: str = ""
    #: stands for what following the upstream would lose; a person may accept just that
    loss: str = ""


class SourceSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a source, or all with a label, differ from the rest; None: not at all."""

    force_push: ForcePush | None = None
    #: patterns with at most one `*`; `^` in front leaves out
    refs: tuple[str, ...] | None = None
    poll_min: _Seconds | None = None
    poll_max: _Seconds | None = None
    #: patterns of branches and tags that are searchable besides the default branch
    branches: tuple[str, ...] | None = None
    #: points that its hits gain, or lose, in the order of a search
    priority: _Points | None = None

    def over(self, other: "SourceSettings") -> "SourceSettings":
        """These, and where they say nothing the others."""
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in SourceSettings.__struct_fields__)
        return SourceSettings(**{name: theirs if own is None else own for name, own, theirs in pairs})


class Source(msgspec.Struct, frozen=True):
    id: str
    #: small integer that stands for the source inside index shards
    number: int
    kind: str
    #: how people and `git clone` call it: `github.com/org/repo`, `local/srv/repo`
    name: str
    url: str
    state: SourceState
    visibility: Visibility = "public"
    labels: tuple[str, ...] = ()
    settings: SourceSettings = SourceSettings()
    epoch: int = 1
    #: without `refs/heads/`; empty while there is none
    default_branch: str = ""
    added_at: float = 0.0
    last_looked: float | None = None
    last_fetched: float | None = None
    last_changed: float | None = None
    next_poll: float | None = None
    failure: Failure | None = None
    failures: int = 0
    #: commit of the default branch that search answers from
    indexed_commit: str | None = None
    indexed_at: float | None = None
    #: what the holder is doing at this moment, if anything
    progress: "Progress | None" = None
    #: the member that polls it, and those that have a copy; only where one source is shown
    holder: str = ""
    replicas: tuple[str, ...] = ()


class Progress(msgspec.Struct, frozen=True):
    stage: Literal["clone", "fetch", "index"]
    done: int
    total: int


class Held(msgspec.Struct, frozen=True):
    """What a worker knows of a source it holds."""

    source: str
    number: int
    kind: str
    url: str
    epoch: int
    visibility: Visibility = "public"
    #: entry -> version, as the coordinator was last told
    told: dict[str, str] = {}
    #: fingerprint of the upstream's last answer that was fully fetched
    seen: str = ""
    #: batches made so far in this epoch
    batches: int = 0
    #: its own and those of its labels
    settings: SourceSettings = SourceSettings()
    #: the loss that a person has accepted last
    accepted: str = ""
    #: bytes as its forge counted them when it was added; 0: not known
    size: int = 0
    #: what earlier holders saw: when it last changed, and how often in how many seconds
    changed_at: float = 0.0
    changes: float = 0.0
    observed: float = 0.0
    #: False: a replica, which follows its holder's mirror and tells nothing
    primary: bool = True


class Move(msgspec.Struct, frozen=True):
    """One entry that moved; None means it did not exist (or does not any more)."""

    entry: str
    old: str | None
    new: str | None


class Change(msgspec.Struct, frozen=True):
    id: str
    source: str
    entry: str
    #: counts the moves of this entry, from 1
    seq: int
    old: str | None
    new: str | None
    batch: str
    first: bool
    at: float
    #: narrower than its source's where not everybody who sees the source may know of the entry
    visibility: Visibility = "public"


def diff(told: dict[str, str], versions: dict[str, str]) -> tuple[Move, ...]:
    """What moved between what was told and what the mirror holds, by name of entry."""
    names = sorted(told.keys() | versions.keys())
    pairs = ((name, told.get(name), versions.get(name)) for name in names)
    return tuple(Move(name, old, new) for name, old, new in pairs if old != new)
