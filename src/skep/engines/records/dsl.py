"""Trees as a server's queries. Their words are those of the embedded engine, so both find the same."""

import re

from tantivy import TextAnalyzer

from skep.engines.index.opensearch.filters import NOTHING, Filter, any_of
from skep.engines.records.base import Field
from skep.engines.records.query import All, Any, Has, Like, Not, Range, Tree, Whole, Words
from skep.engines.records.translate import HAS, parts_of, words_of

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
