"""What an organisation or group of a forge holds, by the forge's API, page by page."""

import asyncio
import hashlib
import re
import zlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from skep.base.caller import Visibility
from skep.base.errors import BadInput, SkepError
from skep.sources.git.http import Reply
from skep.sources.lists.asking import Asking, Refused, body_of
from skep.sources.lists.list_file import MOST_PROBLEMS, Entry, Problem, ToAddress
from skep.sources.model import ListKind, SourceSettings

MOST = 100_000
_MOST_PAGES = 5_000
_LARGEST_SIZE = 1 << 50
_OWNER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")


class _Forge(msgspec.Struct, frozen=True):
    #: the forge everybody means, and the API at any other host
    home: str
    api: str
    #: of an organisation, and of a person
    paths: tuple[str, str]
    query: str
    header: str
    url: str


_FORGES: dict[str, _Forge] = {
    "github": _Forge(
        *("https://api.github.com", "/api/v3", ("/orgs/{}/repos", "/users/{}/repos")),
        *("type=all&sort=created&direction=asc&per_page=100", "Authorization: Bearer", "clone_url"),
    ),
    "gitlab": _Forge(
        *("https://gitlab.com/api/v4", "/api/v4", ("/groups/{}/projects", "/users/{}/projects")),
        *(
            "include_subgroups=true&statistics=true&order_by=id&sort=asc&per_page=100",
            "PRIVATE-TOKEN:",
            "http_url_to_repo",
        ),
    ),
    "gitee": _Forge(
        *("https://gitee.com/api/v5", "/api/v5", ("/orgs/{}/repos", "/users/{}/repos")),
        *("type=all&per_page=100", "Authorization: Bearer", "html_url"),
    ),
    "gitea": _Forge(
        "", "/api/v1", ("/orgs/{}/repos", "/users/{}/repos"), "limit=50", "Authorization: token", "clone_url"
    ),
}


class Place(msgspec.Struct, frozen=True):
    kind: ListKind
    #: where the API is, without a slash at its end
    api: str
    owner: str

    def path(self, which: int, page: int) -> str:
        forge = _FORGES[self.kind]
        return f"{self.api}{forge.paths[which].format(quote(self.owner, safe=''))}?{forge.query}&page={page}"


class Listing(msgspec.Struct, frozen=True):
    entries: list[Entry]
    problems: list[Problem]
    #: of each page, to ask whether it is still the same
    etags: tuple[str, ...]

    @property
    def version(self) -> str:
        said = "\n".join(sorted(f"{entry.name} {entry.address.canonical}" for entry in self.entries))
        return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


class _Repository(msgspec.Struct):
    id: int
    clone_url: str = ""
    http_url_to_repo: str = ""
    html_url: str = ""
    fork: bool = False
    forked_from_project: Any = None
    archived: bool = False
    private: bool = False
    visibility: str = "public"
    #: kibibytes; GitLab tells it only to those who may see statistics
    size: Any = 0
    statistics: Any = None

    @property
    def seen(self) -> Visibility | None:
        return "private" if self.private or self.visibility != "public" else None

    @property
    def bytes(self) -> int:
        counted = self.statistics.get("repository_size") if isinstance(self.statistics, dict) else None
        known = counted if isinstance(counted, int) else self.size * 1024 if isinstance(self.size, int) else 0
        return min(max(known, 0), _LARGEST_SIZE)


def place_of(text: str) -> Place | None:
    """`github:org`, `gitlab:group/sub`, `gitea:https://host/org`; None: it is something else."""
    kind, _, where = text.partition(":")
    if kind not in _FORGES:
        return None
    forge, owner = _FORGES[kind], where.strip("/")
    api = forge.home
    if "://" in where:
        parts = urlsplit(where)
        owner = parts.path.strip("/")
        api = f"{parts.scheme}://{parts.netloc.lower()}{forge.api}"
    if not api:
        raise BadInput(f"'{text[:80]}' does not say which host", hint=f"write {kind}:https://HOST/ORGANISATION")
    if not _OWNER.fullmatch(owner) or ("/" in owner and kind != "gitlab"):
        raise BadInput(
            f"'{owner[:80]}' is no name of an organisation", hint=f"write {kind}:NAME or {kind}:https://HOST/NAME"
        )
    return Place(kind, api, owner)  # type: ignore[arg-type]  # it is one of the four


class Forges:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def changed(self, place: Place, etags: Sequence[str]) -> bool:
        """False only when the forge says of every page that it is as before."""
        if not etags or not all(etags):
            return True
        which = 1 if etags[0].startswith("user ") else 0
        for page, etag in enumerate(etags, 1):
            reply = await self._ask(place, place.path(which, page), etag.removeprefix("user "))
            if reply.status != 304:
                return True
        return False

    async def listing(self, place: Place, address: ToAddress, *, forks: bool, archived: bool) -> Listing:
        """Everything, by the forge's own ids; a repository that was renamed keeps its id."""
        entries: dict[str, Entry] = {}
        problems: list[Problem] = []
        etags: list[str] = []
        which = 0
        for page in range(1, _MOST_PAGES):
            reply = await self._ask(place, place.path(which, page))
            if reply.status == 404 and page == 1:
                which = 1
                reply = await self._ask(place, place.path(which, page))
            etags.append(f"user {reply.validator}" if which and reply.validator else reply.validator)
            found = _repositories(place, reply)
            if not found:
                return Listing(list(entries.values()), problems, tuple(etags))
            for one in found:
                fork = one.fork or one.forked_from_project is not None
                if (fork and not forks) or (one.archived and not archived):
                    continue
                try:
                    url = getattr(one, _FORGES[place.kind].url)
                    entries[str(one.id)] = Entry(str(one.id), address(url), visibility=one.seen, size=one.bytes)
                except SkepError as error:
                    problems.append(Problem(page, f"repository {one.id}: {error.message}"))
            if len(entries) > MOST:
                break
        raise Refused(f"{place.owner} holds more than {MOST:,} repositories; that is no list for Skep")

    async def _ask(self, place: Place, url: str, validator: str = "") -> Reply:
        header = _FORGES[place.kind].header
        return await self._asking.get(
            url, lambda key: f"{header} {key.token}", "Accept: application/json", validator=validator
        )


def _repositories(place: Place, reply: Reply) -> list[_Repository]:
    host = urlsplit(place.api).netloc
    unknown = f"{host} knows no organisation or person '{place.owner}', or does not show it to us"
    try:
        return msgspec.json.decode(body_of(reply, host, unknown), type=list[_Repository])
    except msgspec.DecodeError as error:
        raise Refused(f"{host} answers with something else than repositories: {error}") from None


# A manifest: one file in which a host says what repositories it has, and by their fingerprints which of them moved.
#
# The format is grokmirror's: a JSON object from paths to what is said of each, zipped or plain.

_LARGEST = 256_000_000
#: what the manifest does not report is found out so often all the same
_RESTS = SourceSettings(poll_min=86_400.0)


class Manifest(msgspec.Struct, frozen=True):
    url: str
    #: where its paths begin, without a slash at its end
    base: str


class _Said(msgspec.Struct):
    fingerprint: str | None = None
    modified: Any = None


def manifest_of(text: str) -> Manifest | None:
    """`manifest:URL`, or `manifest:URL#BASE` where the paths do not begin beside it; None: it is something else."""
    if not text.startswith("manifest:"):
        return None
    url, _, base = text.removeprefix("manifest:").partition("#")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise BadInput(f"'{url[:80]}' is no address of a manifest", hint="write manifest:https://HOST/manifest.js.gz")
    return Manifest(url, (base or url.rpartition("/")[0]).rstrip("/"))


class Manifests:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def read(self, place: Manifest, validator: str, address: ToAddress) -> Listing | None:
        """None: it is still the one that had this validator."""
        reply = await self._asking.get(place.url, lambda key: key.header, validator=validator)
        if reply.status == 304 and validator:
            return None
        body = body_of(reply, urlsplit(place.url).netloc, f"there is no manifest at {place.url}")
        return await asyncio.to_thread(_parse, place, body, reply.validator, address)


def _parse(place: Manifest, body: bytes, validator: str, address: ToAddress) -> Listing:
    try:
        found = msgspec.json.decode(_plain(body), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, zlib.error, UnicodeDecodeError):
        raise Refused(f"{place.url} is no manifest") from None
    if len(found) > MOST:
        raise Refused(f"{place.url} names more than {MOST:,} repositories; that is no list for Skep")
    entries: list[Entry] = []
    problems: list[Problem] = []
    for path, raw in found.items():
        try:
            said = msgspec.json.decode(raw, type=_Said)
            mark = said.fingerprint or f"modified {said.modified}"
            where = address(place.base + _quoted(path))
            entries.append(Entry(path, where, settings=_RESTS, fingerprint=mark[:100]))
        except (msgspec.DecodeError, UnicodeDecodeError):
            problems.append(Problem(0, f"'{path[:80]}': what is said of it cannot be understood"))
        except SkepError as error:
            problems.append(Problem(0, f"'{path[:80]}': {error.message}"))
    return Listing(entries, problems[:MOST_PROBLEMS], (validator,))


def _plain(body: bytes) -> bytes:
    if body[:2] != b"\x1f\x8b":
        return body
    unzip = zlib.decompressobj(31)
    plain = unzip.decompress(body, _LARGEST)
    if not unzip.eof:
        raise zlib.error("it breaks off, or is too large")
    return plain


def _quoted(path: str) -> str:
    parts = path.split("/")
    if len(path) > 1_000 or not path.isprintable() or parts[0] or not set(parts[1:]).isdisjoint(("", ".", "..")):
        raise BadInput("this is no path of a repository")
    return quote(path)
