"""The query language, from text to tree; docs/search.md says what each piece means.

A word with a colon that is no field (`std::vector`, `http://…`, `default:`) is just a word. So is `->next` or `main()`:
a minus negates only before a word, and parentheses inside a word belong to it.
"""

import difflib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal, get_args

import msgspec

from skep.base.errors import BadQuery
from skep.languages.languages import languages, named
from skep.storage.code_index.base import compile_term, encode
from skep.storage.code_index.model import And, Field, Language, Not, Or, Query, Term, check_length, terms

# The words before a colon that a query may use, with the short spellings of Zoekt.

#: what the answer is made of: matching lines, whole files, sources, files by their path, commits, or what others keep
Kind = Literal["line", "file", "repo", "path", "commit", "report", "record"]

#: those that are matched, and what they are in a query
FIELDS: Final[dict[str, Field]] = {
    "repo": "source",
    "file": "path",
    "path": "path",
    "sym": "symbol",
    "branch": "branch",
    "content": "content",
    "author": "author",
}
_SHORT: Final = {"r": "repo", "f": "file", "b": "branch", "l": "lang", "s": "sym", "c": "content", "t": "type"}
#: true of the whole query wherever they stand
SETTINGS: Final = ("case", "type", "count", "commit", "after", "before")
#: fields of commits; elsewhere they are words where no value follows
OF_COMMITS: Final = ("author", "after", "before")

#: full names, as they are completed and suggested
NAMES: Final[dict[str, str]] = {
    "repo": "the source's name matches",
    "file": "the path matches",
    "lang": "written in this language",
    "sym": "defines something of this name",
    "branch": "on this branch",
    "content": "in the content only",
    "case": "yes, no or auto",
    "type": "file, repo, path, commit, report or record",
    "count": "lines wanted, or all",
    "commit": "in the files as they were at this commit or tag",
    "author": "of commits: whose name or address matches",
    "after": "of commits: not before this day, or 30d ago",
    "before": "of commits: before this day",
}
CASES: Final = ("yes", "no", "auto")
#: Zoekt's names for the first and the second
_KINDS: Final[dict[str, Kind]] = {"filematch": "line", "filename": "file"}
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class Named(msgspec.Struct, frozen=True):
    """A field by its full name; `term` is None for `lang:` and for settings."""

    name: str
    term: Field | None


def find(word: str) -> Named | None:
    name = _SHORT.get(word, word)
    if name not in NAMES and name not in FIELDS:
        return None
    return Named(name, FIELDS.get(name))


def kind_of(value: str) -> Kind | None:
    known: dict[str, Kind] = {**_KINDS, **{kind: kind for kind in KINDS}}
    return known.get(value)


def language(value: str) -> str:
    """The name of the one that is meant by a name or an alias, whatever its case; BadQuery guesses at it."""
    if found := named(value):
        return found
    close = difflib.get_close_matches(value.lower(), [name.lower() for name in languages()], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(f'`{one}`' for one in close)}?" if close else "see docs/search.md"
    raise BadQuery(f"there is no language `{value[:100]}`", hint=hint)


# Whether a query, once it is read, can be answered.

MOST_TERMS = 200


def check_patterns(query: Query) -> None:
    """Every pattern can be run."""
    for count, term in enumerate(terms(query), start=1):
        if count > MOST_TERMS:
            raise BadQuery(f"the query has more than {MOST_TERMS} words", column=term.column)
        if term.regex:
            compile_term(term)
        else:
            encode(term)


def check_kind(query: Query, kind: Kind, columns: Mapping[str, int]) -> None:
    """Commits have no paths, and files no author. `columns`: where settings and `lang:` stand."""
    of_commits = kind == "commit"
    timed = [columns[name] for name in ("after", "before") if name in columns]
    if timed and not of_commits:
        hint = "add type:commit, or leave them out"
        raise BadQuery("`after:` and `before:` are about commits", hint=hint, column=min(timed))
    if of_commits and "lang" in columns:
        raise BadQuery("a commit has no `lang:`", hint="leave it out, or `type:commit`", column=columns["lang"])
    for term in terms(query):
        name = next((name for name, field in FIELDS.items() if field == term.field), "")
        if of_commits and term.field in ("path", "symbol"):
            raise BadQuery(f"a commit has no `{name}:`", hint="leave it out, or `type:commit`", column=term.column)
        if of_commits and term.field == "branch" and term not in needed(query):
            raise BadQuery("`branch:` of commits can only narrow", hint="write it beside `or`", column=term.column)
        if not of_commits and term.field == "author":
            raise BadQuery("`author:` is about commits", hint="add type:commit", column=term.column)


def check_past(query: Query, kind: Kind, column: int) -> None:
    """With `commit:`, which stands at that column, the files of one commit are searched."""
    if kind in ("repo", "commit"):
        raise BadQuery("`commit:` is about files", hint=f"leave it out, or `type:{kind}`", column=column)
    for term in terms(query):
        if term.field == "branch":
            raise BadQuery("a commit is on any branch", hint="leave `branch:` or `commit:` out", column=term.column)


def needed(query: Query) -> list[Term]:
    """The terms that stand for themselves: neither negated nor one of several."""
    if isinstance(query, And):
        return [term for part in query.parts for term in needed(part)]
    return [query] if isinstance(query, Term) else []


# Times as people write them in a query. Pure.

EXAMPLES = ("2026-01-31", "2026-01-31T12:00", "30d")

_AGO = re.compile(r"([0-9]{1,4})([hdwmy])")
_SECONDS = {"h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0, "m": 30 * 86_400.0, "y": 365 * 86_400.0}
#: what a year, or a month of a year, lacks of a day
_REST = {4: "-01-01", 7: "-01"}


def moment(text: str, now: float) -> float | None:
    """A year, month, day or minute, in UTC unless it says otherwise; or so long ago. None: it is no time."""
    if ago := _AGO.fullmatch(text):
        return now - int(ago[1]) * _SECONDS[ago[2]]
    try:
        read = datetime.fromisoformat(text + _REST.get(len(text), ""))
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


# The pieces a query's text is made of: words, quoted texts, regular expressions.

# these look at the query's own syntax; users' patterns are only ever run by RE2
NEGATION = re.compile(r'-(?=[\w"/(])')
OR = re.compile(r"(?:or|OR)(?=[\s()]|$)")
FIELD = re.compile(r"([a-z]{1,20}):")


class Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        #: open groups around `at`
        self.depth = 0

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def sees(self, pattern: re.Pattern[str]) -> bool:
        return pattern.match(self.text, self.at) is not None

    def quoted(self) -> str:
        start = self.at
        pieces: list[str] = []
        at = start + 1
        while at < len(self.text):
            char = self.text[at]
            if char == '"':
                self.at = at + 1
                return "".join(pieces)
            if char == "\\" and self.text[at + 1 : at + 2] in ('"', "\\"):
                at += 1
                char = self.text[at]
            pieces.append(char)
            at += 1
        raise bad("this quote is never closed", start, 'write \\" for a quote inside quotes')

    def slash(self) -> int | None:
        """Where the regular expression that starts here ends; `/usr/lib` has none and is a word."""
        at = self.at + 1
        while at < len(self.text):
            if self.text[at] == "\\":
                at += 1
            elif self.text[at] == "/":
                ends = at + 1 >= len(self.text) or self.text[at + 1].isspace() or self.text[at + 1] == ")"
                if ends:
                    return at if at > self.at + 1 else None
            at += 1
        return None

    def word(self, is_regex: bool) -> str:
        """Up to a space, or to a parenthesis that closes what was not opened inside the word."""
        start, opened = self.at, 0
        while self.at < len(self.text) and not self.text[self.at].isspace():
            char = self.text[self.at]
            if char == "\\" and is_regex:
                self.at += 1
            elif char == "(":
                opened += 1
            elif char == ")":
                if not opened and self.depth:
                    break
                opened -= 1
            self.at += 1
        self.at = min(self.at, len(self.text))
        return self.text[start : self.at]

    def value(self) -> str:
        """Of a field that takes a name: quoted or not."""
        return self.quoted() if self.text[self.at] == '"' else self.word(is_regex=False)

    def ends(self) -> bool:
        return self.at >= len(self.text)

    def ends_word(self) -> bool:
        return self.ends() or self.text[self.at].isspace() or self.ends_group()

    def ends_group(self) -> bool:
        return self.depth > 0 and self.text[self.at : self.at + 1] == ")"

    def skip(self) -> int:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.at


def bad(message: str, at: int, hint: str) -> BadQuery:
    return BadQuery(message, hint=hint, column=at + 1)


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
