"""The query language, from text to tree; docs/search.md says what each piece means.

A word with a colon that is no field (`std::vector`, `http://…`, `default:`) is just a word. So is `->next` or `main()`:
a minus negates only before a word, and parentheses inside a word belong to it.
"""

import difflib
import re
from functools import lru_cache

import msgspec

from skep.errors import BadQuery
from skep.model.search import And, Field, Language, Not, Or, Query, Term, check_length
from skep.search.checks import check_kind, check_past, check_patterns
from skep.search.fields import CASES, KINDS, NAMES, OF_COMMITS, SETTINGS, Kind, Named, find, kind_of, language
from skep.search.moments import EXAMPLES, moment
from skep.search.scanner import FIELD, NEGATION, OR, Scanner, bad

MOST_LINES = 10_000
_MOST_DEPTH = 50

_COMMIT = re.compile(r"(?<!\S)(?:type|t):commit(?!\S)")
_OTHER = re.compile(r"(?<!\S)(?:type|t):(report|record)(?!\S)")
_NAME = re.compile(r"(?!.*(?:\.\.|@\{))[\w.][\w./+@-]{0,199}")
_ESCAPES = re.compile(r"\\(?:[pPx]\{[^}]*\}|[pP]?.|$)|\(\?P?<\w*>|\[\[:\^?[a-z]+:\]", re.DOTALL)


class Asked(msgspec.Struct, frozen=True):
    """What a text asks for."""

    query: Query
    kind: Kind = "line"
    #: lines wanted (files or sources where the kind is one of these); None: whatever is usual
    count: int | None = None
    #: of reports and records, which are asked in words of their own: the text, with blanks where its `type:` stands
    words: str = ""
    #: of commits: when, as it was written
    after: str = ""
    before: str = ""
    #: the name of the one whose files are asked for; empty: of those that are indexed
    commit: str = ""
    #: of settings and the first `lang:`: where they stand, for errors; from 1
    columns: dict[str, int] = {}


class _Found(msgspec.Struct):
    """A term whose case is not settled yet: `case:` may come later."""

    field: Field
    pattern: str
    regex: bool
    column: int


class _Branch(msgspec.Struct):
    kind: type[And] | type[Or] | type[Not]
    parts: "tuple[_Tree, ...]"


_Tree = _Found | _Branch | Language


def parse(text: str) -> Query:
    """The tree alone."""
    return ask(text).query


@lru_cache(1000)  # pages and saved searches ask the same again
def ask(text: str) -> Asked:
    """BadQuery points at the column of what is wrong, in the syntax or inside a regular expression."""
    check_length(text)
    if other := _OTHER.search(text):
        kind: Kind = "report" if other[1] == "report" else "record"
        words = f"{text[: other.start()]}{' ' * len(other[0])}{text[other.end() :]}"
        return Asked(And(()), kind, words=words.rstrip(), columns={"type": other.start() + 1})
    asked = _Parser(text).parse()
    check_patterns(asked.query)
    check_kind(asked.query, asked.kind, asked.columns)
    if asked.commit:
        check_past(asked.query, asked.kind, asked.columns["commit"])
    return asked


class _Parser:
    def __init__(self, text: str) -> None:
        self._scan = Scanner(text)
        self._settings: dict[str, str] = {}
        self._columns: dict[str, int] = {}

    def parse(self) -> Asked:
        tree = self._either()
        kind = kind_of(self._settings.get("type", "line")) or "line"
        if tree is None and kind not in ("repo", "commit"):
            raise bad("the query is empty", 0, "write a word to search for, such as `main`")
        count = self._settings.get("count")
        number = None if count is None else MOST_LINES if count == "all" else min(int(count), MOST_LINES)
        query = And(()) if tree is None else self._settle(tree, kind)
        more = {name: self._settings.get(name, "") for name in ("after", "before", "commit")}
        return Asked(query, kind, number, columns=self._columns, **more)

    def _either(self) -> _Tree | None:
        """Alternatives, up to the end of the text or of the group."""
        parts: list[_Tree] = []
        column = self._scan.skip()
        while True:
            part = self._both()
            start = self._scan.at
            more = self._scan.take(OR)
            if part is None and (parts or more):
                raise bad("nothing to search for beside `or`", column, 'write "or" in quotes to search for it')
            if part is not None:
                parts.append(part)
            if not more:
                break
            column = start
        return None if not parts else parts[0] if len(parts) == 1 else _Branch(Or, tuple(parts))

    def _both(self) -> _Tree | None:
        scan = self._scan
        parts: list[_Tree] = []
        while scan.skip() < len(scan.text) and not scan.ends_group() and not scan.sees(OR):
            part = self._one()
            if part is not None:
                parts.append(part)
        return None if not parts else parts[0] if len(parts) == 1 else _Branch(And, tuple(parts))

    def _one(self) -> _Tree | None:
        """A term, a group, or None for a setting, which is no term."""
        scan = self._scan
        start = scan.at
        if scan.take(NEGATION):
            part = self._one()
            if part is None:
                raise bad(
                    f"{', '.join(f'`{name}:`' for name in SETTINGS)} cannot be negated", start, "leave the minus out"
                )
            return _Branch(Not, (part,))
        if scan.text[start] == "(":
            return self._group()
        written = FIELD.match(scan.text, start)
        field = written and self._field_of(written)
        if written is None or field is None:
            return self._plain("any", is_regex=False)
        scan.at = written.end()
        if scan.ends_word():
            name = written[1]
            raise bad(f"`{name}:` needs a value", start, f'write it right behind: {name}:value, or "{name}:"')
        if field.term is None:
            self._columns.setdefault(field.name, start + 1)
        if field.name in SETTINGS:
            self._set(field.name, start)
            return None
        if field.term is None:
            return self._language()
        return self._plain(field.term, is_regex=field.term != "content")

    def _group(self) -> _Tree:
        scan = self._scan
        start = scan.at
        scan.at += 1
        scan.depth += 1
        if scan.depth > _MOST_DEPTH:
            raise bad("the groups are nested too deeply", start, "use fewer parentheses")
        tree = self._either()
        hint = 'write it in quotes to search for it: "("'
        if scan.ends():
            raise bad("this parenthesis is never closed", start, hint)
        if tree is None:
            raise bad("there is nothing in this group", start, hint)
        scan.at += 1
        scan.depth -= 1
        return tree

    def _field_of(self, written: re.Match[str]) -> Named | None:
        """None: the colon belongs to a word."""
        name, rest = written[1], self._scan.text[written.end() : written.end() + 2]
        if field := find(name):
            ends = not rest or rest[0] in " \t\n)"
            of_commits = name in OF_COMMITS and not _COMMIT.search(self._scan.text)
            is_word = rest.startswith(":") or (ends and (of_commits or name == "commit"))
            return None if is_word else field
        if not rest or rest[0] in ": \t\n)" or rest == "//":
            return None
        close = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.5)
        hint = f'write "{name}:…" in quotes to search for the text'
        if close:
            hint = f"did you mean `{close[0]}:`? Or {hint}"
        raise bad(f"there is no field `{name}:`", written.start(), hint)

    def _set(self, name: str, start: int) -> None:
        value = self._scan.value()
        if name in self._settings:
            raise bad(f"`{name}:` is given twice", start, "keep one of them")
        known = {
            "case": value in CASES,
            "type": kind_of(value) is not None,
            "count": _is_count(value),
            "commit": _NAME.fullmatch(value) is not None,
        }
        if not known.get(name, moment(value, 0.0) is not None):
            choices = {"case": CASES, "type": KINDS, "count": ("100", "all"), "commit": ("4f2a9c1d", "v1.2")}
            choice = choices.get(name, EXAMPLES)
            several = ", ".join(f"{name}:{one}" for one in choice[:-1])
            hint = f'write {several} or {name}:{choice[-1]}; or "{name}:…" in quotes to search for the text'
            raise bad(f"`{name}:{value}` is not known", start, hint)
        self._settings[name] = value

    def _language(self) -> Language:
        start = self._scan.at
        value = self._scan.value()
        try:
            return Language(language(value))
        except BadQuery as error:
            raise bad(error.message, start, error.hint) from None

    def _plain(self, field: Field, is_regex: bool) -> _Found:
        """A quoted text, /a regular expression/ or a bare word. `is_regex`: what a bare word is."""
        scan = self._scan
        start = scan.at
        opening = scan.text[start]
        if opening == '"':
            found = _Found(field, scan.quoted(), False, start + 1)
        elif opening == "/" and (not is_regex or field == "symbol") and (end := scan.slash()) is not None:
            found = _Found(field, scan.text[start + 1 : end], True, start + 2)
            scan.at = end + 1
        else:
            found = _Found(field, scan.word(is_regex), is_regex, start + 1)
        if not found.pattern:
            raise bad("there is nothing to search for here", start, "write at least one character")
        return found

    def _settle(self, tree: _Tree, kind: Kind) -> Query:
        if isinstance(tree, Language):
            return tree
        if isinstance(tree, _Found):
            case = self._settings.get("case", "auto")
            sensitive = case == "yes" or (case == "auto" and _has_capital(tree))
            return Term(_meant(tree.field, kind), tree.pattern, tree.regex, sensitive, tree.column)
        parts = tuple(self._settle(part, kind) for part in tree.parts)
        return Not(parts[0]) if tree.kind is Not else And(parts) if tree.kind is And else Or(parts)


def _meant(field: Field, kind: Kind) -> Field:
    """Who asks for sources or paths means their names with a bare word."""
    bare: dict[Kind, Field] = {"repo": "source", "path": "path"}
    return bare.get(kind, field) if field == "any" else field


def _is_count(value: str) -> bool:
    return value == "all" or (value.isdecimal() and value.isascii() and len(value) < 10 and int(value) > 0)


def _has_capital(found: _Found) -> bool:
    text = _ESCAPES.sub("", found.pattern) if found.regex else found.pattern
    return any(char.isupper() for char in text)
