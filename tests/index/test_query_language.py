"""From text to tree: what each piece means, and where an error points."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.base.errors import BadQuery
from skep.search.query import MOST_LINES, Asked, ask, parse
from skep.storage.code_index.model import And, Language, Not, Or, Query, Term, terms


def word(pattern: str, column: int = 1, *, regex: bool = False, case: bool = False, field: str = "any") -> Term:
    return Term(field, pattern, regex, case, column)  # type: ignore[arg-type]


MEANINGS: list[tuple[str, Query]] = [
    ("foo", word("foo")),
    ("foo bar", And((word("foo"), word("bar", 5)))),
    ("foo or bar", Or((word("foo"), word("bar", 8)))),
    ("a b OR c", Or((And((word("a"), word("b", 3))), word("c", 8)))),
    ("-foo", Not(word("foo", 2))),
    ("-(a or b) c", And((Not(Or((word("a", 3), word("b", 8)))), word("c", 11)))),
    ('"a \\"b\\\\"', word('a "b\\')),
    ('-"a b"', Not(word("a b", 2))),
    ("/fo+\\/x/", word("fo+\\/x", 2, regex=True)),
    ("/a b/ c", And((word("a b", 2, regex=True), word("c", 7)))),
    ("/usr/lib", word("/usr/lib")),
    ("file:\\.py$", word("\\.py$", 6, regex=True, field="path")),
    ("f:x", word("x", 3, regex=True, field="path")),
    ("path:x", word("x", 6, regex=True, field="path")),
    ('r:"a b"', word("a b", 3, field="source")),
    ("repo:^github", word("^github", 6, regex=True, field="source")),
    ("file:(a|b)\\.c", word("(a|b)\\.c", 6, regex=True, field="path")),
    ("-file:x", Not(word("x", 7, regex=True, field="path"))),
    ("content:file:x", word("file:x", 9, field="content")),
    ("content:/x/", word("x", 10, regex=True, field="content")),
    ("c:x", word("x", 3, field="content")),
    ("branch:^v1", word("^v1", 8, regex=True, field="branch")),
    ('b:"a"', word("a", 3, field="branch")),
    ("sym:^main$", word("^main$", 5, regex=True, field="symbol")),
    ("s:/ma+in/", word("ma+in", 4, regex=True, field="symbol")),
    ('sym:"operator()"', word("operator()", 5, field="symbol")),
    ("lang:py", Language("Python")),
    ("l:c++ x", And((Language("C++"), word("x", 7)))),
    ('-lang:"Common Lisp"', Not(Language("Common Lisp"))),
    ("lang:golang or lang:RUST", Or((Language("Go"), Language("Rust")))),
    ("c::x", word("c::x")),
    ("std::vector", word("std::vector")),
    ("http://x", word("http://x")),
    ("file::x", word("file::x")),
    ("default:", word("default:")),
    ("TODO:x", word("TODO:x", case=True)),
    ("main()", word("main()")),
    ("(f(x) or y)", Or((word("f(x)", 2), word("y", 10)))),
    ("foo)", word("foo)")),
    ("->next", word("->next")),
    ("--flag", word("--flag")),
    ("-", word("-")),
    ("order", word("order")),
    ("Foo", word("Foo", case=True)),
    ("case:no Foo", word("Foo", 9)),
    ("foo case:yes", word("foo", case=True)),
    ("/\\S\\pL\\x{AF}(?P<N>x)/", word("\\S\\pL\\x{AF}(?P<N>x)", 2, regex=True)),
    ("/\\SX/", word("\\SX", 2, regex=True, case=True)),
    ("É", word("É", case=True)),
]


@pytest.mark.parametrize(("text", "query"), MEANINGS)
def test_meaning(text: str, query: Query) -> None:
    assert parse(text) == query


ASKED: list[tuple[str, Asked]] = [
    ("x", Asked(word("x"))),
    ("x type:file", Asked(word("x"), "file")),
    ("t:filename x", Asked(word("x", 12), "file")),
    ("type:filematch x", Asked(word("x", 16), "line")),
    ("type:repo", Asked(And(()), "repo")),
    ("type:repo x", Asked(word("x", 11, field="source"), "repo")),
    ("type:repo content:x", Asked(word("x", 19, field="content"), "repo")),
    ("(type:path x) or y", Asked(Or((word("x", 12, field="path"), word("y", 18, field="path"))), "path")),
    ("x count:7", Asked(word("x"), count=7)),
    ("x count:all", Asked(word("x"), count=MOST_LINES)),
    ("x count:999999999", Asked(word("x"), count=MOST_LINES)),
    ("x type:report licence:MIT", Asked(And(()), "report", words="x             licence:MIT")),
    ("t:record", Asked(And(()), "record")),
]


@pytest.mark.parametrize(("text", "asked"), ASKED)
def test_what_the_answer_is_made_of(text: str, asked: Asked) -> None:
    assert msgspec.structs.replace(ask(text), columns={}) == asked


ERRORS = [
    ("", 1, "empty", "word"),
    ("  ", 1, "empty", "word"),
    ("case:yes", 1, "empty", "word"),
    ("fiel:x", 1, "no field `fiel:`", "did you mean `file:`"),
    ("a rpeo:x", 3, "no field", "did you mean `repo:`"),
    ("zzz:x", 1, "no field", "quotes"),
    ("file:", 1, "needs a value", "file:value"),
    ("x case:maybe", 3, "not known", "case:yes, case:no or case:auto"),
    ("x type:int", 3, "`type:int` is not known", "quotes"),
    ("x count:0", 3, "`count:0` is not known", "count:all"),
    ("x count:-1", 3, "not known", "count:100"),
    ("x count:\u0663", 3, "not known", "count:100"),
    ("x count:5 count:6", 11, "twice", "one"),
    ("-type:repo x", 1, "negated", "minus"),
    ("x lang:pyhton", 8, "no language `pyhton`", "did you mean `python`"),
    ("lang:", 1, "needs a value", "lang:value"),
    ('lang:"Py', 6, "never closed", "quote"),
    ("langg:py", 1, "no field", "did you mean `lang:`"),
    ("type:path", 1, "empty", "word"),
    ("case:yes case:no x", 10, "twice", "one"),
    ("-case:yes x", 1, "negated", "minus"),
    ('x "abc', 3, "never closed", '\\"'),
    ("(a", 1, "never closed", "quotes"),
    ("x ()", 3, "nothing in this group", "quotes"),
    ('""', 1, "nothing to search", "character"),
    ("or", 1, "beside `or`", "quotes"),
    ("a or", 3, "beside `or`", "quotes"),
    ("a or or b", 3, "beside `or`", "quotes"),
    ("x /a(/", 5, "missing )", "\\("),
    ("x /ab[c/", 6, "missing ]", "\\["),
    ("/a**/", 3, "bad repetition", "repetition"),
    ("/ab*|+/", 6, "no argument", "backslash"),
    ("/x(?=y)/", 3, "perl operator", "look-around"),
    ("/(a)\\1/", 5, "escape", "back-references"),
    ("/[z-a]/", 3, "range", "RE2"),
    ("/(a{1000}){1000}/", 4, "repetition size", "1000"),
    ("file:*.py", 6, "no argument", "backslash"),
    ("repo:[", 6, "missing ]", "\\["),
    ("(" * 60 + "a" + ")" * 60, 51, "deep", "fewer"),
    ("a\ud800b", 2, "Unicode", ""),
    ("after:2020 x", 1, "about commits", "type:commit"),
    ("zebra before:2020", 7, "about commits", "type:commit"),
    ("x before:2020 after:2019", 3, "about commits", "leave them out"),
    ("type:commit -lang:go lang:c", 14, "no `lang:`", "leave it out"),
    ("commit:v1 type:commit x", 1, "about files", "type:commit"),
    ("repo:nasty commit:v1 type:repo", 12, "about files", "type:repo"),
    ("x" * 10_001, 10_001, "10,000", "part of it"),
    (" ".join("a" * 201), 401, "200", ""),
]


@pytest.mark.parametrize(("text", "column", "message", "hint"), ERRORS)
def test_errors_point_at_the_place(text: str, column: int, message: str, hint: str) -> None:
    with pytest.raises(BadQuery) as caught:
        parse(text)
    assert caught.value.column == column, caught.value
    assert message in caught.value.message
    assert hint in caught.value.hint


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(st.text(alphabet='ab or-"/\\():*[]{}?+|.$^filecasyn\té\n', max_size=40))
def test_any_text_is_a_query_or_a_bad_query(text: str) -> None:
    try:
        query = parse(text)
    except BadQuery as error:
        assert error.column is not None and 1 <= error.column <= len(text) + 1
        return
    for term in terms(query):
        assert term.pattern
        assert text[term.column - 1 :].startswith((term.pattern[0], '"'))


words = st.text(alphabet="abcXYZ_.é", min_size=1, max_size=6).filter(lambda text: text.lower() != "or")


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(words, min_size=1, max_size=5))
def test_quoting_a_word_changes_nothing(several: list[str]) -> None:
    bare = [(term.pattern, term.case) for term in terms(parse(" ".join(several)))]
    quoted = [(term.pattern, term.case) for term in terms(parse(" ".join(f'"{one}"' for one in several)))]
    assert bare == quoted
