"""Worked examples of each language, and what is no example of any."""

import pytest

from skep.languages.blob_facts import Function, analyse
from skep.storage.code_index.analysis_files import KINDS
from tests.analysis import examples, further_examples

EXAMPLES = examples.EXAMPLES | further_examples.EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES)
def test_a_worked_example(path: str) -> None:
    text, names, function = EXAMPLES[path]
    content = text.encode()
    facts, definitions = analyse(path.encode(), content)
    assert [(content[one.at : one.at + one.size].decode(), KINDS[one.kind]) for one in definitions] == names
    assert all(content[: one.at].count(b"\n") + 1 == one.line for one in definitions)
    assert function in facts.functions


def test_the_score_is_the_length_of_the_vector() -> None:
    assert Function("f", 1, 1, 0, 2, 3, 6, 1).score == 7.0


def test_what_is_counted_belongs_to_the_innermost_function_with_a_name() -> None:
    text = b"def outer():\n    def inner():\n        a = 1\n        b = 2\n    c = 3\n    x = lambda: call()\ny = 4\n"
    facts, _ = analyse(b"a.py", text)
    assert [(one.name, one.assignments, one.branches) for one in facts.functions] == [("outer", 2, 1), ("inner", 2, 0)]


def test_half_a_file_is_better_than_none() -> None:
    text = b"def good():\n    return 1\n\ndef bad(:\n  ((((\n\nclass Fine:\n    pass\n"
    _, definitions = analyse(b"a.py", text)
    assert b"good" in {text[one.at : one.at + one.size] for one in definitions}


@pytest.mark.parametrize("path", EXAMPLES)
@pytest.mark.parametrize("hostile", [b"(", b"{", b"\xff\xfe\x00", b"x=", b"\r"])
def test_hostile_text_is_read_to_the_end(path: str, hostile: bytes) -> None:
    facts, _ = analyse(path.encode(), hostile * 1_000)
    assert facts.bytes == len(hostile) * 1_000


def test_large_files_are_counted_and_no_more() -> None:
    facts, definitions = analyse(b"a.py", b"def f(): pass\n" * 100_000)
    assert (facts.lines, facts.functions, definitions) == (100_000, [], [])


def test_tsx_is_read_with_its_own_grammar() -> None:
    facts, _ = analyse(b"a.tsx", b"export function App(p: P) { return <div>{p.x ? 1 : 2}</div> }\n")
    assert [(one.name, one.conditions) for one in facts.functions] == [("App", 1)]
