"""Our own few static files, read once. Their URL changes with their content, so that browsers may keep them."""

import hashlib
from functools import cache
from pathlib import Path

import msgspec
from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

_FOLDER = Path(__file__).parent / "static"
_MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Asset(msgspec.Struct, frozen=True):
    body: bytes
    media: str
    mark: str


@cache
def _assets() -> dict[str, Asset]:
    files = [file for file in sorted(_FOLDER.iterdir()) if file.suffix in _MEDIA]
    return {file.name: _asset(file.read_bytes(), file.suffix) for file in files}


def _asset(body: bytes, suffix: str) -> Asset:
    return Asset(body, _MEDIA[suffix], hashlib.sha256(body).hexdigest()[:12])


def url(name: str) -> str:
    return f"/static/{name}?v={_assets()[name].mark}"


@get("/static/{name:str}")
async def static_file(name: FromPath[str]) -> Response[bytes]:
    asset = _assets().get(name)
    if asset is None:
        raise NotFoundException
    return Response(
        asset.body, media_type=asset.media, headers={"cache-control": "public, max-age=31536000, immutable"}
    )
