"""A list names many sources: files kept in git, what an organisation of a forge holds, or a host's manifest."""

from typing import Any, Literal

import msgspec

from skep.model.caller import Visibility

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
