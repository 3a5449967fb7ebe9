"""Packages: push, list, show, download, remove, and run one of their templates."""

from typing import Annotated

from litestar import delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.response import Stream

from skep.base.answers import Page
from skep.interfaces.http.dependencies import Asked, Asker, Limit, PageToken, TheCore
from skep.packages.api import FromTemplate, Package
from skep.tasks.model import Context

TAG = "packages"
_ONE = "/packages/{group:str}/{name:str}/{version:str}"

Prefix = Annotated[str, QueryParameter(max_length=300, description="only those that begin so: GROUP, or GROUP/NAME/")]
Sha256 = Annotated[str, QueryParameter(max_length=64, description="of the archive, if it is to be checked")]


@post(
    "/packages",
    summary="Push a package: the body is its archive, a zip, tar or tar.gz with skep-package.toml at its top",
    request_max_body_size=None,
)
async def push_package(request: Asked, core: TheCore, caller: Asker, sha256: Sha256 = "") -> Package:
    return await core.packages.push(caller, request.stream(), sha256)


@get("/packages", summary="List packages by name")
async def list_packages(
    core: TheCore, caller: Asker, prefix: Prefix = "", page: PageToken = "", limit: Limit = 100
) -> Page[Package]:
    return await core.packages.list(caller, prefix=prefix, page=page, limit=limit)


@get(_ONE, summary="Show a package")
async def show_package(
    core: TheCore, caller: Asker, group: FromPath[str], name: FromPath[str], version: FromPath[str]
) -> Package:
    return await core.packages.show(caller, f"{group}/{name}/{version}")


@get(_ONE + "/archive", summary="Download a package")
async def download_package(
    core: TheCore, caller: Asker, group: FromPath[str], name: FromPath[str], version: FromPath[str]
) -> Stream:
    package, content = await core.packages.content(caller, f"{group}/{name}/{version}")
    headers = {
        "content-length": str(package.size),
        "content-disposition": f'attachment; filename="{name}-{version}"',
        "etag": f'"{package.blob}"',
    }
    return Stream(content, media_type="application/octet-stream", headers=headers)


@delete(_ONE, summary="Remove a package; tasks that run have their copy")
async def remove_package(
    core: TheCore, caller: Asker, group: FromPath[str], name: FromPath[str], version: FromPath[str]
) -> None:
    await core.packages.remove(caller, f"{group}/{name}/{version}")


@post(_ONE + "/run", summary="Submit what a template of a package describes")
async def run_template(
    core: TheCore,
    caller: Asker,
    group: FromPath[str],
    name: FromPath[str],
    version: FromPath[str],
    data: JSONBody[FromTemplate],
) -> Context:
    spec = await core.packages.context(caller, f"{group}/{name}/{version}", data.template, data.properties)
    return await core.contexts.submit(caller, spec)
