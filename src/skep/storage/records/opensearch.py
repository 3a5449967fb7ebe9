"""Records on a server: OpenSearch, or Elasticsearch by the same part of its interface.

The kind KIND is behind the alias PREFIX-KIND, so that one which somebody removed does not come back without its fields.
"""

import base64
import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any as TypingAny

import msgspec
from tantivy import TextAnalyzer

from skep.base.errors import BadQuery, Damaged
from skep.storage.code_index.opensearch.client import (
    NOTHING,
    Address,
    Filter,
    Node,
    Refused,
    Slow,
    any_of,
    one_of,
    parse,
)
from skep.storage.records.base import Ask, Field, FieldType, Kind, OneOf, Page, Record, listed
from skep.storage.records.query import All, Any, Has, Like, Not, Range, Tree, Whole, Words
from skep.storage.records.record_indexes import Change, Shelf, Shelved, aggregations, counted, declared, found
from skep.storage.records.tantivy_index import HAS, analyzer, parts_of, words_of

# Trees as a server's queries. Their words are those of the embedded engine, so both find the same.

#: words that one prefix at the end of a phrase may stand for
_MOST_EXPANSIONS = 1000
_META = re.compile(r"[\\*?]")


def query(tree: Tree, analyzer: TextAnalyzer) -> Filter:
    match tree:
        case Words(fields):
            return any_of([_words(field, tree, analyzer) for field in fields])
        case Whole(field, text):
            return {"term": {field.name: text}}
        case Like(field):
            parts = parts_of(analyzer, tree)
            pattern = (part if n % 2 else _META.sub(r"\\\g<0>", part) for n, part in enumerate(parts))
            return {"wildcard": {field.name: "".join(pattern)}}
        case Range():
            return _range(tree)
        case Has(field):
            return {"term": {HAS: field.name}}
        case All(parts):
            return {"bool": {"must": [query(part, analyzer) for part in parts]}} if parts else {"match_all": {}}
        case Any(parts):
            return any_of([query(part, analyzer) for part in parts])
        case Not(part):
            return {"bool": {"must": {"match_all": {}}, "must_not": query(part, analyzer)}}


def _words(field: Field, asked: Words, analyzer: TextAnalyzer) -> Filter:
    if field.type == "keyword":
        return {"prefix": {field.name: asked.text}}
    words = words_of(analyzer, asked)
    if len(words) == 1:
        return {"prefix" if asked.prefix else "term": {field.name: words[0]}}
    if asked.prefix:
        return {"match_phrase_prefix": {field.name: {"query": " ".join(words), "max_expansions": _MOST_EXPANSIONS}}}
    return {"match_phrase": {field.name: " ".join(words)}}


def _range(asked: Range) -> Filter:
    name, low, after = asked.field.name, asked.bounds.low, asked.bounds.after
    if asked.field.type == "bool":
        return {"term": {name: low == 1}}
    if asked.bounds.is_empty(asked.field.type):
        return NOTHING
    if asked.field.type == "int" and after is not None:
        return {"range": {name: {"gte": low, "lte": int(after) - 1}}}
    return {"range": {name: {"gte": low, "lt": after}}}


#: of mapping and body; records of another format are put anew
_FORMAT = 1
_BODY = "_body"
#: longer keywords are given back, but not found: a server refuses them
_KEYWORD = {"type": "keyword", "ignore_above": 8000}
_TYPES: dict[FieldType, dict[str, TypingAny]] = {
    # words come as the embedded engine makes them, with spaces between
    "text": {"type": "text", "analyzer": "whitespace"},
    "keyword": _KEYWORD,
    "int": {"type": "long"},
    "float": {"type": "double"},
    "date": {"type": "double"},
    "bool": {"type": "boolean"},
}


async def open_opensearch(url: str, *, data: Path) -> "OpenSearchRecords":
    """`opensearch://[USER:PASSWORD@]HOST[:PORT][/PREFIX][?tls=yes&shards=3&replicas=1]`."""
    return OpenSearchRecords(parse(url))


class OpenSearchRecords(Shelved):
    def __init__(self, address: Address) -> None:
        super().__init__()
        self._address = address
        self._node = Node(address)

    def open(self, kind: Kind) -> "OpenSearchShelf":
        return OpenSearchShelf(self._node, self._address, kind)

    def set_aside(self, kind: Kind) -> None:
        """Nothing of it is kept: what happened is in the server's own log."""
        self._node.call("DELETE", f"{self._node.prefix}-{kind.name}-1", ignore_unavailable="true")

    async def close(self) -> None:
        await super().close()
        self._node.close()


class OpenSearchShelf(Shelf):
    def __init__(self, node: Node, address: Address, kind: Kind) -> None:
        super().__init__(kind)
        self._node = node
        self._name = f"{node.prefix}-{kind.name}"
        self._declared = f"{_FORMAT} {address.shards} {declared(kind).decode()}"
        self._analyzer = analyzer()
        if self._node.call("GET", f"_cat/aliases/{self._name}", format="json"):
            self.verify()
        else:
            mappings = {"dynamic": "strict", "_source": {"enabled": False}, "properties": _properties(kind)}
            made = {"settings": address.settings(), "mappings": mappings | self._meta(), "aliases": {self._name: {}}}
            self._node.call("DELETE", f"{self._name}-1", ignore_unavailable="true")
            self._node.call("PUT", f"{self._name}-1", made)

    @property
    def is_filled(self) -> bool:
        return bool(self._read_meta().get("filled"))

    def filled(self) -> None:
        self._node.call("PUT", f"{self._name}/_mapping", self._meta(filled=True))

    def apply(self, changes: Sequence[Change]) -> None:
        """A server knows no rollback: what fails may be there in part, until it is put again."""
        actions: list[bytes] = []
        for change in changes:
            if isinstance(change, OneOf) and change.field != "id":
                self._node.bulk(self._name, actions)
                self._node.delete(self._name, one_of(change.field, change.values))
                actions = []
            else:
                actions += self._actions(change)
        self._node.bulk(self._name, actions)
        self._node.call("POST", f"{self._name}/_refresh")

    def page(self, tree: Tree, ask: Ask) -> Page:
        orders: list[TypingAny] = [
            {by: {"order": "desc" if falls else "asc", "missing": "_last"}} for by, falls in ask.orders
        ]
        asked = {
            "query": {
                "bool": {
                    "must": query(tree, self._analyzer),
                    "filter": [one_of(one.field, one.values) for one in ask.only],
                }
            },
            "sort": [*(orders or ["_score"]), "id"],
            "from": ask.start,
            "size": ask.limit,
            "track_total_hits": True,
            "stored_fields": [_BODY],
            "aggs": aggregations(ask, "shard_size"),
        }
        answer = self._search(asked, time.monotonic() + ask.seconds)
        hits, facets = answer["hits"], answer.get("aggregations", {})
        return Page(
            [found(base64.b64decode(one["fields"][_BODY][0]), one["_score"] or 0.0) for one in hits["hits"]],
            hits["total"]["value"],
            {name: counted(self.fields[name], facets[name]["buckets"]) for name in ask.facets},
        )

    def verify(self) -> None:
        """What is inside is compared with its checksums by the server itself."""
        if self._read_meta().get("declared") != self._declared:
            raise Damaged(f"the records in {self._name} have other fields than {self.kind.name} now have")

    def close(self) -> None: ...

    def _search(self, asked: dict[str, TypingAny], until: float) -> TypingAny:
        try:
            return self._node.call(
                "POST", f"{self._name}/_search", asked, until=until, allow_partial_search_results="false"
            )
        except Slow:
            raise TimeoutError from None
        except Refused as error:
            raise BadQuery(
                f"the server does not take this query: {error.message}", hint="ask for fewer words or stars at a time"
            ) from None

    def _meta(self, *, filled: bool = False) -> dict[str, TypingAny]:
        return {"_meta": {"declared": self._declared, "filled": filled}}

    def _read_meta(self) -> dict[str, TypingAny]:
        (one,) = self._node.call("GET", f"{self._name}/_mapping").values()
        meta: dict[str, TypingAny] = one["mappings"].get("_meta", {})
        return meta

    def _actions(self, change: Change) -> Iterator[bytes]:
        if isinstance(change, OneOf):
            for id in change.values:
                yield b'{"delete":{"_id":"%b"}}' % _key(str(id))
            return
        for record in change:
            yield b'{"index":{"_id":"%b"}}\n%b' % (_key(record.id), msgspec.json.encode(self._row(record)))

    def _row(self, record: Record) -> dict[str, TypingAny]:
        values = {name: listed(value) for name, value in record.values.items()}
        row: dict[str, TypingAny] = {name: several for name, several in values.items() if several}
        has = list(row)
        for name in has:
            if self.fields[name].type == "text":
                row[name] = [" ".join(self._analyzer.analyze(str(one))) for one in row[name]]
        return row | {"id": record.id, HAS: has, _BODY: self.body(record)}


def _properties(kind: Kind) -> dict[str, TypingAny]:
    ours = {"id": _KEYWORD, HAS: {"type": "keyword"}, _BODY: {"type": "binary", "store": True}}
    return {field.name: _TYPES[field.type] for field in kind.fields} | ours


def _key(id: str) -> bytes:
    """A server's own ids are short."""
    return hashlib.blake2b(id.encode(), digest_size=16).hexdigest().encode()
