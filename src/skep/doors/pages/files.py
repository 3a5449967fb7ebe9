"""Folders and files of a mirror."""

from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from litestar import Litestar, Response, get
from litestar.datastructures import State
from litestar.params import FromPath, QueryParameter

from skep.doors.http.given import Asked, Asker, TheCore
from skep.doors.pages.painter import Painter
from skep.doors.pages.render import page

#: lines of a file on one page
WINDOW = 20_000

Rev = Annotated[str, QueryParameter(max_length=1000)]
LineNumber = Annotated[int, QueryParameter(ge=1, le=1 << 31)]


@get(["/sources/{id:str}/tree", "/sources/{id:str}/tree/{path:path}"])
async def tree_page(request: Asked, core: TheCore, caller: Asker, id: FromPath[str], rev: Rev = "") -> Response[bytes]:
    tree = await core.gather.tree(caller, id, _path(request), rev)
    return page(request, "tree.html", source=tree.source, tree=tree, rev=rev)


@get("/sources/{id:str}/commit/{commit:str}")
async def commit_page(
    request: Asked, core: TheCore, caller: Asker, id: FromPath[str], commit: FromPath[str]
) -> Response[bytes]:
    return page(request, "commit.html", found=await core.gather.commit(caller, id, commit))


@get("/sources/{id:str}/file/{path:path}")
async def file_page(
    *,
    request: Asked,
    core: TheCore,
    caller: Asker,
    state: State,
    id: FromPath[str],
    rev: Rev = "",
    line: LineNumber = 1,
) -> Response[bytes]:
    file = await core.gather.file(caller, id, _path(request), rev)
    lines = None
    if file.text is not None and file.link is None:
        lines = await _painter(state).lines(file.path, file.text.removesuffix("\n"))
    first = max(0, line - 1 - WINDOW // 2) if line > WINDOW else 0
    values: dict[str, Any] = {
        "source": file.source,
        "file": file,
        "rev": rev,
        "lines": lines,
        "first": first,
        "window": WINDOW,
    }
    return page(request, "file.html", **values)


def _path(request: Asked) -> str:
    """From the raw path: file names are bytes, and not all of them are UTF-8."""
    raw: bytes = request.scope["raw_path"].partition(b"?")[0]
    after = [part for part in raw.split(b"/") if part][3:]
    return unquote_to_bytes(b"/".join(after)).decode("utf-8", "surrogateescape").strip("/")


def _painter(state: State) -> Painter:
    if "painter" not in state:
        state["painter"] = Painter()
    painter: Painter = state["painter"]
    return painter


async def close(app: Litestar) -> None:
    if "painter" in app.state:
        await app.state["painter"].close()
