"""What is looked for in the syntax tree of each language, as queries of tree-sitter.

Captures: the kinds of definition (on the name), `fn` and `params` of a function, `comment`, and what is counted in a
function (docs/analysis.md): `a` assignments, `b` branches, `c` conditions, `d` decisions, `cd` both of these. Of a name
that is several kinds the first of `KINDS` is told.
"""

import importlib
from functools import cache
from typing import NamedTuple

from tree_sitter import Language, Query

from skep.analysis.grammars import c, csharp, go, java, kotlin, php, python, ruby, rust, scala, script, shell


class Grammar(NamedTuple):
    module: str
    query: str
    function: str = "language"


GRAMMARS = {
    "Python": Grammar("tree_sitter_python", python.QUERY),
    "Go": Grammar("tree_sitter_go", go.QUERY),
    "Java": Grammar("tree_sitter_java", java.QUERY),
    "JavaScript": Grammar("tree_sitter_javascript", script.JAVASCRIPT),
    "TypeScript": Grammar("tree_sitter_typescript", script.TYPESCRIPT, "language_typescript"),
    "TSX": Grammar("tree_sitter_typescript", script.TYPESCRIPT, "language_tsx"),
    "C": Grammar("tree_sitter_c", c.C),
    "C++": Grammar("tree_sitter_cpp", c.CPP),
    "Rust": Grammar("tree_sitter_rust", rust.QUERY),
    "Ruby": Grammar("tree_sitter_ruby", ruby.QUERY),
    "PHP": Grammar("tree_sitter_php", php.QUERY, "language_php"),
    "C#": Grammar("tree_sitter_c_sharp", csharp.QUERY),
    "Kotlin": Grammar("tree_sitter_kotlin", kotlin.QUERY),
    "Scala": Grammar("tree_sitter_scala", scala.QUERY),
    "Shell": Grammar("tree_sitter_bash", shell.QUERY),
}


@cache
def load(name: str) -> tuple[Language, Query]:
    grammar = GRAMMARS[name]
    language = Language(getattr(importlib.import_module(grammar.module), grammar.function)())
    return language, Query(language, grammar.query)
