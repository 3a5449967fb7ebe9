"""What the fleet and its upstreams have at the end of a run."""

import msgspec

#: name -> object
Refs = dict[str, str]


class StoredMessage(msgspec.Struct, frozen=True):
    partition: int
    offset: int
    producer: str
    n: int
    key: str


class Change(msgspec.Struct, frozen=True):
    """A message of `skep.changes`."""

    offset: int
    id: str
    source: str
    entry: str
    seq: int
    old: str | None
    new: str | None


class MirrorState(msgspec.Struct, frozen=True):
    worker: str
    refs: Refs
    #: what `git fsck` found
    damage: str = ""


class TaskState(msgspec.Struct, frozen=True):
    id: str
    name: str
    state: str
    #: states and attempts, in their order
    moves: tuple[tuple[str, int], ...]


class ContextState(msgspec.Struct, frozen=True):
    id: str
    name: str
    state: str
    tasks: tuple[TaskState, ...]


class Effect(msgspec.Struct, frozen=True):
    """A line that a task wrote: `begin`, `end`, or `overlap` when another attempt was still alive."""

    what: str
    task: str
    attempt: int


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[StoredMessage] = []
    #: messages that the group has not committed yet
    lag: int = 0
    upstream: dict[str, Refs] = {}
    #: repository -> id of its source
    sources: dict[str, str] = {}
    changes: list[Change] = []
    #: source -> ids of its changes, as its own list names them
    listed: dict[str, list[str]] = {}
    #: source -> mirrors that workers have
    mirrors: dict[str, list[MirrorState]] = {}
    #: source -> workers that poll it
    holders: dict[str, list[str]] = {}
    #: server -> source -> refs that a clone from it would have
    served: dict[str, dict[str, Refs]] = {}
    #: server -> word -> sources in which it is found
    found: dict[str, dict[str, list[str]]] = {}
    contexts: dict[str, ContextState] = {}
    #: id of a task or context -> states that `skep.tasks` reports for it
    ended: dict[str, list[str]] = {}
    effects: list[Effect] = []
    #: tuples that are still in the space
    tuples: list[int] = []
