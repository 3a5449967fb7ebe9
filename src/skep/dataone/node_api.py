"""The calls of the API, one function each: by method and first word of the path."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import formatdate
from typing import Any, Protocol, TypeVar, get_args
from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape

import msgspec
from msgspec.structs import replace

import skep
from skep.base.caller import Caller
from skep.base.errors import BadInput, Conflict, NeedsToken, NotAllowed, NotFound
from skep.dataone import solr
from skep.dataone.encoding import check, decode, parse, read_time
from skep.dataone.hosted_replicas import Copies
from skep.dataone.index import subjects
from skep.dataone.node_errors import NotOffered, VersionMismatch
from skep.dataone.science_reader import HIDDEN, KIND
from skep.dataone.service import DataOne
from skep.dataone.store import Store
from skep.dataone.tables import Stored
from skep.dataone.types import (
    Checksum,
    ChecksumAlgorithmList,
    D1Error,
    Doc,
    Identifier,
    Node,
    NodeList,
    ObjectFormatList,
    ObjectList,
    Permission,
    Replica,
    ReplicaStatus,
    ReplicationPolicy,
    SystemMetadata,
)
from skep.interfaces.http.decoding import aside
from skep.storage.records.base import MOST_RECORDS, Field

# One call of the API, and its answer.

D = TypeVar("D", bound=Doc)


class Reading(Protocol):
    """What is read in the same way, whichever kind of node we are."""

    @property
    def store(self) -> Store: ...

    @property
    def base(self) -> str: ...

    @property
    def listing(self) -> Callable[..., Awaitable[ObjectList]]: ...

    async def get(self, caller: Caller, id: str) -> Stored: ...


class Call(msgspec.Struct, frozen=True):
    cn: DataOne
    here: Reading
    caller: Caller
    version: int
    #: what stands behind the first word of the path, still encoded
    names: tuple[str, ...]
    query: Sequence[tuple[str, str]]
    form: Mapping[str, bytes]
    now: float

    @property
    def pid(self) -> str:
        if not self.names:
            raise BadInput("there is no identifier in the path")
        if len(self.names) > 1:
            raise BadInput("there is more than an identifier in the path", hint="inside an identifier / is %2F")
        return decode(self.names[0])

    def asked(self, name: str) -> str:
        return dict(self.query).get(name, "")

    def part(self, name: str) -> bytes:
        if name not in self.form:
            raise BadInput(f"the form has no part {name!r}")
        return self.form[name]

    async def document(self, kind: type[D], name: str) -> D:
        """A part that is a document; a large one is parsed in a thread."""
        part = self.part(name)
        return await aside(len(part), parse, kind, part)

    def text(self, name: str) -> str:
        try:
            return self.part(name).decode().strip()
        except UnicodeDecodeError:
            raise BadInput(f"{name} is not UTF-8") from None

    def number(self, name: str, text: str) -> int:
        if not text.isascii() or not text.isdecimal() or len(text) > 18:
            raise BadInput(f"{name} is a whole number, not {text[:40]!r}")
        return int(text)

    def known(self) -> Caller:
        """Somebody with a name."""
        if not self.caller.known:
            raise NeedsToken("this is not for strangers", hint="send `Authorization: Bearer TOKEN`")
        return self.caller


class Answer(msgspec.Struct, frozen=True):
    body: Any = b""  # Doc, bytes or AsyncIterator[bytes]
    status: int = 200
    media: str = "text/plain"
    headers: Mapping[str, str] = {}


Handler = Callable[[Call], Awaitable[Answer]]
#: by method and first word of the path
Calls = Mapping[tuple[str, str], Handler]


# The calls that search.

_TYPES_11 = "http://ns.dataone.org/service/types/v1.1"


async def query(call: Call) -> Answer:
    call.caller.need("read")
    if not call.names:
        return Answer(_types_11("queryEngineList", "<queryEngine>solr</queryEngine>"), media="text/xml")
    _need_solr(call)
    params = [*call.query, *_inside(call)]
    if not params:
        return Answer(_types_11("queryEngineDescription", _engine()), media="text/xml")
    media, body = await call.cn.query(call.caller, params, call.now)
    return Answer(body, media=media)


async def search(call: Call) -> Answer:
    """Objects whose records match."""
    _need_solr(call)
    start = call.number("start", call.asked("start") or "0")
    limit = min(call.number("count", call.asked("count") or "100"), MOST_RECORDS)
    asked = replace(solr.asked([*call.query, *_inside(call)], call.now), start=start, rows=limit)
    page = await call.cn.pages(call.caller, asked)
    stored = await call.cn.store.get_many([one.id for one in page.records]) if page.records else {}
    infos = tuple(stored[one.id].meta.info for one in page.records if one.id in stored)
    return Answer(ObjectList(infos, len(infos), start, page.total))


def _need_solr(call: Call) -> None:
    if call.names and call.names[0].lower() != "solr":
        raise NotOffered(f"there is no engine {call.names[0][:40]!r}", hint="the engine is called solr")


def _inside(call: Call) -> list[tuple[str, str]]:
    """A query in the path: `…/solr/q=ice&rows=5`, encoded or not; or the bare text of one."""
    text = unquote("/".join(call.names[1:])).lstrip("?")
    if not text:
        return []
    return parse_qsl(text, keep_blank_values=True) if "=" in text.split("&")[0] else [("q", text)]


def _types_11(root: str, inside: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<d:{root} xmlns:d="{_TYPES_11}">{inside}</d:{root}>'.encode()


def _engine() -> str:
    fields = "".join(_field(field) for field in KIND.fields if field.name not in HIDDEN)
    version = f"<queryEngineVersion>Skep {skep.__version__}</queryEngineVersion>"
    return f"{version}<querySchemaVersion>1</querySchemaVersion><name>solr</name>{fields}"


def _field(field: Field) -> str:
    sorts = field.type != "text" and not field.many
    marks = {"searchable": True, "returnable": field.stored, "sortable": sorts, "multivalued": field.many}
    said = "".join(f"<{name}>{str(so).lower()}</{name}>" for name, so in marks.items())
    return f"<queryField><name>{escape(field.name)}</name><type>{field.type}</type>{said}</queryField>"


_ALGORITHMS = ("MD5", "SHA-1", "SHA-256", "SHA-384", "SHA-512")
_MOST_LISTED, _LISTED = 10_000, 1_000


# core


async def ping(call: Call) -> Answer:
    if call.names[:1] != ("ping",):
        raise NotOffered("there is only monitor/ping")
    return Answer()


async def nodes(call: Call) -> Answer:
    call.caller.need("read")
    if not call.names:
        return Answer(NodeList((call.cn.node(), *await call.cn.nodes.all())))
    urn = call.pid
    found = call.cn.node() if urn == call.cn.store.cn else await call.cn.nodes.get(urn)
    if found is None:
        raise NotFound(f"there is no node {urn!r}")
    return Answer(found)


async def register(call: Call) -> Answer:
    node = await call.document(Node, "node")
    await call.cn.nodes.register(call.known(), node)
    return Answer(node)


async def update_node(call: Call) -> Answer:
    node = await call.document(Node, "node")
    if node.identifier != call.pid:
        raise BadInput(f"the document is of {node.identifier!r}, not of {call.pid!r}")
    await call.cn.nodes.update(call.known(), node)
    return Answer()


async def formats(call: Call) -> Answer:
    call.caller.need("read")
    await call.cn.store.format_list.load()
    known = call.cn.store.formats.all
    if not call.names:
        return Answer(ObjectFormatList(tuple(known.values()), len(known), 0, len(known)))
    # the names of formats may hold blanks
    name = unquote("/".join(call.names))
    if name not in known:
        raise NotFound(f"there is no format {name[:200]!r}")
    return Answer(known[name])


async def reserve(call: Call) -> Answer:
    pid = call.pid if call.names else check(call.text("pid"))
    await call.cn.store.reserve(pid, call.known().subject)
    return Answer(Identifier(pid))


async def reservation(call: Call) -> Answer:
    call.caller.need("read")
    # (a subject may hold blanks)
    subject = unquote(call.names[1]) if len(call.names) > 1 else call.asked("subject")
    call = replace(call, names=call.names[:1])
    if await call.cn.store.reserved_for(call.pid) != subject:
        raise NotFound(f"{call.pid!r} is not reserved for {subject!r}")
    return Answer()


# reading


async def objects(call: Call) -> Answer:
    if call.names:
        return await content(call)
    named = {"format": call.asked("formatId"), "node": call.asked("nodeId"), "id": call.asked("identifier")}
    return Answer(await call.here.listing(call.caller, **_span(call), **named))


async def changed(call: Call) -> Answer:
    """What another Coordinating Node reads: objects by when they changed here."""
    return Answer(await call.cn.changes(call.caller, **_span(call)))


def _span(call: Call) -> dict[str, int | None]:
    """Of a list."""
    times = {"since": call.asked("fromDate"), "until": call.asked("toDate")}
    return {
        # (a plus that was not encoded came as a blank)
        **{name: read_time(given.replace(" ", "+")) if given else None for name, given in times.items()},
        "start": call.number("start", call.asked("start") or "0"),
        "count": min(call.number("count", call.asked("count") or str(_LISTED)), _MOST_LISTED),
    }


async def content(call: Call) -> Answer:
    found = await call.here.get(call.caller, call.pid)
    if not found.blob:
        raise NotFound(f"the bytes of {call.pid!r} are not here", hint=f"{call.cn.base}/v2/resolve says where")
    return whole(call, found)


def whole(call: Call, found: Stored) -> Answer:
    return Answer(call.here.store.content(found), media="application/octet-stream", headers=_described(found))


async def describe(call: Call) -> Answer:
    found = await call.here.get(call.caller, call.pid)
    return Answer(media="application/octet-stream", headers=_described(found))


def _described(found: Stored) -> dict[str, str]:
    meta = found.meta
    return {
        "content-length": str(meta.size),
        "last-modified": formatdate((meta.date_sys_metadata_modified or 0) / 1000, usegmt=True),
        "DataONE-Checksum": f"{meta.checksum.algorithm},{meta.checksum.value}",
        "DataONE-FormatId": meta.format_id,
        "DataONE-ObjectFormat": meta.format_id,
        "DataONE-SerialVersion": str(meta.serial_version),
    }


async def system_metadata(call: Call) -> Answer:
    return Answer((await call.cn.described(call.caller, call.pid)).meta)


async def checksum(call: Call) -> Answer:
    call.caller.need("read")
    if not call.names:
        return Answer(ChecksumAlgorithmList(_ALGORITHMS))
    found = await call.here.get(call.caller, call.pid)
    asked = Checksum("", call.asked("checksumAlgorithm") or found.meta.checksum.algorithm)
    if asked.name == found.meta.checksum.name:
        return Answer(found.meta.checksum)
    if not asked.known or not found.blob:
        raise BadInput(f"there is no {asked.algorithm[:40]!r} checksum of {call.pid!r} here")
    hash = asked.hash()
    async for chunk in call.here.store.content(found):
        hash.update(chunk)
    return Answer(Checksum(hash.hexdigest(), asked.name))


async def resolve(call: Call) -> Answer:
    places = await call.cn.resolve(call.caller, call.pid)
    return Answer(places, 303, headers={"location": places.object_location[0].url})


async def may(call: Call) -> Answer:
    """isAuthorized: 200, or the error."""
    action = call.asked("action") or "read"
    if action not in get_args(Permission):
        raise BadInput(f"{action[:40]!r} is no permission", hint=", ".join(get_args(Permission)))
    found, who = await call.here.get(call.caller, call.pid), subjects(call.caller)
    if who and not found.meta.may(action, who):  # type: ignore[arg-type]  # one of them
        raise NotAllowed(f"'{call.caller.subject}' may not {action} {call.pid!r}")
    return Answer()


# from nodes


async def synchronize(call: Call) -> Answer:
    if call.version < 2:
        raise NotOffered("synchronize is a call of version 2")
    await call.cn.harvests.synchronize(call.known(), check(call.text("pid")))
    return Answer()


async def replica_status(call: Call) -> Answer:
    status = call.text("status")
    if status not in get_args(ReplicaStatus):
        raise BadInput(f"{status[:40]!r} is no status", hint=", ".join(get_args(ReplicaStatus)))
    if "failure" in call.form:
        await call.document(D1Error, "failure")
    urn = call.text("nodeRef")
    await call.cn.replication.status(call.known(), call.pid, urn, status)  # type: ignore[arg-type]  # one of them
    return Answer()


async def _versioned(call: Call, change: Callable[[int], Awaitable[None]]) -> Answer:
    """Nothing else may have changed meanwhile."""
    try:
        await change(call.number("serialVersion", call.text("serialVersion")))
    except Conflict as error:
        raise VersionMismatch(error.message, hint=error.hint) from error
    return Answer()


async def replica_metadata(call: Call) -> Answer:
    replica, to = await call.document(Replica, "replicaMetadata"), call.cn.replication
    return await _versioned(call, lambda serial: to.put(call.known(), call.pid, replica, serial))


async def replica_policy(call: Call) -> Answer:
    policy, to = await call.document(ReplicationPolicy, "policy"), call.cn.replication
    return await _versioned(call, lambda serial: to.policy(call.known(), call.pid, policy, serial))


async def remove_replica(call: Call) -> Answer:
    urn, to = call.text("nodeId"), call.cn.replication
    return await _versioned(call, lambda serial: to.remove(call.known(), call.pid, urn, serial))


async def replica_authorised(call: Call) -> Answer:
    call.caller.need("read")
    subject = call.asked("targetNodeSubject")
    if not await call.cn.replication.authorised(call.pid, subject):
        raise NotAllowed(f"'{subject}' was not asked to replicate {call.pid!r}")
    return Answer()


CALLS: Calls = {
    ("GET", "monitor"): ping,
    ("GET", ""): nodes,
    ("GET", "node"): nodes,
    ("POST", "node"): register,
    ("PUT", "node"): update_node,
    ("GET", "formats"): formats,
    ("POST", "reserve"): reserve,
    ("GET", "reserve"): reservation,
    ("GET", "object"): objects,
    ("GET", "changed"): changed,
    ("GET", "meta"): system_metadata,
    ("GET", "checksum"): checksum,
    ("GET", "resolve"): resolve,
    ("GET", "isAuthorized"): may,
    ("GET", "query"): query,
    ("GET", "search"): search,
    ("POST", "synchronize"): synchronize,
    ("PUT", "replicaNotifications"): replica_status,
    ("PUT", "replicaMetadata"): replica_metadata,
    ("PUT", "replicaPolicies"): replica_policy,
    ("PUT", "removeReplicaMetadata"): remove_replica,
    ("GET", "replicaAuthorizations"): replica_authorised,
}
#: where an answer without a body is another
HEAD_CALLS: Calls = {("GET", "object"): describe}


# The calls of a Member Node that holds copies.

log = logging.getLogger(__name__)


def _copies(call: Call) -> Copies:
    assert call.cn.copies is not None  # else there is no such door
    return call.cn.copies


async def capabilities(call: Call) -> Answer:
    call.caller.need("read")
    return Answer(_copies(call).node())


async def member_system_metadata(call: Call) -> Answer:
    return Answer((await call.here.get(call.caller, call.pid)).meta)


async def replica(call: Call) -> Answer:
    return whole(call, await _copies(call).replica(call.caller, call.pid))


async def replicate(call: Call) -> Answer:
    meta = await call.document(SystemMetadata, "sysmeta")
    await _copies(call).request(call.known(), meta, call.text("sourceNode"))
    return Answer()


async def meta_changed(call: Call) -> Answer:
    await _copies(call).changed(call.known(), check(call.text("pid")))
    return Answer()


async def failed(call: Call) -> Answer:
    """The Coordinating Node could not take over what we list."""
    await _copies(call).need_cn(call.known())
    error = await call.document(D1Error, "message")
    log.warning("a copy is not taken over", extra={"pid": error.identifier, "reason": error.description[:500]})
    return Answer()


MEMBER_CALLS: Calls = {
    ("GET", "monitor"): ping,
    ("GET", ""): capabilities,
    ("GET", "node"): capabilities,
    ("GET", "object"): objects,
    ("GET", "meta"): member_system_metadata,
    ("GET", "checksum"): checksum,
    ("GET", "isAuthorized"): may,
    ("GET", "replica"): replica,
    ("POST", "replicate"): replicate,
    ("POST", "dirtySystemMetadata"): meta_changed,
    ("POST", "error"): failed,
}
