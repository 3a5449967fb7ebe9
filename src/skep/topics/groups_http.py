"""Groups: members share the partitions of a topic, and keep their place in it."""

from typing import Annotated

import msgspec
from litestar import get, post
from litestar.params import FromPath, JSONBody

from skep.interfaces.http.dependencies import Asker, TheCore
from skep.topics.api import Commit, Lag, LagAnswer, Membership, Natural

TAG = "groups"
_PATH = "/topics/{topic:str}/groups/{group:str}"
Member = Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[\x20-\x7e]*\Z")]
Place = Annotated[
    str, msgspec.Meta(max_length=60, description="`beginning`, `end`, `offset:N` or `time:SECONDS` since 1970")
]


class JoinOrder(msgspec.Struct, forbid_unknown_fields=True):
    #: as the first answer named it; empty: a new member
    member: Member = ""
    #: where a group that is new begins
    start: Place = "beginning"


class CommitOrder(msgspec.Struct, forbid_unknown_fields=True):
    member: Member
    commits: Annotated[list[Commit], msgspec.Meta(max_length=1024)]


class LeaveOrder(msgspec.Struct, forbid_unknown_fields=True):
    member: Member


class SeekOrder(msgspec.Struct, forbid_unknown_fields=True):
    to: Place
    #: None: all
    partition: Natural | None = None


@post(_PATH + "/join", summary="Become or stay a member, and learn what to read", status_code=200)
async def join_group(
    core: TheCore, caller: Asker, topic: FromPath[str], group: FromPath[str], data: JSONBody[JoinOrder]
) -> Membership:
    return await core.groups.join(caller, topic, group, member=data.member, start=data.start)


@post(_PATH + "/commit", summary="Store how far a member has read", status_code=204)
async def commit_group(
    core: TheCore, caller: Asker, topic: FromPath[str], group: FromPath[str], data: JSONBody[CommitOrder]
) -> None:
    await core.groups.commit(caller, topic, group, data.member, data.commits)


@post(_PATH + "/leave", summary="Leave a group", status_code=204)
async def leave_group(
    core: TheCore, caller: Asker, topic: FromPath[str], group: FromPath[str], data: JSONBody[LeaveOrder]
) -> None:
    await core.groups.leave(caller, topic, group, data.member)


@post(_PATH + "/seek", summary="Move a group to another place", status_code=200)
async def seek_group(
    core: TheCore, caller: Asker, topic: FromPath[str], group: FromPath[str], data: JSONBody[SeekOrder]
) -> list[Lag]:
    return await core.groups.seek(caller, topic, group, data.to, data.partition)


@get(_PATH + "/lag", summary="How far a group is behind")
async def group_lag(core: TheCore, caller: Asker, topic: FromPath[str], group: FromPath[str]) -> LagAnswer:
    return LagAnswer(await core.groups.lag(caller, topic, group))
