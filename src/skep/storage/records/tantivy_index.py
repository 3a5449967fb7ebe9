"""The records of one kind as a tantivy index in a folder.

FOLDER/fields    what was declared when the index was made; another declaration means another index
FOLDER/filled    there once the room has put everything
FOLDER/index     tantivy's own files, each of which ends with its checksum
"""

import json
import os
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any as TypingAny

from tantivy import (
    DocAddress,
    Document,
    FieldType,
    Filter,
    Index,
    Occur,
    Order,
    Query,
    Schema,
    SchemaBuilder,
    Searcher,
    TextAnalyzer,
    TextAnalyzerBuilder,
    Tokenizer,
)

from skep.base.errors import BadInput, BadQuery, Damaged, NoSpace, SkepError
from skep.base.io import sync_file, sync_folders
from skep.storage.records.base import MOST_DEPTH, Ask, Field, Found, Kind, OneOf, Page, Record, Value, listed
from skep.storage.records.query import All, Any, Has, Like, Not, Range, Tree, Whole, Words
from skep.storage.records.record_indexes import Change, Shelf, Shelved, aggregations, arranged, counted, declared, found

# Trees as tantivy queries.

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


_BODY = "_body"
_WRITER_BYTES = 32_000_000
#: tantivy's files of one segment
_PARTS = ("fast", "fieldnorm", "idx", "pos", "store", "term")
#: the last bytes of each of tantivy's files: the length of a JSON text before them, and this number
_MAGIC = (1337).to_bytes(4, "little")


class FolderShelf(Shelf):
    def __init__(self, folder: Path, kind: Kind) -> None:
        super().__init__(kind)
        self._folder = folder
        schema = _schema(kind)
        if not (folder / "fields").exists():
            _make(folder, schema, kind)
        with _explained(folder):
            if (folder / "fields").read_bytes() != declared(kind):
                raise Damaged(f"the records in {folder} have other fields than {kind.name} now have")
            self.verify()
            self._index = Index.open(str(folder / "index"))
            self._index.register_tokenizer("words", analyzer())
            self._index.config_reader("manual")
            self._writer = self._index.writer(_WRITER_BYTES, 1)
        self._translator = Translator(schema)

    @property
    def is_filled(self) -> bool:
        return (self._folder / "filled").exists()

    def filled(self) -> None:
        with (self._folder / "filled").open("wb") as file:
            sync_file(file)
        sync_folders(self._folder)

    def apply(self, changes: Sequence[Change]) -> None:
        """In one commit, durable on return."""
        with _explained(self._folder):
            try:
                for change in changes:
                    if isinstance(change, OneOf):
                        self._writer.delete_documents_by_query(self._translator.one_of(change))
                        continue
                    for record in change:
                        self._writer.delete_documents_by_term("id", record.id)
                        self._writer.add_document(self._document(record))
                self._writer.commit()
            except BaseException:
                self._writer.rollback()
                raise
            self._index.reload()

    def page(self, tree: Tree, ask: Ask) -> Page:
        query = self._translator.only(self._translator.query(tree), ask.only)
        with _explained(self._folder):
            searcher = self._index.searcher()
            facets = self._facets(searcher, query, ask)
            records, total = (self._sorted if len(ask.orders) > 1 else self._hits)(searcher, query, ask)
        return Page(records, total, facets)

    def _hits(self, searcher: Searcher, query: Query, ask: Ask) -> tuple[list[Found], int]:
        by, falls = ask.orders[0] if ask.orders else (None, True)
        order = Order.Desc if falls else Order.Asc
        result: TypingAny = searcher.search(query, max(1, ask.limit), offset=ask.start, order_by_field=by, order=order)
        return [_found(searcher, place, 0.0 if by else key) for key, place in result.hits[: ask.limit]], result.count

    def _sorted(self, searcher: Searcher, query: Query, ask: Ask) -> tuple[list[Found], int]:
        """By several fields: what is equal by the first one is read, and sorted by all of them."""
        by, falls = ask.orders[0]
        result: TypingAny = searcher.search(
            query, MOST_DEPTH, order_by_field=by, order=Order.Desc if falls else Order.Asc
        )
        keys = [key for key, _ in result.hits]
        end = high = min(ask.start + ask.limit, len(keys))
        if ask.start >= end:
            return [], result.count
        low = keys.index(keys[ask.start])
        while high < len(keys) and keys[high] == keys[end - 1]:
            high += 1
        if high == len(keys) < result.count:
            raise BadInput(
                f"too many records have the same {by!r} to sort them by others as well",
                hint="narrow the query, or sort by something else first",
            )
        some = arranged([_found(searcher, place, 0.0) for _, place in result.hits[low:high]], ask.orders)
        return some[ask.start - low : end - low], result.count

    def _facets(self, searcher: Searcher, query: Query, ask: Ask) -> dict[str, list[tuple[Value, int]]]:
        if not ask.facets:
            return {}
        answer = searcher.aggregate(query, aggregations(ask, "segment_size"))
        return {name: counted(self.fields[name], answer[name]["buckets"]) for name in ask.facets}

    def verify(self) -> None:
        """Read every file of what was committed and compare its checksum; raises Damaged."""
        folder, meta = self._folder / "index", b""
        while True:
            before = meta
            try:
                meta = (folder / "meta.json").read_bytes()
                return _verify_segments(folder, meta)
            except (Damaged, OSError, ValueError, KeyError) as error:
                if meta == before:  # no merge has taken the files away meanwhile
                    raise Damaged(f"the records in {self._folder} cannot be read: {error}") from error

    def close(self) -> None:
        """Whoever wrote has heard of a broken disk already, and nothing else is lost with a merge."""
        with suppress(ValueError):
            self._writer.wait_merging_threads()

    def _document(self, record: Record) -> Document:
        document = Document()
        document.add_text("id", record.id)
        for name, value in record.values.items():
            values = listed(value)
            for one in values:
                _add(document, self.fields[name], one)
            if values:
                document.add_text(HAS, name)
        document.add_bytes(_BODY, self.body(record))
        return document


def _found(searcher: Searcher, place: DocAddress, score: float) -> Found:
    return found(searcher.doc(place).get_first(_BODY) or b"", score)


def _make(folder: Path, schema: Schema, kind: Kind) -> None:
    """`fields` comes last: what has none was never finished."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "index").mkdir(parents=True)
    with _explained(folder):
        Index(schema, str(folder / "index"))
        with (folder / "fields").open("wb") as file:
            file.write(declared(kind))
            sync_file(file)
        sync_folders(folder, folder.parent)


def _schema(kind: Kind) -> Schema:
    builder = SchemaBuilder()
    for name in ("id", HAS):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic", fast=name == "id")
    for field in kind.fields:
        match field.type:
            case "text":
                builder.add_text_field(field.name, tokenizer_name="words")
            case "keyword":
                builder.add_text_field(field.name, tokenizer_name="raw", fast=True)
            case "int":
                builder.add_integer_field(field.name, indexed=True, fast=True)
            case "float" | "date":
                builder.add_float_field(field.name, indexed=True, fast=True)
            case "bool":
                builder.add_boolean_field(field.name, indexed=True, fast=True)
    builder.add_bytes_field(_BODY, stored=True)
    return builder.build()


def _add(document: Document, field: Field, value: Value) -> None:
    match field.type:
        case "text" | "keyword":
            document.add_text(field.name, str(value))
        case "int":
            document.add_integer(field.name, int(value))
        case "float" | "date":
            document.add_float(field.name, float(value))
        case "bool":
            document.add_boolean(field.name, bool(value))


def _verify_segments(folder: Path, meta: bytes) -> None:
    for segment in json.loads(meta)["segments"]:
        name, deletes = segment["segment_id"].replace("-", ""), segment["deletes"]
        for suffix in _PARTS if deletes is None else (*_PARTS, f"{deletes['opstamp']}.del"):
            _verify(folder / f"{name}.{suffix}")


def _verify(path: Path) -> None:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - 8))
        end = file.read()
        length = size - 8 - int.from_bytes(end[:4], "little")
        if end[4:] != _MAGIC or length < 0:
            raise Damaged(f"{path} has lost its end")
        file.seek(length)
        said = json.loads(file.read()[:-8])["crc"]
        file.seek(0)
        crc = at = 0
        while chunk := file.read(min(1 << 20, length - at)):
            crc, at = zlib.crc32(chunk, crc), at + len(chunk)
    if crc != said:
        raise Damaged(f"{path} fails its checksum")


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """tantivy says what is wrong with its files as ValueError or OSError, and sometimes panics."""
    try:
        yield
    except SkepError:
        raise
    except Exception as error:
        raise _explain(folder, error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise _explain(folder, error) from error


def _explain(folder: Path, error: BaseException) -> SkepError:
    if "No space left" in str(error) or "quota exceeded" in str(error):
        return NoSpace(f"the disk of {folder} is full", hint="free some space; nothing stored is lost")
    return Damaged(f"the records in {folder} cannot be used: {error}")


# Records in a folder, through tantivy: the engine that needs no server.


async def open_folder(url: str, *, data: Path) -> "FolderRecords":
    """`file:` is DATA/records, `file:PATH` another folder."""
    path = url.partition(":")[2]
    return FolderRecords(Path(path) if path else data / "records")


class FolderRecords(Shelved):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def open(self, kind: Kind) -> FolderShelf:
        return FolderShelf(self._folder / kind.name, kind)

    def set_aside(self, kind: Kind) -> None:
        """One of them is kept for whoever wants to know what happened."""
        folder = self._folder / kind.name
        aside = folder.with_name(folder.name + ".damaged")
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
