"""What forges send when somebody pushed (pure): which repository it is about, and does the sender know the secret?"""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Literal, get_args
from urllib.parse import parse_qs, unquote

import msgspec

from skep.base.clock import Clock
from skep.base.errors import BadInput, NeedsToken
from skep.fleet.members import Fleet
from skep.sources.credentials import Credentials
from skep.sources.model import Key
from skep.sources.source_type import Addresses
from skep.storage.database import Database, Row, Tx, insert

Forge = Literal["github", "gitlab", "gitee", "gitea"]
FORGES: tuple[Forge, ...] = get_args(Forge)
#: seconds by which a timestamp may differ from our clock
TIMELY = 3_600.0

#: forge -> the headers with the event and with the id of the delivery
_HEADERS: dict[Forge, tuple[str, str]] = {
    "github": ("x-github-event", "x-github-delivery"),
    "gitlab": ("x-gitlab-event", "idempotency-key"),
    "gitee": ("x-gitee-event", ""),
    "gitea": ("x-gitea-event", "x-gitea-delivery"),
}
#: after these a branch, a tag or the place of the repository is another
_MOVING = {"push", "create", "delete", "repository", "push hook", "tag push hook", "system hook"}


class _Repository(msgspec.Struct, frozen=True):
    clone_url: str | None = None
    ssh_url: str | None = None
    git_url: str | None = None
    html_url: str | None = None
    http_url: str | None = None
    git_http_url: str | None = None
    git_ssh_url: str | None = None
    url: str | None = None
    homepage: str | None = None


class _Payload(msgspec.Struct, frozen=True):
    repository: _Repository | None = None
    project: _Repository | None = None


_payload = msgspec.json.Decoder(_Payload).decode


class Delivery(msgspec.Struct, frozen=True):
    """One request of a forge, before anybody believed it."""

    #: what makes it the same delivery when it comes again
    marks: tuple[str, ...]
    #: a fetch is worth while
    moving: bool
    #: every URL of the repository, as the forge spells them
    urls: tuple[str, ...]


def read(forge: Forge, headers: Mapping[str, str], body: bytes) -> Delivery:
    event, id = (headers.get(name, "") for name in _HEADERS[forge])
    if not event:
        raise BadInput(f"the header {_HEADERS[forge][0]} is missing", hint=f"is this a hook of {forge}?")
    try:
        payload = _payload(_json(forge, headers.get("content-type", ""), body))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise BadInput("the body is no payload that this forge sends") from None
    about = [part for part in (payload.repository, payload.project) if part is not None]
    urls = [url for part in about for url in msgspec.structs.astuple(part) if url]
    # the id is not part of what is signed, so the body counts too
    marks = [f"{forge}:{hashlib.sha256(body).hexdigest()}", *([f"{forge}:{id[:200]}"] if id else [])]
    moving = event.lower() in _MOVING and headers.get("x-gitee-ping", "").lower() != "true"
    return Delivery(tuple(marks), moving, tuple(dict.fromkeys(urls)))


def _json(forge: Forge, media: str, body: bytes) -> bytes:
    kind = media.partition(";")[0].strip().lower()
    if kind == "application/json":
        return body
    if forge == "github" and kind == "application/x-www-form-urlencoded":
        try:
            return parse_qs(body.decode(), max_num_fields=8).get("payload", [""])[0].encode()
        except ValueError:
            raise BadInput("the body is no form") from None
    raise BadInput(f"a payload of type {kind[:100]!r} is not taken", hint="choose application/json in the hook")


def proven(forge: Forge, headers: Mapping[str, str], body: bytes, secret: str, now: float) -> bool:
    """The sender knows the secret."""
    key = secret.encode()
    if forge == "gitlab":
        return _same(headers.get("x-gitlab-token", ""), secret)
    if forge == "gitee":
        return _proven_gitee(headers, secret, now)
    signature = hmac.new(key, body, hashlib.sha256).hexdigest()
    if forge == "github":
        return _same(headers.get("x-hub-signature-256", ""), f"sha256={signature}")
    return _same(headers.get("x-gitea-signature", ""), signature)


def _proven_gitee(headers: Mapping[str, str], secret: str, now: float) -> bool:
    """The password itself, or a signature of the time in milliseconds."""
    token, stamp = headers.get("x-gitee-token", ""), headers.get("x-gitee-timestamp", "")
    if _same(token, secret):
        return True
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 20) or abs(now - int(stamp) / 1000) > TIMELY:
        return False
    signature = base64.b64encode(hmac.new(secret.encode(), f"{stamp}\n{secret}".encode(), hashlib.sha256).digest())
    return _same(token, signature.decode()) or _same(unquote(token), signature.decode())


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("latin-1", "replace"), expected.encode("latin-1", "replace"))


# Webhooks: a forge says that somebody pushed, and the source is looked at now.
#
# Whoever does not prove a secret learns nothing, not even whether the repository is mirrored here. What was taken once
# is
# known for a day: a repeat changes nothing.

_REMEMBERED = 86_400.0
#: bytes: larger payloads are read in a thread
_LARGE = 65_536
#: URLs of one payload that are looked up
_MOST_URLS = 20


class Hooks:
    def __init__(
        self, db: Database, clock: Clock, fleet: Fleet, credentials: Credentials, addresses: Addresses
    ) -> None:
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._credentials = credentials
        self._addresses = addresses

    async def take(self, forge: Forge, headers: Mapping[str, str], body: bytes) -> None:
        """NeedsToken unless the delivery is proven; then whatever it is about is fetched, once."""
        now, known = self._clock.now(), await self._credentials.hooks()

        def believe() -> tuple[list[Key], Delivery]:
            """Nothing is decoded of what is not signed."""
            keys = [key for key in known if proven(forge, headers, body, key.token, now)]
            if not keys:
                raise NeedsToken("this delivery is not signed with a secret that is known here")
            return keys, read(forge, headers, body)

        keys, delivery = await asyncio.to_thread(believe) if len(body) > _LARGE else believe()
        sources = [row["id"] for row in await self._about(delivery) if any(self._covers(key, row) for key in keys)]

        async def work(tx: Tx) -> None:
            await tx.rows("DELETE FROM delivery WHERE at < :old", old=now - _REMEMBERED)
            for mark in delivery.marks:
                if not await insert(tx, "delivery", "ON CONFLICT (id) DO NOTHING RETURNING id", id=mark, at=now):
                    return
            for source in sources:
                await self._fleet.ask(tx, "fetch", source)

        if delivery.moving:
            await self._db.write(work)

    async def _about(self, delivery: Delivery) -> list[Row]:
        """The sources that mirror the repository: the same one may be mirrored by https and by ssh."""
        return await self._db.read(
            "SELECT DISTINCT source.id, url.canonical FROM url JOIN source ON source.id = url.source "
            "WHERE url.canonical IN (:canonicals)",
            canonicals=list(self._canonicals(delivery)),
        )

    def _canonicals(self, delivery: Delivery) -> set[str]:
        found = set()
        for url in delivery.urls[:_MOST_URLS]:
            try:
                canonical = self._addresses.canonical(url)
            except BadInput:
                continue
            found.add(canonical)
            if canonical.startswith("https://"):
                found.add("http" + canonical.removeprefix("https"))
        return {url for url in found if "://" in url}

    def _covers(self, key: Key, row: Row) -> bool:
        """The secret of one host or source moves no other."""
        host = self._addresses.host(row["canonical"])
        return key.source in ("", row["id"]) and key.host in (host, host.rpartition(":")[0])
