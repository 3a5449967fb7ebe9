"""What the API answers with, beside the nouns themselves: the doors encode it, the client decodes it."""

import re
from base64 import b64decode
from typing import Generic, Literal, TypeVar

import msgspec

from skep.analysis.model import Report, ReportPoint
from skep.base.caller import Scope
from skep.base.errors import BadInput
from skep.base.log_lines import LogLine
from skep.benchmarks.api import Commit
from skep.fleet.api import Offer
from skep.sources.model import Source
from skep.tasks.model import Context, Stream, Task, TaskState

T = TypeVar("T")
_COUNT = re.compile("[0-9]{0,9}")


class Page(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]
    #: give it back as `page` for what follows; empty at the end
    next_page: str = ""


def shown_before(page: str) -> int:
    """How many the pages before this one had, where `next_page` is just their number."""
    if not _COUNT.fullmatch(page):
        raise BadInput(f"{page[:40]!r} is not a page token of this list", hint="use `next_page` of the answer before")
    return int(page or 0)


class Added(msgspec.Struct, frozen=True):
    source: Source
    #: False when the URL was known already
    created: bool


class Waited(msgspec.Struct, frozen=True):
    source: Source
    #: searchable at its newest commit (or the one that was asked for), or failing; False: the time ran out
    settled: bool


class Fetching(msgspec.Struct, frozen=True):
    """A look was ordered; one later than `asked_at` is the answer to it."""

    source: Source
    asked_at: float
    #: as in Waited; False as well when nobody waited
    settled: bool = False


class BulkItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one URL of many."""

    url: str
    status: Literal["added", "known", "updated", "refused"]
    #: of the source; empty when it was refused
    id: str = ""
    reason: str = ""


class BulkAnswer(msgspec.Struct, frozen=True):
    #: in the order the URLs were given
    items: list[BulkItem]


class ReportAnswer(msgspec.Struct, frozen=True):
    source: str
    name: str
    #: when it was made
    at: float
    report: Report
    #: of earlier commits and this one, the oldest first
    history: list[ReportPoint]


class CommitView(msgspec.Struct, frozen=True):
    source: Source
    commit: Commit
    #: what it changed; None when that is too much to show
    patch: str | None


class TreeItem(msgspec.Struct, frozen=True):
    name: str
    path: str
    #: "file", "folder", "link" or "submodule"
    kind: str
    size: int | None = None


class Tree(msgspec.Struct, frozen=True):
    source: Source
    #: commit the tree was read from
    commit: str
    path: str
    items: list[TreeItem]


class FileView(msgspec.Struct, frozen=True):
    source: Source
    commit: str
    path: str
    size: int
    #: None when it is binary or too large to show
    text: str | None
    #: where a symbolic link points to
    link: str | None = None


class MemberStatus(msgspec.Struct, frozen=True):
    id: str
    role: str
    #: alive, grace or gone
    state: str
    status: str
    last_alive: float
    #: how people call it
    name: str = ""


class ServerStatus(msgspec.Struct, frozen=True):
    """A serving process: a coordinator, an aggregator, or both."""

    id: str
    name: str
    roles: list[str]
    state: str
    url: str
    link: str
    #: of the sources that it gathers; none: all
    labels: list[str]
    #: of which it has a copy, or the index
    sources: int
    #: of which something is still to be brought
    due: int
    last_alive: float


class WorkerView(msgspec.Struct, frozen=True):
    member: MemberStatus
    offer: Offer
    #: a bounded number of tasks that it has now
    running: list[Task]
    #: how many sources it holds
    holds: int = 0
    #: what it holds goes to others
    draining: bool = False
    #: of how many sources it has, or makes, a copy
    replicas: int = 0
    #: how often it went down within the last hour
    downs: int = 0


class WorkerMatch(msgspec.Struct, frozen=True):
    worker: str
    matches: bool
    #: what of the selector is not true of it
    reason: str = ""


class Submitted(msgspec.Struct, frozen=True):
    """A task that was submitted alone: it has a context of its own."""

    context: Context
    #: its id
    task: str


class TaskIds(msgspec.Struct, frozen=True):
    #: in the order the tasks were given
    tasks: list[str]


class OutputChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of what a task wrote: text, or base64 where it is no UTF-8 by itself."""

    attempt: int
    n: int
    stream: Stream
    at: float
    text: str = ""
    base64: str = ""

    @property
    def body(self) -> bytes:
        return b64decode(self.base64) if self.base64 else self.text.encode()


class Output(msgspec.Struct, frozen=True):
    chunks: list[OutputChunk]
    #: give it back as `after` for what follows
    after: int
    #: of the task, when it was read: an ended task writes no more
    state: TaskState


class ProcessStatus(msgspec.Struct, frozen=True):
    """What a process says of itself."""

    id: str
    text: str
    at: float


class LogAnswer(msgspec.Struct, frozen=True):
    lines: list[LogLine]


class TaskLoad(msgspec.Struct, frozen=True):
    """What there is to do."""

    #: tasks that wait for a worker, and that have one
    ready: int = 0
    placed: int = 0
    #: tasks of contexts that ended within the last minute
    ended: int = 0


class Status(msgspec.Struct, frozen=True):
    version: str
    started_at: float
    #: sources by state
    sources: dict[str, int]
    members: list[MemberStatus]
    shards: int
    documents: int
    indexed_bytes: int
    orders_pending: int
    processes: list[ProcessStatus] = []
    servers: list[ServerStatus] = []
    #: copies of sources that workers are making
    moving: int = 0
    #: current sources that should have been looked at a minute ago, and when the stalest of all was
    late: int = 0
    stalest: float | None = None
    tasks: TaskLoad = TaskLoad()
    #: worker -> what keeps tasks apart from it, such as landlock+namespaces; none: nothing does
    isolation: dict[str, str] = {}


class TokenInfo(msgspec.Struct, frozen=True):
    #: the first characters of its hash; names it in lists and in `revoke`
    id: str
    subject: str
    scopes: list[Scope]
    created_at: float
    expires_at: float | None = None


class Audited(msgspec.Struct, frozen=True):
    """Something that was changed."""

    at: float
    caller: str
    #: such as `source.move`
    verb: str
    what: str


class NewToken(msgspec.Struct, frozen=True):
    token: str
    info: TokenInfo


class MemberToken(msgspec.Struct, frozen=True):
    """What a worker or manager joins with; known by the beginning of its hash."""

    id: str
    name: str
    roles: list[str]
    #: many members may use it
    shared: bool
    #: ids of those that do, without the role
    members: list[str]
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None


class NewMemberToken(msgspec.Struct, frozen=True):
    token: str
    info: MemberToken
    #: one line that says where, with which token and whom to trust; empty: this server takes no members from elsewhere
    join: str = ""


class ErrorBody(msgspec.Struct, frozen=True):
    code: str
    message: str
    hint: str = ""
    column: int | None = None


class ErrorAnswer(msgspec.Struct, frozen=True):
    error: ErrorBody
