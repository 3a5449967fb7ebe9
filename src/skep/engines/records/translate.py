"""Trees as tantivy queries."""

import re

from tantivy import FieldType, Filter, Occur, Query, Schema, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

from skep.engines.records.base import Field, OneOf
from skep.engines.records.query import All, Any, Has, Like, Not, Range, Tree, Whole, Words
from skep.errors import BadQuery

#: beside the declared fields: the names of those a record has
HAS = "_has"
_META = re.compile(r"[\\.+*?()|\[\]{}^$#&~-]")
_ANY = {"*": ".*", "?": "."}
#: words longer than this are not found
_MOST_LETTERS = 100


def analyzer() -> TextAnalyzer:
    """Letters and digits make a word, whatever its case and accents."""
    words = TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.remove_long(_MOST_LETTERS))
    return words.filter(Filter.lowercase()).filter(Filter.ascii_fold()).build()


def words_of(analyzer: TextAnalyzer, asked: Words) -> list[str]:
    words = analyzer.analyze(asked.text)
    if not words:
        raise BadQuery(
            f"{asked.text[:100]!r} holds no word to search for",
            hint=f"words are letters and digits, at most {_MOST_LETTERS} of them",
            column=asked.column,
        )
    return words


def parts_of(analyzer: TextAnalyzer, asked: Like) -> list[str]:
    """Words are folded as they are indexed; letters of other cases are in no dictionary."""
    if asked.field.type != "text":
        return list(asked.parts)
    words = [[part] if n % 2 or not part else analyzer.analyze(part) for n, part in enumerate(asked.parts)]
    if any(len(few) != 1 for few in words) or not "".join(asked.parts[::2]).isalnum():
        raise BadQuery(
            f"{''.join(asked.parts)[:100]!r} is more than one word",
            hint="stars and question marks stand for parts of a word, which is letters and digits",
            column=asked.column,
        )
    return [few[0] for few in words]


class Translator:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._analyzer = analyzer()

    def query(self, tree: Tree) -> Query:
        match tree:
            case Words():
                return self._any([self._words(field, tree) for field in tree.fields])
            case Whole(field, text):
                return Query.term_query(self._schema, field.name, text)
            case Like():
                return self._like(tree)
            case Range():
                return self._range(tree)
            case Has(field):
                return self._has(field)
            case All(parts):
                return self._all([self.query(part) for part in parts])
            case Any(parts):
                return self._any([self.query(part) for part in parts])
            case Not(part):
                return Query.boolean_query([(Occur.Must, Query.all_query()), (Occur.MustNot, self.query(part))])

    def only(self, tree: Query, only: tuple[OneOf, ...]) -> Query:
        """What the caller may see of it; that does not change how well something matches."""
        if not only:
            return tree
        seen = [(Occur.Must, Query.const_score_query(self.one_of(one), 0.0)) for one in only]
        return Query.boolean_query([(Occur.Must, tree), *seen])

    def one_of(self, one: OneOf) -> Query:
        return Query.term_set_query(self._schema, one.field, list(one.values))

    def _words(self, field: Field, asked: Words) -> Query:
        if field.type == "keyword":
            return Query.phrase_prefix_query(self._schema, field.name, [asked.text])
        words = words_of(self._analyzer, asked)
        if asked.prefix:
            return Query.phrase_prefix_query(self._schema, field.name, list(words))
        if len(words) == 1:
            return Query.term_query(self._schema, field.name, words[0])
        return Query.phrase_query(self._schema, field.name, list(words))

    def _like(self, asked: Like) -> Query:
        parts = parts_of(self._analyzer, asked)
        pattern = "".join(_ANY[part] if n % 2 else _META.sub(r"\\\g<0>", part) for n, part in enumerate(parts))
        try:
            return Query.regex_query(self._schema, asked.field.name, pattern)
        except ValueError:
            raise BadQuery(
                f"{''.join(parts)[:100]!r} is too long for a search by parts",
                hint="write fewer stars, question marks and letters",
                column=asked.column,
            ) from None

    def _range(self, asked: Range) -> Query:
        name, low, after = asked.field.name, asked.bounds.low, asked.bounds.after
        if asked.field.type == "bool":
            return Query.term_query(self._schema, name, low == 1)
        if low is None and after is None:
            return self._has(asked.field)
        if asked.bounds.is_empty(asked.field.type):
            return Query.empty_query()
        if asked.field.type != "int":
            return Query.range_query(
                self._schema, name, FieldType.Float, _float(low), _float(after), True, after is None
            )
        highest = None if after is None else int(after) - 1
        return Query.range_query(self._schema, name, FieldType.Integer, low, highest)

    def _has(self, field: Field) -> Query:
        return Query.term_query(self._schema, HAS, field.name)

    def _all(self, parts: list[Query]) -> Query:
        return Query.boolean_query([(Occur.Must, part) for part in parts]) if parts else Query.all_query()

    def _any(self, parts: list[Query]) -> Query:
        return parts[0] if len(parts) == 1 else Query.boolean_query([(Occur.Should, part) for part in parts])


def _float(bound: int | float | None) -> float | None:
    return None if bound is None else float(bound)
