"""What is found is exactly what ripgrep finds: path, line and column, on files made to be difficult."""

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import re2

from skep.storage.code_index.model import Term
from skep.storage.code_index.trigram.searcher import TrigramSearcher, open_trigram
from skep.storage.sqlite import open_memory
from tests.index.conftest import fence, make_delta, places

_WORDS = (
    "alpha Beta GAMMA delta_one deltaTwo kiss KISS Straße straße STRASSE éclair ÉCLAIR naïve \u212aelvin \u017fhip ship"
    " foo.bar foo(bar) a+b [x] {1,2} \\d \\\\ // -- -> aaa aaaa xyz 0 12 345 0x1F null_ _null ω Ω \u017fs İi ıI 日本"
    " 日本語 🙂 \"q\" 's' $HOME ^top end$ a|b *ptr ?maybe"
)
WORDS = ["\t", "\t\t", *_WORDS.split()]

Ripgrep = Callable[..., list[tuple[str, int, int]]]


def hard_files(seed: int) -> dict[bytes, bytes]:
    """Fixed oddities and some noise."""
    rng = random.Random(seed)
    files = {
        b"empty": b"",
        b"one-newline": b"\n",
        b"newlines": b"\n\n\n",
        b"no-final-newline": b"alpha\nbeta alpha",
        b"crlf.txt": b"alpha\r\nBeta alpha\r\n\r\nend\r\n",
        b"lone-cr": b"alpha\rbeta\ralpha\n",
        b"invalid": b"caf\xe9 alpha\n\xff\xfealpha\xc3\n\x80\x80beta\xf0\x9f\nstra\xc3\n",
        b"utf-8-bom": b"\xef\xbb\xbfalpha first\nalpha\n",
        b"long-line": b"x" * 3000 + b" alpha " + b"y" * 3000 + b"\nalpha\n",
        b"unicode": "Straße ÉCLAIR\nnaïve \u212aelvin kelvin KELVIN\n\u017fhip ship SHIP\n日本語 alpha\n".encode(),
        b"/".join([b"d" * 200] * 5) + b"/deep": b"alpha in a deep place\n",
        b"tab\tname": b"alpha\n",
        b"quote\"name's": b"alpha\n",
        "ünï/日本".encode(): b"alpha\n",
        b"controls": b"al\x01pha\x0b\x0calpha\x85\x1f\n\x7falpha\n",
    }
    for number in range(30):
        lines = [" ".join(rng.choices(WORDS, k=rng.randrange(7))) for _ in range(rng.randrange(40))]
        files[b"noise/%02d" % number] = "\n".join(lines).encode() + rng.choice([b"", b"\n", b"\r\n"])
    return files


@pytest.fixture(scope="module")
def hard_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hard")
    for path, content in hard_files(1).items():
        file = folder / path.decode()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder


@pytest.fixture
async def hard_index(tmp_path: Path, engine: str) -> AsyncIterator[TrigramSearcher]:
    db = await open_memory("memory:", data=tmp_path, durability="full")
    searcher = await open_trigram("file:", data=tmp_path, db=db)
    await searcher.start()
    delta = make_delta(tmp_path / "built", hard_files(1), commit="c1")
    assert await searcher.adopt(delta, fence())
    yield searcher
    await searcher.close()
    await db.close()


#: RE2 and ripgrep write the same pattern differently: in RE2 these classes and edges are ASCII
ASCII_IN_RIPGREP = {"\\w": "[0-9A-Za-z_]", "\\W": "[^0-9A-Za-z_]", "\\d": "[0-9]", "\\D": "[^0-9]", "\\b": "(?-u:\\b)"}

ATOMS = [
    *"aeklsKS.xyzßéÉſ日ωΩ",
    *["alpha", "bet", "delta", "kiss", "Straße", "éclair", "null", "ship", "\\(", "\\[", "\\\\", "\\$", "\\."],
    *["[a-f]", "[^a-z]", "[ks]", "[é-ü]", "[^\\x{e9}]", "[A-Fx0-9_]", "[[:upper:]]", "[^[:alpha:] ]", "[\\d_]"],
    *["\\w", "\\W", "\\d", "\\D", "\\b", "\\x61", "\\x{e9}", "\\t", " ", "(?i:k)", "(?i:Beta)"],
]


def patterns(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    made: list[str] = []
    while len(made) < count:
        pieces = [rng.choice(ATOMS) for _ in range(rng.randrange(1, 6))]
        pieces = [p + rng.choice(["", "", "", "*", "+", "?", "{2}", "{1,3}", "*?"]) for p in pieces]
        if rng.random() < 0.3:
            pieces.insert(rng.randrange(len(pieces)), "|")
        if rng.random() < 0.3:
            pieces = ["(?:", *pieces, ")", rng.choice(["", "+", "{2}"])]
        pattern = rng.choice(["", "", "", "^"]) + "".join(pieces) + rng.choice(["", "", "", "$"])
        made.append(pattern)
    return made


def for_ripgrep(pattern: str) -> str:
    for ours, theirs in ASCII_IN_RIPGREP.items():
        inside = theirs[1:-1] if theirs.startswith("[0") else theirs
        pattern = pattern.replace(f"[{ours}_]", f"[{inside}_]").replace(ours, theirs)
    return pattern


def assert_same(found: list[tuple[str, int, int]], expected: list[tuple[str, int, int]], what: object) -> None:
    unsaid = {(path, line) for path, line, column in expected if not column}
    ours = sorted((path, line, 0 if (path, line) in unsaid else column) for path, line, column in found)
    assert ours == sorted(expected), what


async def test_literals(hard_index: TrigramSearcher, hard_folder: Path, ripgrep: Ripgrep) -> None:
    texts = [*WORDS, "alpha Beta", "a", "é", "x alpha y", "\r", "beta\x80", "]", "aa", "nowhere to be found", "ss"]
    for text in filter(None, texts):
        for case in (True, False):
            expected = ripgrep(hard_folder, "-F", "-s" if case else "-i", "-e", text)
            found = await places(hard_index, Term("content", text, False, case))
            assert_same(found, expected, (text, case))


@pytest.mark.parametrize("seed", range(6))
async def test_patterns(hard_index: TrigramSearcher, hard_folder: Path, ripgrep: Ripgrep, seed: int) -> None:
    for nth, pattern in enumerate(patterns(seed, 25)):
        case = nth % 2 == 0
        try:
            re2.compile(pattern)
        except re2.error:
            continue
        expected = ripgrep(hard_folder, "-s" if case else "-i", "-e", for_ripgrep(pattern))
        found = await places(hard_index, Term("content", pattern, True, case))
        assert_same(found, expected, (pattern, case))
