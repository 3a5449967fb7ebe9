"""A Source is an upstream; its Entries (refs) each stand at a version; an Entry that moved is a Change."""

from base64 import b64encode
from typing import Annotated, Any, Literal

import msgspec

from skep.base.caller import Visibility

# A Credential is a secret for a host: shown to it by `fetch` or, when it is asked for its repositories, as `api`; or
# shown by it to prove a `hook`.

Use = Literal["fetch", "api", "hook"]


class CredentialSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything but the secret; as `[[credential]]` in skep.toml, where one of the last three leads to it."""

    name: str
    #: HOST or HOST:PORT, as in the URLs of its sources; the secret is never shown to another
    host: str
    #: id, name or URL: only for this source
    source: str = ""
    use: Use = "fetch"
    user: str = "x-access-token"
    #: used for public sources too: then whoever may add sources may read with it
    public: bool = False
    token_file: str = ""
    token_env: str = ""
    command: tuple[str, ...] = ()


class CredentialInfo(msgspec.Struct, frozen=True):
    name: str
    host: str
    source: str
    use: Use
    user: str
    public: bool
    #: set by the API and kept in the data folder; False: it stands in skep.toml
    stored: bool
    #: where the secret is, unless it is stored
    origin: str
    updated_at: float | None
    #: sources that were refused with it
    refused: int
    #: why there is no secret at this moment
    problem: str = ""


class Key(msgspec.Struct, frozen=True):
    """A credential with its secret, as a worker holds it: in memory only."""

    name: str
    host: str
    #: id; empty: every source of the host
    source: str
    user: str
    token: str
    public: bool

    @property
    def certificate(self) -> str:
        """A certificate and its key in PEM, where the secret is these."""
        return self.token if self.token.startswith("-----BEGIN") else ""

    @property
    def header(self) -> str:
        return "Authorization: Basic " + b64encode(f"{self.user}:{self.token}".encode()).decode()

    def __repr__(self) -> str:
        return f"Key({self.name!r}, {self.host!r}, {self.source!r})"


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


# What a worker and its coordinator say about a copy of a mirror.


class CopyWanted(msgspec.Struct, frozen=True, tag=True):
    """From where can a source be copied? Its holder may ask, and who is to have a replica."""

    source: str
    #: False: only what the source is
    open: bool = True


class CopyFrom(msgspec.Struct, frozen=True, tag=True):
    held: Held
    #: where whoever has the source can be met; no ticket: nobody can, ask the upstream
    address: str = ""
    ticket: str = ""


class Copied(msgspec.Struct, frozen=True, tag=True):
    """The replica is complete: the worker could hold the source from now on."""

    source: str


CopyRequest = CopyWanted | Copied


# A list names many sources: files kept in git, what an organisation of a forge holds, or a host's manifest.

ListKind = Literal["git", "github", "gitlab", "gitee", "gitea", "manifest"]
#: `waiting`: it would remove so much that a person has to confirm it
ListState = Literal["new", "current", "waiting", "failing", "removed"]


class SourceList(msgspec.Struct, frozen=True):
    id: str
    kind: ListKind
    #: of the repository it is kept in, `github:org`, or `manifest:URL`
    url: str
    state: ListState
    #: the source that mirrors its repository; None for a list of a forge
    source: str | None = None
    #: those of a forge count too
    forks: bool = True
    archived: bool = True
    #: of sources that it adds, unless their entries say otherwise
    visibility: Visibility = "public"
    #: what was read last: a commit, or a fingerprint of what a forge or manifest names
    version: str = ""
    entries: int = 0
    problems: int = 0
    #: sources that it would remove, once confirmed
    waiting: int = 0
    failure: str = ""
    added_at: float = 0.0
    read_at: float | None = None


class ListedSource(msgspec.Struct, frozen=True):
    """An entry of a list."""

    file: str
    line: int
    name: str
    url: str
    source: str
    labels: tuple[str, ...] = ()
    settings: dict[str, Any] = {}
    workers: tuple[str, ...] = ()
    #: no longer in the list; its source goes when no other entry names it
    gone: bool = False


class ListProblem(msgspec.Struct, frozen=True):
    file: str
    line: int
    message: str
