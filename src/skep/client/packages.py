"""Packages over HTTP."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from skep.client.transport import API, Transport, pages
from skep.errors import Damaged
from skep.model.answers import Page
from skep.model.package import FromTemplate, Package
from skep.model.task import Context

_PATH = f"{API}/packages"
#: for a large archive on a slow line
_SECONDS = 3_600.0


class Packages:
    """A package is called GROUP/NAME/VERSION."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def push(self, archive: Path) -> Package:
        """The server compares what arrives with what was sent."""
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            return self._transport.upload(_PATH, file, Package, query={"sha256": digest}, timeout=_SECONDS)

    def show(self, ref: str) -> Package:
        return self._transport.call("GET", _of(ref), Package)

    def download(self, ref: str, into: Path) -> Package:
        package, hashed = self.show(ref), hashlib.sha256()
        with into.open("wb") as file:
            for chunk in self._transport.chunks(f"{_of(ref)}/archive", timeout=_SECONDS):
                hashed.update(chunk)
                file.write(chunk)
        if hashed.hexdigest() != package.blob:
            raise Damaged(f"{into} is not as {ref} was when it was pushed", hint="download it again")
        return package

    def remove(self, ref: str) -> None:
        self._transport.call("DELETE", _of(ref), type(None))

    def run(self, ref: str, template: str, properties: Mapping[str, str] | None = None) -> Context:
        """Submits what a template of the package describes."""
        body = FromTemplate(template, dict(properties or {}))
        return self._transport.call("POST", f"{_of(ref)}/run", Context, body=body)

    def list(self, prefix: str = "", *, limit: int = 100) -> Iterator[Package]:
        """By name; those whose name begins so, in pages of `limit`."""
        return pages(self._transport, _PATH, Page[Package], limit, prefix=prefix)


def _of(ref: str) -> str:
    return f"{_PATH}/{quote(ref)}"
