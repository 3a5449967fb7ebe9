"""Answers to other nodes of DataONE: XML of the Coordinating Node and of the Member Node, and its Solr search."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

from lxml import etree

from ..lines import flat, line, quoted
from ..scene import Scene

_TIME = re.compile(r"\b20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?")
_DATA = "golden%2Fdata%201"
_SHARED = (
    *("monitor/ping", "node", "log", "nonsense", "object", "object?count=2", "object?start=1&count=1"),
    *("object?formatId=text/csv", "object?fromDate=nonsense", "object/golden-1", f"object/{_DATA}", "object/none"),
    *("object/golden-secret", "meta/golden-1", "meta/golden-2", "meta/golden-map", f"meta/{_DATA}", "meta/golden-old"),
    *("meta/none", "meta/golden.series", "checksum/golden-1", "checksum/golden-1?checksumAlgorithm=MD5"),
    *("checksum/golden-1?checksumAlgorithm=none", "isAuthorized/golden-1", "isAuthorized/golden-1?action=write"),
    *("isAuthorized/golden-secret?action=read", "isAuthorized/golden-1?action=none", "replicaNotifications/golden-1"),
)
_CN = (
    *("", "formats/text%2Fcsv", "formats/none", "node/urn:node:Golden", "node/urn:node:None"),
    *("resolve/golden-1", "resolve/none", "query", "search", "accounts", "reserve/golden-1"),
    *("hasReservation/golden-1?subject=sam", "hasReservation/none?subject=sam", "diag/subject", "token"),
    *("query/none", "search/solr/?q=*:*&rows=1&fl=id", "query/solr/?q=(&wt=json"),
)
_SOLR = (
    *("q=*:*&sort=id+asc", "q=glaciers&sort=id+asc", "q=glaciers&fl=id,title,author&sort=id+asc", "q=zzzz"),
    *("q=id:golden-1", "q=*:*&rows=0", "q=*:*&rows=1&start=1&sort=id+asc", "q=*:*&fq=formatType:METADATA&sort=id+asc"),
    *("q=*:*&rows=0&facet=true&facet.field=formatId", "q=title:Glaciers+AND+-obsoletedBy:*&fl=id", "q=nonsense:1"),
    *("q=*:*&rows=-1", "q=*:*&sort=nonsense", "q=*:*&fl=*&rows=1&sort=id+asc", "q=resourceMap:golden-map&fl=id"),
)
_SOLR_XML = ("q=id:golden-1", "q=zzzz", "q=*:*&rows=0&facet=true&facet.field=formatId", "q=nonsense:1")


async def record(scene: Scene) -> AsyncIterator[str]:
    paths = [f"/{node}/{version}/{one}" for node in ("cn", "mn") for version in ("v2", "v1") for one in _SHARED]
    paths += [f"/cn/{version}/{one}" for version in ("v2", "v1") for one in _CN]
    paths += ["/cn/v2/formats", "/cn/v2/query/solr", *(f"/cn/v2/query/solr/?{one}&wt=json" for one in _SOLR)]
    paths += [f"/cn/v2/query/solr/?{one}&wt=xml" for one in _SOLR_XML]
    seen: dict[str, list[str]] = {}
    for who, token in (("admin", scene.admin), ("anonymous", "")):
        async with scene.http(token) as client:
            for path in paths:
                answer = await client.get(path)
                media = answer.headers.get("content-type", "")
                more = [f"{name}={answer.headers[name]}" for name in sorted(answer.headers) if _is_ours(name)]
                yield line(
                    f"GET {path}", who, "answers", plain(scene, f"{answer.status_code} {media} {' '.join(more)}")
                )
                body = [plain(scene, one) for one in _body(answer.content, media, "body")]
                if seen.setdefault(path, body) == body and who != "admin":
                    yield line(f"GET {path}", who, "body", "the same")
                    continue
                for one in body:
                    yield f"GET {path} > {who} > {one}"
    async with scene.http(scene.admin) as client:
        head = await client.head("/cn/v2/object/golden-1")
        given = sorted(f"{name}={value}" for name, value in head.headers.items() if name != "date")
        yield line("HEAD /cn/v2/object/golden-1", plain(scene, " ".join(given)))


def _is_ours(name: str) -> bool:
    return name.startswith("dataone") or name in ("location", "last-modified", "www-authenticate")


def plain(scene: Scene, text: str) -> str:
    return _TIME.sub("TIME", scene.plain(text))


def _body(content: bytes, media: str, *where: str) -> list[str]:
    if "json" in media:
        found = json.loads(content)
        if isinstance(found, dict) and "responseHeader" in found:
            found["responseHeader"].pop("QTime", None)
        return list(flat(found, *where, "body"))
    if "xml" in media and content:
        return _element(etree.fromstring(content), *where, "body")
    return [line(*where, "body", quoted(content.decode("utf-8", "backslashreplace")))]


def _element(one: Any, *where: str) -> list[str]:
    """Each element by the path to it; a number distinguishes elements of the same name."""
    name = etree.QName(one)
    here = *where, name.localname
    found = [line(*here, "namespace", quoted(name.namespace or ""))]
    found += [line(*here, f"@{key}", quoted(value)) for key, value in sorted(one.attrib.items()) if key != "QTime"]
    if text := (one.text or "").strip():
        found.append(line(*here, "text", quoted("TIME" if one.get("name") == "QTime" else text)))
    children = [child for child in one if isinstance(child.tag, str)]
    tags = [etree.QName(child).localname for child in children]
    found.append(line(*here, "children", " ".join(tags)))
    for number, (tag, child) in enumerate(zip(tags, children, strict=True)):
        several = (f"[{tags[:number].count(tag) + 1}]",) if tags.count(tag) > 1 else ()
        found += _element(child, *here, *several)
    return found
