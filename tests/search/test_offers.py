"""What is offered, completions and facets, finds what it says when it is asked for."""

from pathlib import Path

import msgspec
import pytest

from skep.search.completion import narrowed
from skep.search.query import ask
from skep.storage.code_index.model import Delta, Fence, Tip
from skep.storage.code_index.trigram.builder import TrigramBuilder

from .conftest import READER, Library, document

#: each of them a pattern, or a part, of another
NAMES = ("x/pallets+click", "x/palletss-click", "x/pallets", "x/a.b", "x/a-b", "x/a(b)", "x/a[b]", "x/pallets+click2")
BRANCHES = ("main", "v1.2", "v1-2", "c++", "x(1)", "x{1}", "a|b")
FILES = {
    "lib/one.py": "wax = 1\nhoney = 2\n",
    "lib/two.cpp": "int wax;\n",
    "lib/three.c": "int honey;\n",
    "lib/four.lisp": "(defun wax ())\n",
    "lib/five.md": "Honey.\n",
}


@pytest.fixture
async def odd(library: Library) -> Library:
    for name in NAMES:
        await library.add(name, FILES)
    return library


async def test_completions_of_sources_and_languages(odd: Library) -> None:
    complete = odd.core.search.complete
    offered = [one.text for one in await complete(READER, "repo:x/", 7)]
    assert len(offered) == len(NAMES)
    found = [[one.name for one in (await odd.search(f"type:repo {text}")).sources] for text in offered]
    assert sorted(found) == [[f"example.org/{name}"] for name in sorted(NAMES)]
    for one in await complete(READER, "lang:", 5):
        ask(one.text)


async def test_completions_of_branches(library: Library, tmp_path: Path) -> None:
    """Each has a file of its own."""
    await library.add("a/b", {"x.py": "start\n"})
    id, number = library.ids["a/b"]
    tips = tuple(Tip(name, f"{nth:040x}") for nth, name in enumerate(BRANCHES, 1))
    files = [msgspec.structs.replace(document(f"{nth}.txt", "x\n"), branches=1 << nth) for nth in range(len(tips))]
    shards = TrigramBuilder().build(number, files, tmp_path / "branches", lambda _: None)
    assert await library.adoption.adopt(Fence(id, 1, 5000.0), Delta(id, number, tips, None, shards), 0.0)
    offered = [one.text for one in await library.core.search.complete(READER, "branch:", 7)]
    found = [[hit.branch for hit in (await library.search(f"x {text}")).hits] for text in offered]
    assert sorted(found) == [[name] for name in sorted(BRANCHES)]


@pytest.mark.parametrize("query", ["honey", "wax or honey", "(wax or honey)", "-honey lib", "type:file wax or honey"])
async def test_facets(odd: Library, query: str) -> None:
    facets = (await odd.search(query)).facets
    assert facets is not None and facets.exact
    for field, offered in (("lang", facets.languages), ("repo", facets.sources)):
        assert len(offered) > 1
        for one in offered:
            text = narrowed(query, field, one.name)
            assert (text, (await odd.search(text)).counted.files) == (text, one.files)
