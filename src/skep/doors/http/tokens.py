"""Tokens, login links, and who changed what."""

from typing import Annotated

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from skep.doors.http.given import Asker, Limit, PageToken, TheCore
from skep.model.answers import Audited, NewToken, Page, TokenInfo
from skep.model.caller import Scope

_TAGS = ["tokens"]
About = Annotated[str, QueryParameter(description="a verb, a caller, or part of what was changed", max_length=200)]


class TokenOrder(msgspec.Struct, forbid_unknown_fields=True):
    subject: str
    scopes: list[Scope]
    #: seconds; without it the token is good until it is revoked
    expires_in: float | None = None


class Ticket(msgspec.Struct, frozen=True):
    #: good once, at /login?ticket=…
    ticket: str


@post("/tokens", tags=_TAGS, summary="Make a token; it is shown this once")
async def create_token(core: TheCore, caller: Asker, data: JSONBody[TokenOrder]) -> NewToken:
    return await core.access.create(caller, data.subject, data.scopes, data.expires_in)


@get("/tokens", tags=_TAGS, summary="List tokens")
async def list_tokens(core: TheCore, caller: Asker, page: PageToken = "", limit: Limit = 100) -> Page[TokenInfo]:
    return await core.access.list(caller, page, limit)


@delete("/tokens/{id:str}", tags=_TAGS, summary="Revoke a token")
async def revoke_token(core: TheCore, caller: Asker, id: FromPath[str]) -> None:
    await core.access.revoke(caller, id)


@post("/login-ticket", tags=_TAGS, summary="Make a one-time ticket for a browser login", status_code=200)
async def login_ticket(core: TheCore, caller: Asker) -> Ticket:
    return Ticket(await core.access.login_ticket(caller))


@get("/audit", tags=["audit"], summary="Who changed what, the newest first")
async def list_audit(
    core: TheCore, caller: Asker, about: About = "", page: PageToken = "", limit: Limit = 100
) -> Page[Audited]:
    return await core.audit.list(caller, about=about, page=page, limit=limit)


HANDLERS = [create_token, list_tokens, revoke_token, login_ticket, list_audit]
