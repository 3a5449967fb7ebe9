"""The calls that search."""

from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape

from msgspec.structs import replace

import skep
from skep.dataone import solr
from skep.dataone.fields import HIDDEN, KIND
from skep.dataone.types import ObjectList
from skep.doors.http.cn.call import Answer, Call
from skep.doors.http.cn.wrong import NotOffered
from skep.engines.records.base import MOST_RECORDS, Field

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
