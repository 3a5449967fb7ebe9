"""Which workers may do a task: an expression over what is known of a worker. Pure.

    os == "linux" and cpu >= 4 and memory >= 8GB and tools has "gcc" and not labels has "slow"

Numbers may carry KB, MB, GB, TB (1000s) or KiB, MiB, GiB, TiB. `has` looks into a list. Names are those of FACTS.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from skep.base.errors import BadInput

#: name -> its kind of value; a selector that compares apples with pears is refused when it is submitted
FACTS: dict[str, str] = {
    "id": "text",
    "os": "text",
    "arch": "text",
    "kernel": "text",
    "machine": "text",
    "python": "text",
    "isolation": "text",
    "network": "text",
    "cpu": "number",
    "memory": "number",
    "memory_used": "number",
    "disk": "number",
    "disk_free": "number",
    "load": "number",
    "tasks": "number",
    "tools": "list",
    "labels": "list",
    "holds": "list",
}
Facts = Mapping[str, str | float | frozenset[str]]

_UNITS = {"": 1, "%": 0.01}
_UNITS |= {f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)}
_UNITS |= {f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)}
_TOKEN = re.compile(
    r"""\s*(?: (?P<number>\d+(?:\.\d+)?)(?P<unit>[KMGT]i?B|%)?(?![\w.])
    | (?P<text>"[^"]*"|'[^']*')
    | (?P<op>==|!=|<=|>=|<|>|\(|\))
    | (?P<word>[A-Za-z_]\w*) )""",
    re.VERBOSE,
)
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_LONGEST = 2000
_DEEPEST = 50


class _Part(msgspec.Struct, frozen=True):
    """What stands between two `and`s."""

    text: str
    #: facts it looks at, but for lists, which may be long
    names: tuple[str, ...]
    matches: Callable[[Facts], bool]

    def untrue(self, facts: Facts) -> str:
        known = ", ".join(_told(name, facts) for name in self.names)
        return f"{self.text} is not true" + (f" ({known})" if known else "")


class Selector(msgspec.Struct, frozen=True):
    matches: Callable[[Facts], bool]
    #: what is asked of `holds`: nobody lists a million sources, so these are looked up
    held: frozenset[str] = frozenset()
    #: all of them have to be true; one part when the selector is a choice
    parts: tuple[_Part, ...] = ()

    def refusal(self, facts: Facts) -> str:
        """Which parts are not true, and what is; empty when it matches."""
        return "; ".join(part.untrue(facts) for part in self.parts if not part.matches(facts))


class _Token(msgspec.Struct, frozen=True):
    kind: str
    value: str | float
    column: int


@lru_cache(maxsize=4096)
def parse(text: str) -> Selector:
    """An empty text matches every worker. BadInput points at the place that is wrong."""
    if len(text) > _LONGEST:
        raise BadInput(f"a selector of {len(text)} characters; {_LONGEST} are allowed")
    if not text.strip():
        return Selector(lambda facts: True)
    parser = _Parser(text)
    matches = parser.either()
    parser.end()
    parts = parser.parts
    if parser.choice:
        names = dict.fromkeys(name for part in parts for name in part.names)
        parts = [_Part(f"({text.strip()})", tuple(names), matches)]
    return Selector(matches, frozenset(parser.held), tuple(parts))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0
        self.held: set[str] = set()
        self.parts: list[_Part] = []
        self.choice = False

    def either(self) -> Callable[[Facts], bool]:
        parts = [self._both()]
        while self._word("or"):
            self.choice = self.choice or self._depth == 0
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda facts: any(part(facts) for part in parts)

    def end(self) -> None:
        token = self._tokens[self._at]
        if token.kind != "end":
            raise _wrong(token, "here the selector should end, or go on with 'and' or 'or'")

    def _both(self) -> Callable[[Facts], bool]:
        parts = [self._part()]
        while self._word("and"):
            parts.append(self._part())
        return parts[0] if len(parts) == 1 else lambda facts: all(part(facts) for part in parts)

    def _part(self) -> Callable[[Facts], bool]:
        first = self._at
        matches = self._one()
        if self._depth == 0:
            tokens = self._tokens[first : self._at]
            text = self._text[tokens[0].column - 1 : self._tokens[self._at].column - 1].strip()
            words = dict.fromkeys(str(one.value) for one in tokens if one.kind == "word")
            names = tuple(word for word in words if FACTS.get(word, "list") != "list")
            self.parts.append(_Part(text, names, matches))
        return matches

    def _one(self) -> Callable[[Facts], bool]:
        token = self._next()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _wrong(token, "the selector is nested too deeply")
        try:
            if token.kind == "word" and token.value == "not":
                inner = self._one()
                return lambda facts: not inner(facts)
            if token.value == "(" and token.kind == "op":
                inner = self.either()
                self._expect(")")
                return inner
            return self._comparison(token)
        finally:
            self._depth -= 1

    def _comparison(self, name: _Token) -> Callable[[Facts], bool]:
        fact = str(name.value)
        if name.kind != "word" or fact not in FACTS:
            raise _wrong(name, f"a name is wanted: {', '.join(FACTS)}")
        op, value = self._next(), self._next()
        kind = FACTS[fact]
        if kind == "list":
            if op.value != "has" or value.kind != "text":
                raise _wrong(op, f"'{fact}' is a list: write {fact} has \"…\"")
            return self._has(fact, str(value.value))
        if op.value not in _COMPARE or op.kind != "op":
            raise _wrong(op, "a comparison is wanted: == != < <= > >=")
        if value.kind != kind:
            raise _wrong(value, f"'{fact}' is compared with a {kind}")
        if kind == "text" and op.value not in ("==", "!="):
            raise _wrong(op, f"'{fact}' is a text: == or != is wanted")
        compare, wanted, missing = _COMPARE[str(op.value)], value.value, "" if kind == "text" else 0.0
        return lambda facts: compare(facts.get(fact, missing), wanted)  # type: ignore[arg-type]  # FACTS says the kind

    def _has(self, fact: str, wanted: str) -> Callable[[Facts], bool]:
        if fact == "holds":
            self.held.add(wanted)
        return lambda facts: wanted in facts.get(fact, frozenset())  # type: ignore[operator]  # FACTS says the kind

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        if token.kind == "end":
            raise _wrong(token, "the selector ends too early")
        self._at += 1
        return token

    def _word(self, word: str) -> bool:
        token = self._tokens[self._at]
        found = token.kind == "word" and token.value == word
        self._at += found
        return found

    def _expect(self, op: str) -> None:
        token = self._next()
        if token.value != op:
            raise _wrong(token, f"'{op}' is wanted")


def _told(name: str, facts: Facts) -> str:
    value = facts.get(name, "unknown")
    return f"{name} is {value:g}" if isinstance(value, float) else f"{name} is {value}"


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise BadInput(f"the selector cannot be read from '{text[at : at + 20]}' on", column=at + 1)
        kind = str(found.lastgroup if found.lastgroup != "unit" else "number")
        value: str | float = found[kind]
        if kind == "number":
            value = float(found["number"]) * _UNITS[found["unit"] or ""]
        elif kind == "text":
            value = found["text"][1:-1]
        tokens.append(_Token(kind, value, found.start(kind) + 1))
        at = found.end()
    return [*tokens, _Token("end", "", len(text) + 1)]


def _wrong(token: _Token, message: str) -> BadInput:
    return BadInput(f"selector, column {token.column}: {message}", column=token.column)
