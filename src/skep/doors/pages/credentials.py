"""Credentials: which there are and whether they work; set, given another secret and removed. No page shows a secret."""

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, URLEncodedBody
from litestar.response import Redirect

from skep.doors.http.given import Asked, Asker, TheCore
from skep.doors.pages.render import page
from skep.errors import NeedsToken, NotAllowed, NotFound, SkepError
from skep.model.credential import CredentialSpec, Use


class CredentialForm(msgspec.Struct):
    name: str = ""
    host: str = ""
    source: str = ""
    use: Use = "fetch"
    user: str = "x-access-token"
    public: str = ""
    token: str = ""


class SecretForm(msgspec.Struct):
    token: str = ""


@get("/credentials")
async def credentials_page(request: Asked, core: TheCore, caller: Asker) -> Response[bytes]:
    return await _list(request, core, caller)


@post("/credentials")
async def set_form(
    request: Asked, core: TheCore, caller: Asker, data: URLEncodedBody[CredentialForm]
) -> Response[bytes] | Redirect:
    user = data.user.strip() or "x-access-token"
    given = (data.name.strip(), data.host.strip().lower(), data.source.strip(), data.use, user, bool(data.public))
    return await _put(request, core, caller, CredentialSpec(*given), data)


@post("/credentials/{name:str}/rotate")
async def rotate_form(
    request: Asked, core: TheCore, caller: Asker, name: FromPath[str], data: URLEncodedBody[SecretForm]
) -> Response[bytes] | Redirect:
    known = [one for one in await core.credentials.list(caller) if one.name == name]
    if not known:
        raise NotFound(f"there is no credential {name!r}")
    one = known[0]
    spec = CredentialSpec(one.name, one.host, one.source, one.use, one.user, one.public)
    return await _put(request, core, caller, spec, CredentialForm(token=data.token))


@post("/credentials/{name:str}/remove")
async def remove_form(core: TheCore, caller: Asker, name: FromPath[str]) -> Redirect:
    await core.credentials.remove(caller, name)
    return Redirect("/credentials", status_code=303)


async def _put(
    request: Asked, core: TheCore, caller: Asker, spec: CredentialSpec, form: CredentialForm
) -> Response[bytes] | Redirect:
    try:
        await core.credentials.put(caller, spec, form.token.strip())
    except (NeedsToken, NotAllowed):
        raise
    except SkepError as error:
        return await _list(request, core, caller, form, error)
    return Redirect("/credentials", status_code=303)


async def _list(
    request: Asked,
    core: TheCore,
    caller: Asker,
    form: CredentialForm | None = None,
    error: SkepError | None = None,
) -> Response[bytes]:
    found = await core.credentials.list(caller)
    status = error.status if error else 200
    return page(request, "credentials.html", status, found=found, form=form or CredentialForm(), error=error)
