"""Blobs in S3 or anything that speaks it: `s3://BUCKET/PREFIX?endpoint=URL&region=NAME&credentials=FILE`.

Keys are from the environment (AWS_ACCESS_KEY_ID …), the machine's role, or a file as AWS's own tools read it; never
from the URL, which is shown in many places.
"""

import asyncio
import configparser
import hashlib
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from skep.base.errors import BadInput, NotFound, Unavailable
from skep.storage.blobs import BlobInfo, Blobs, checked_id, checked_start, is_id

CHUNK = 1 << 20
#: a blob's name is known at its end only: until then it is in memory, or beyond this in a file that has no name
_SPOOLED = 8 << 20
_OPTIONS = {"endpoint", "region", "credentials"}
_HINT = "docs/deploying.md says where Skep finds the keys of S3"
#: a store that is away for longer is told to whoever waits, who tries again in its own time
_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=15)}


async def open_s3(url: str, *, data: Path) -> Blobs:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if not parts.hostname or "@" in parts.netloc:
        raise BadInput("the URL for blobs is not s3://BUCKET/PREFIX, without a password", hint=_HINT)
    if unknown := options.keys() - _OPTIONS:
        raise BadInput(f"the URL for blobs has an unknown option '{min(unknown)}'", hint="known: endpoint, region")
    store = S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        region=options.get("region", "us-east-1"),
        client_options={"allow_http": options.get("endpoint", "").startswith("http://")},
        retry_config=_RETRIES,
        **_config(options, data),
    )
    blobs = S3Blobs(store, f"s3://{parts.netloc}{parts.path}")
    await blobs.check()
    return blobs


def _config(options: dict[str, str], data: Path) -> dict[str, Any]:
    config: dict[str, Any] = {"endpoint": options["endpoint"]} if "endpoint" in options else {}
    if "credentials" in options:
        path, file = data / options["credentials"], configparser.ConfigParser(interpolation=None)
        try:
            file.read_string(path.read_text())
            keys = {name.removeprefix("aws_"): value for name, value in file["default"].items()}
            config |= {name: keys[name] for name in ("access_key_id", "secret_access_key")}
        except (OSError, UnicodeDecodeError, configparser.Error, KeyError) as error:
            # what the file says stays in the file
            raise BadInput(f"{path} holds no keys for S3: {type(error).__name__}", hint=_HINT) from None
    return config


class S3Blobs:
    def __init__(self, store: S3Store, name: str) -> None:
        self._store = store
        self._name = name

    async def check(self) -> None:
        """A wrong bucket or key is told at the start, not at the first task's end."""
        with self._explained():
            async for _ in obstore.list(self._store, chunk_size=1):
                break

    async def put(self, chunks: AsyncIterable[bytes]) -> BlobInfo:
        hashed, size = hashlib.sha256(), 0
        with tempfile.SpooledTemporaryFile(_SPOOLED) as file:
            async for chunk in chunks:
                await asyncio.to_thread(hashed.update, chunk)
                await asyncio.to_thread(file.write, chunk)
                size += len(chunk)
            info = BlobInfo(hashed.hexdigest(), size)
            file.seek(0)
            with self._explained():
                await obstore.put_async(self._store, _key(info.id), file)
        return info

    async def open(self, id: str, start: int = 0) -> AsyncIterator[bytes]:
        key, start = _key(id), checked_start(start)
        info = await self.stat(id)
        if info is None:
            raise NotFound(f"there is no blob {id}")
        if start >= info.size:
            return
        with self._explained(id):
            found = await obstore.get_async(self._store, key, options={"range": {"offset": start}})
            async for chunk in found.stream(CHUNK):
                yield bytes(chunk)

    async def stat(self, id: str) -> BlobInfo | None:
        key = _key(id)
        try:
            with self._explained(id):
                return BlobInfo(id, (await obstore.head_async(self._store, key))["size"])
        except NotFound:
            return None

    async def delete(self, id: str) -> None:
        key = _key(id)
        with self._explained():
            await obstore.delete_async(self._store, key)

    async def list(self) -> AsyncIterator[BlobInfo]:
        with self._explained():
            async for some in obstore.list(self._store, chunk_size=1000):
                for one in some:
                    if is_id(id := one["path"].rpartition("/")[2]):
                        yield BlobInfo(id, one["size"])

    @contextmanager
    def _explained(self, id: str = "") -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if not id:
                raise Unavailable(f"{self._name} is not there", hint="make the bucket first") from error
            raise NotFound(f"there is no blob {id}") from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise Unavailable(f"{self._name} refuses the keys it was given", hint=_HINT) from error
        except BaseError as error:
            reason = str(error).partition("\n")[0][:300]
            raise Unavailable(
                f"{self._name} cannot be used: {reason}", hint="are bucket and endpoint right, and reachable?"
            ) from error


def _key(id: str) -> str:
    return f"{checked_id(id)[:2]}/{id}"
