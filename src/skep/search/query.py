"""The query language, from text to tree.

    foo bar              both words, anywhere in a file        "foo bar"     the text with its space
    foo or bar           either                                /fo+\\(/       a regular expression (RE2)
    -foo                 files without it                      (a or b) c    groups
    repo:skep file:\\.py$ the source's name, the path (r: f: path:); a regular expression, or a quoted text
    case:yes             yes, no, or auto: case matters when the word has a capital
    content:repo:x       the text `repo:x`

A word with a colon that is no field (`std::vector`, `http://…`, `default:`) is just a word. So is `->next` or `main()`:
a minus negates only before a word, and parentheses inside a word belong to it.
"""

import difflib
import re
from typing import Final

import msgspec

from skep.engines.index.dialect import compile_term, encode
from skep.errors import BadQuery
from skep.model.search import And, Field, Not, Or, Query, Term, terms

MOST_CHARACTERS = 10_000
MOST_TERMS = 200
_MOST_DEPTH = 50

_FIELDS: Final[dict[str, Field]] = {
    "content": "content",
    "file": "path",
    "path": "path",
    "f": "path",
    "repo": "source",
    "r": "source",
    "branch": "branch",
    "b": "branch",
}
# these look at the query's own syntax; users' patterns are only ever run by RE2
_NAMED = re.compile(r"([a-z]{1,20}):")
_NEGATION = re.compile(r'-(?=[\w"/(])')
_OR = re.compile(r"(?:or|OR)(?=[\s()]|$)")
_ESCAPES = re.compile(r"\\(?:[pPx]\{[^}]*\}|[pP]?.|$)|\(\?P?<\w*>|\[\[:\^?[a-z]+:\]", re.DOTALL)


class _Found(msgspec.Struct):
    """A term whose case is not settled yet: `case:` may come later."""

    field: Field
    pattern: str
    regex: bool
    column: int


def parse(text: str) -> Query:
    """BadQuery points at the column of what is wrong, in the syntax or inside a regular expression."""
    if len(text) > MOST_CHARACTERS:
        raise BadQuery(f"the query has {len(text)} characters; at most {MOST_CHARACTERS} are allowed")
    query = _Parser(text).parse()
    check(query)
    return query


def check(query: Query) -> None:
    """Every pattern can be run."""
    for count, term in enumerate(terms(query), start=1):
        if count > MOST_TERMS:
            raise BadQuery(f"the query has more than {MOST_TERMS} words", column=term.column)
        if term.regex:
            compile_term(term)
        else:
            encode(term)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._case: str | None = None

    def parse(self) -> Query:
        tree = self._either()
        if tree is None:
            raise BadQuery("the query is empty", hint="write a word to search for, such as `main`", column=1)
        return self._settle(tree)

    def _either(self) -> "_Tree | None":
        """Alternatives, up to the end of the text or of the group."""
        parts: list[_Tree] = []
        column = self._skip()
        while True:
            part = self._both()
            more = _OR.match(self._text, self._at)
            if part is None and (parts or more):
                raise self._bad("nothing to search for beside `or`", column, 'write "or" in quotes to search for it')
            if part is not None:
                parts.append(part)
            if not more:
                break
            column = self._at
            self._at = more.end()
        return None if not parts else parts[0] if len(parts) == 1 else _Branch(Or, tuple(parts))

    def _both(self) -> "_Tree | None":
        parts: list[_Tree] = []
        while self._skip() < len(self._text) and not self._ends_group() and not _OR.match(self._text, self._at):
            part = self._one()
            if part is not None:
                parts.append(part)
        return None if not parts else parts[0] if len(parts) == 1 else _Branch(And, tuple(parts))

    def _one(self) -> "_Tree | None":
        """A term, a group, or None for `case:`, which is no term."""
        start = self._at
        if negation := _NEGATION.match(self._text, self._at):
            self._at = negation.end()
            part = self._one()
            if part is None:
                raise self._bad("`case:` cannot be negated", start, "write case:yes or case:no")
            return _Branch(Not, (part,))
        if self._text[self._at] == "(":
            return self._group()
        named = _NAMED.match(self._text, self._at)
        if named and self._is_field(named):
            self._at = named.end()
            return self._field(named[1], start)
        return self._plain("content", is_regex=False)

    def _group(self) -> "_Tree":
        start = self._at
        self._at += 1
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self._bad("the groups are nested too deeply", start, "use fewer parentheses")
        tree = self._either()
        hint = 'write it in quotes to search for it: "("'
        if self._at >= len(self._text):
            raise self._bad("this parenthesis is never closed", start, hint)
        if tree is None:
            raise self._bad("there is nothing in this group", start, hint)
        self._at += 1
        self._depth -= 1
        return tree

    def _is_field(self, named: re.Match[str]) -> bool:
        name, rest = named[1], self._text[named.end() : named.end() + 2]
        if name in _FIELDS or name == "case":
            return not rest.startswith(":")
        if not rest or rest[0] in ": \t\n)" or rest == "//":
            return False
        close = difflib.get_close_matches(name, [*_FIELDS, "case"], n=1, cutoff=0.5)
        hint = f'write "{name}:…" in quotes to search for the text'
        if close:
            hint = f"did you mean `{close[0]}:`? Or {hint}"
        raise self._bad(f"there is no field `{name}:`", named.start(), hint)

    def _field(self, name: str, start: int) -> "_Found | None":
        if self._at >= len(self._text) or self._text[self._at].isspace() or self._ends_group():
            raise self._bad(f"`{name}:` needs a value", start, f'write it right behind: {name}:value, or "{name}:"')
        if name != "case":
            return self._plain(_FIELDS[name], is_regex=_FIELDS[name] != "content")
        value = self._word(is_regex=False)
        if self._case is not None:
            raise self._bad("`case:` is given twice", start, "keep one of them")
        if value not in ("yes", "no", "auto"):
            raise self._bad(f"`case:{value}` is not known", start, "write case:yes, case:no or case:auto")
        self._case = value
        return None

    def _plain(self, field: Field, is_regex: bool) -> _Found:
        """A quoted text, /a regular expression/ or a bare word. `is_regex`: what a bare word is."""
        start = self._at
        opening = self._text[start]
        if opening == '"':
            found = _Found(field, self._quoted(), False, start + 1)
        elif opening == "/" and not is_regex and (end := self._slash()) is not None:
            found = _Found(field, self._text[start + 1 : end], True, start + 2)
            self._at = end + 1
        else:
            found = _Found(field, self._word(is_regex), is_regex, start + 1)
        if not found.pattern:
            raise self._bad("there is nothing to search for here", start, "write at least one character")
        return found

    def _quoted(self) -> str:
        start = self._at
        pieces: list[str] = []
        at = start + 1
        while at < len(self._text):
            char = self._text[at]
            if char == '"':
                self._at = at + 1
                return "".join(pieces)
            if char == "\\" and self._text[at + 1 : at + 2] in ('"', "\\"):
                at += 1
                char = self._text[at]
            pieces.append(char)
            at += 1
        raise self._bad("this quote is never closed", start, 'write \\" for a quote inside quotes')

    def _slash(self) -> int | None:
        """Where the regular expression that starts here ends; `/usr/lib` has none and is a word."""
        at = self._at + 1
        while at < len(self._text):
            if self._text[at] == "\\":
                at += 1
            elif self._text[at] == "/":
                ends = at + 1 >= len(self._text) or self._text[at + 1].isspace() or self._text[at + 1] == ")"
                if ends:
                    return at if at > self._at + 1 else None
            at += 1
        return None

    def _word(self, is_regex: bool) -> str:
        """Up to a space, or to a parenthesis that closes what was not opened inside the word."""
        start, opened = self._at, 0
        while self._at < len(self._text) and not self._text[self._at].isspace():
            char = self._text[self._at]
            if char == "\\" and is_regex:
                self._at += 1
            elif char == "(":
                opened += 1
            elif char == ")":
                if not opened and self._depth:
                    break
                opened -= 1
            self._at += 1
        self._at = min(self._at, len(self._text))
        return self._text[start : self._at]

    def _ends_group(self) -> bool:
        return self._depth > 0 and self._text[self._at : self._at + 1] == ")"

    def _skip(self) -> int:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at

    def _bad(self, message: str, at: int, hint: str) -> BadQuery:
        return BadQuery(message, hint=hint, column=at + 1)

    def _settle(self, tree: "_Tree") -> Query:
        if isinstance(tree, _Found):
            case = self._case == "yes" or (self._case != "no" and _has_capital(tree))
            return Term(tree.field, tree.pattern, tree.regex, case, tree.column)
        parts = tuple(self._settle(part) for part in tree.parts)
        return Not(parts[0]) if tree.kind is Not else And(parts) if tree.kind is And else Or(parts)


class _Branch(msgspec.Struct):
    kind: type[And] | type[Or] | type[Not]
    parts: "tuple[_Tree, ...]"


_Tree = _Found | _Branch


def _has_capital(found: _Found) -> bool:
    text = _ESCAPES.sub("", found.pattern) if found.regex else found.pattern
    return any(char.isupper() for char in text)
