"""The pieces a query's text is made of: words, quoted texts, regular expressions."""

import re

from skep.errors import BadQuery

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
