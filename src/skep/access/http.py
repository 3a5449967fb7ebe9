"""Tokens, and login links."""

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody

from skep.base.answers import NewToken, Page, TokenInfo
from skep.base.caller import Scope
from skep.interfaces.http.dependencies import Asker, Limit, PageToken, TheCore

TAG = "tokens"


class TokenOrder(msgspec.Struct, forbid_unknown_fields=True):
    subject: str
    scopes: list[Scope]
    #: seconds; without it the token is good until it is revoked
    expires_in: float | None = None


class Ticket(msgspec.Struct, frozen=True):
    #: good once, at /login?ticket=…
    ticket: str


@post("/tokens", summary="Make a token; it is shown this once")
async def create_token(core: TheCore, caller: Asker, data: JSONBody[TokenOrder]) -> NewToken:
    return await core.access.create(caller, data.subject, data.scopes, data.expires_in)


@get("/tokens", summary="List tokens")
async def list_tokens(core: TheCore, caller: Asker, page: PageToken = "", limit: Limit = 100) -> Page[TokenInfo]:
    return await core.access.list(caller, page, limit)


@delete("/tokens/{id:str}", summary="Revoke a token")
async def revoke_token(core: TheCore, caller: Asker, id: FromPath[str]) -> None:
    await core.access.revoke(caller, id)


@post("/login-ticket", summary="Make a one-time ticket for a browser login", status_code=200)
async def login_ticket(core: TheCore, caller: Asker) -> Ticket:
    return Ticket(await core.access.login_ticket(caller))
