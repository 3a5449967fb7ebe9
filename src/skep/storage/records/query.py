r"""What is asked of records, from text to tree.

ice core             both words                            "ice core"        side by side
ice or snow          either (also OR, AND, NOT)            -ice              records without it
title:ice            in one field                          author:"J. Doe"   a keyword is compared whole
glaci*               a word that begins so                 title:(ice or snow)
origin:*sm?th*       anything for *, one letter for ?      id:a\*b           a star as it is
date:[2001 TO 2005]  a range with its ends ({ } without)   size:[100 TO *]   open to one side
date:2001-05         all of that month                     title:*           has a title
"""

import difflib
import re
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from skep.base.errors import BadQuery
from skep.storage.code_index.model import check_length
from skep.storage.records.base import Bounds, Field, Kind, bounds

MOST_CLAUSES = 200
_MOST_DEPTH = 50
#: beside stars and question marks: fewer are in too many words
_LEAST_LETTERS = 2

_NAMED = re.compile(r"([A-Za-z_][\w.]*):(?!//|\s|$)")
_NEGATION = re.compile(r"-(?=\S)|(?:NOT|not)\s+(?=\S)")
_OR = re.compile(r"(?:or|OR)(?=[\s()]|$)")
_AND = re.compile(r"(?:and|AND)(?=[\s()]|$)")
_RANGE = re.compile(r'([\[{])\s*("[^"]*"|[^\s\]}]+)\s+TO\s+("[^"]*"|[^\s\]}]+)\s*([\]}])')
_WORD = re.compile(r'(?:\\.|[^\s()"])+', re.DOTALL)
_LETTER = re.compile(r"\\.|.", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


T = TypeVar("T")


class Words(msgspec.Struct, frozen=True):
    """The text's words side by side in any of the fields; with `prefix`, the last of them begins so."""

    fields: tuple[Field, ...]
    text: str
    prefix: bool
    column: int


class Whole(msgspec.Struct, frozen=True):
    """A keyword, whole."""

    field: Field
    text: str


class Like(msgspec.Struct, frozen=True):
    """A word of text or a keyword that these parts make up, in order; every second one is a star or a question mark."""

    field: Field
    parts: tuple[str, ...]
    column: int


class Range(msgspec.Struct, frozen=True):
    """A number, date or truth value between bounds."""

    field: Field
    bounds: Bounds


class Has(msgspec.Struct, frozen=True):
    field: Field


class All(msgspec.Struct, frozen=True):
    parts: "tuple[Tree, ...]"


class Any(msgspec.Struct, frozen=True):
    parts: "tuple[Tree, ...]"


class Not(msgspec.Struct, frozen=True):
    part: "Tree"


Tree = Words | Whole | Like | Range | Has | All | Any | Not


def parse(kind: Kind, text: str) -> Tree:
    """An empty text asks for everything. BadQuery points at the column of what is wrong."""
    check_length(text)
    return _Parser(kind, text).parse()


class _Parser:
    def __init__(self, kind: Kind, text: str) -> None:
        self._kind = kind
        self._text = text
        self._at = 0
        self._depth = 0
        self._clauses = 0
        #: in which fields a bare word is searched: those of the group it stands in
        self._fields = tuple(kind.need(name, "search words in") for name in kind.words)

    def parse(self) -> Tree:
        tree = self._either()
        if self._at < len(self._text):
            raise self._bad("this parenthesis was never opened", 'write it in quotes to search for it: ")"')
        return tree or All(())

    def _either(self) -> Tree | None:
        """Alternatives, up to the end of the text or of the group."""
        parts: list[Tree] = []
        while True:
            part = self._both()
            more = _OR.match(self._text, self._at)
            if part is None and (parts or more):
                raise self._bad("nothing to search for beside `or`", 'write "or" in quotes to search for it')
            if part is not None:
                parts.append(part)
            if not more:
                return None if not parts else parts[0] if len(parts) == 1 else Any(tuple(parts))
            self._at = more.end()

    def _both(self) -> Tree | None:
        parts: list[Tree] = []
        while not self._ends() and not _OR.match(self._text, self._at):
            if parts and (more := _AND.match(self._text, self._at)):
                self._at = more.end()
                if self._ends():
                    raise self._bad("nothing to search for after `and`", "write another word, or leave `and` out")
            parts.append(self._one())
        return None if not parts else parts[0] if len(parts) == 1 else All(tuple(parts))

    def _one(self) -> Tree:
        self._clauses += 1
        if self._clauses > MOST_CLAUSES:
            raise self._bad(f"the query has more than {MOST_CLAUSES} words", "ask for fewer at a time")
        if negation := _NEGATION.match(self._text, self._at):
            self._at = negation.end()
            return Not(self._deeper(self._one))
        if self._text[self._at] == "(":
            return self._group(self._fields)
        if (named := _NAMED.match(self._text, self._at)) and (field := self._named(named)):
            self._at = named.end()
            return self._valued(field)
        return self._words(self._fields)

    def _named(self, named: re.Match[str]) -> Field | None:
        field = self._kind.field(named[1])
        if field is None:
            names = [*self._kind.also, *(field.name for field in self._kind.fields)]
            close = difflib.get_close_matches(named[1], names, n=1, cutoff=0.5)
            quoted = f'write "{named[1][:100]}:…" in quotes to search for the text'
            hint = f"did you mean `{close[0]}:`? Or {quoted}" if close else quoted
            raise self._bad(f"there is no field `{named[1][:100]}:`", hint)
        return field

    def _valued(self, field: Field) -> Tree:
        opening = self._text[self._at]
        if opening == "(":
            return self._group((field,))
        if opening in "[{":
            return self._range(field)
        if self._text[self._at] == "*" and (self._at + 1 == len(self._text) or self._text[self._at + 1] in " )"):
            self._at += 1
            return Has(field)
        return self._words((field,))

    def _group(self, fields: tuple[Field, ...]) -> Tree:
        start = self._at
        self._at += 1
        outside, self._fields = self._fields, fields
        tree = self._deeper(self._either)
        self._fields = outside
        if self._at >= len(self._text):
            raise self._bad("this parenthesis is never closed", 'write it in quotes to search for it: "("', start)
        if tree is None:
            raise self._bad("there is nothing in this group", "write a word inside, or take it away", start)
        self._at += 1
        return tree

    def _deeper(self, work: Callable[[], T]) -> T:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self._bad("the query is nested too deeply", "use fewer parentheses")
        done = work()
        self._depth -= 1
        return done

    def _range(self, field: Field) -> Tree:
        found = _RANGE.match(self._text, self._at)
        if not found:
            raise self._bad("this is no range", "write [low TO high]; * for an open end")
        ends = [self._bounds(field, found[nth].strip('"'), found.start(nth)) for nth in (2, 3)]
        self._at = found.end()
        low = ends[0].low if found[1] == "[" else ends[0].after
        return Range(field, Bounds(low, ends[1].after if found[4] == "]" else ends[1].low))

    def _words(self, fields: tuple[Field, ...]) -> Tree:
        """One value: quoted, or up to the next space."""
        start = self._at
        quoted = _QUOTED.match(self._text, self._at)
        word = quoted or _WORD.match(self._text, self._at)
        if word is None:
            raise self._bad("this quote is never closed", 'write \\" for a quote inside quotes')
        self._at = word.end()
        pieces = [re.sub(r"\\(.)", r"\1", word[1])] if quoted else _pieces(word[0])
        if len(pieces) > 1 and len("".join(pieces[::2])) < _LEAST_LETTERS:
            raise self._bad(
                f"write at least {_LEAST_LETTERS} letters beside stars and question marks",
                "they stand for parts of a word",
                start,
            )
        texts = tuple(field for field in fields if field.type == "text")
        parts = [self._value(field, pieces, start) for field in fields if field.type != "text"]
        if texts and not _is_like(pieces):
            parts.append(Words(texts, pieces[0], len(pieces) > 1, start + 1))
        elif texts:
            parts += [Like(field, tuple(pieces), start + 1) for field in texts]
        return parts[0] if len(parts) == 1 else Any(tuple(parts))

    def _value(self, field: Field, pieces: list[str], start: int) -> Tree:
        if field.type != "keyword":
            return Range(field, self._bounds(field, "".join(pieces), start))
        if _is_like(pieces):
            return Like(field, tuple(pieces), start + 1)
        if len(pieces) > 1:
            return Words((field,), pieces[0], True, start + 1)
        meant = self._kind.meant.get(field.name)
        return Whole(field, self._read(meant, pieces[0], start) if meant else pieces[0])

    def _bounds(self, field: Field, text: str, start: int) -> Bounds:
        return self._read(partial(bounds, field), text, start)

    def _read(self, read: Callable[[str], T], text: str, start: int) -> T:
        """A value that stands there."""
        try:
            return read(text)
        except BadQuery as error:
            raise BadQuery(error.message, hint=error.hint, column=start + 1) from None

    def _ends(self) -> bool:
        """At the end of the text or of a group, once spaces are skipped."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at >= len(self._text) or self._text[self._at] == ")"

    def _bad(self, message: str, hint: str, at: int | None = None) -> BadQuery:
        return BadQuery(message, hint=hint, column=(self._at if at is None else at) + 1)


def _pieces(word: str) -> list[str]:
    """What stands between stars and question marks, and those; a backslash makes either of them a letter."""
    pieces = [""]
    for letter in _LETTER.findall(word):
        if letter in ("*", "?"):
            pieces += [letter, ""]
        else:
            pieces[-1] += letter[-1]
    return pieces


def _is_like(pieces: list[str]) -> bool:
    """More than a whole word, or the beginning of one."""
    return len(pieces) > 1 and pieces[1:] != ["*", ""]
