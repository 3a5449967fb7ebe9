"""The calls of a Member Node that holds copies."""

import logging

from skep.dataone.copies import Copies
from skep.dataone.pids import check
from skep.dataone.types import D1Error, SystemMetadata
from skep.doors.http.cn.call import Answer, Call, Calls
from skep.doors.http.cn.calls import checksum, may, objects, ping, whole

log = logging.getLogger(__name__)


def _copies(call: Call) -> Copies:
    assert call.cn.copies is not None  # else there is no such door
    return call.cn.copies


async def capabilities(call: Call) -> Answer:
    call.caller.need("read")
    return Answer(_copies(call).node())


async def system_metadata(call: Call) -> Answer:
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


CALLS: Calls = {
    ("GET", "monitor"): ping,
    ("GET", ""): capabilities,
    ("GET", "node"): capabilities,
    ("GET", "object"): objects,
    ("GET", "meta"): system_metadata,
    ("GET", "checksum"): checksum,
    ("GET", "isAuthorized"): may,
    ("GET", "replica"): replica,
    ("POST", "replicate"): replicate,
    ("POST", "dirtySystemMetadata"): meta_changed,
    ("POST", "error"): failed,
}
