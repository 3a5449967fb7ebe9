"""Logging in: by the link that `skep up` prints, or with a token. A session is a token in a cookie no script reads."""

from urllib.parse import urlsplit

import msgspec
from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.params import FromQuery, URLEncodedBody
from litestar.response import Redirect

from skep.access.tokens import SESSION_SECONDS
from skep.base.errors import NeedsToken
from skep.config.settings import Settings
from skep.interfaces.http.dependencies import Asked, TheCore, TheSettings
from skep.interfaces.http.guard import cookie_name
from skep.interfaces.web.render import page


class LoginForm(msgspec.Struct):
    token: str = ""
    next: str = "/"


@get("/login")
async def login_page(
    request: Asked, core: TheCore, settings: TheSettings, ticket: FromQuery[str] = "", next: FromQuery[str] = "/"
) -> Response[bytes] | Redirect:
    if not ticket:
        return page(request, "login.html", next=_inside(next), error=None)
    try:
        token = await core.access.redeem(ticket)
    except NeedsToken as error:
        return page(request, "login.html", 401, next="/", error=error)
    return _enter(request, settings, token, "/")


@post("/login")
async def login(
    request: Asked,
    core: TheCore,
    settings: TheSettings,
    data: URLEncodedBody[LoginForm],
) -> Response[bytes] | Redirect:
    token = data.token.strip()
    try:
        if not token:
            raise NeedsToken("paste a token", hint="on the same machine it is in DATA/admin.token")
        # the browser gets a session of its own, not the pasted token
        session = await core.access.redeem(await core.access.login_ticket(await core.access.caller(token)))
    except NeedsToken as error:
        return page(request, "login.html", 401, next=_inside(data.next), error=error)
    return _enter(request, settings, session, _inside(data.next))


@post("/logout")
async def logout(request: Asked, core: TheCore, settings: TheSettings) -> Redirect:
    await core.access.end_session(request.cookies.get(cookie_name(settings), ""))
    answer = Redirect("/", status_code=303)
    answer.delete_cookie(cookie_name(settings))
    return answer


def _enter(request: Asked, settings: Settings, token: str, target: str) -> Redirect:
    public = urlsplit(settings.public_url)
    by_public = public.scheme == "https" and request.headers.get("host", "").lower() == public.netloc.lower()
    secure = by_public or request.scope["scheme"] == "https"
    month = int(SESSION_SECONDS)
    session = Cookie(cookie_name(settings), value=token, max_age=month, httponly=True, samesite="strict", secure=secure)
    return Redirect(target, status_code=303, cookies=[session])


def _inside(target: str) -> str:
    """Only our own pages: `//elsewhere` and `/\\elsewhere` are other servers to a browser."""
    plain = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if plain else "/"
