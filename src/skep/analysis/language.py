"""In which language is this file, and what else is it: a test, somebody else's, generated?

By name first, then extension, then the first line; content is looked at only where an extension is shared.
"""

import re
from functools import lru_cache

import re2

from skep.analysis.marks import generated, marks_of
from skep.analysis.table import LANGUAGES, Language

#: how far content is looked at
_HEAD = 4_096
_SHEBANG = re.compile(rb"#!\s*(\S+)(?:[ \t]+(?:-S[ \t]+)?(?:\w+=\S+[ \t]+)*(\S*))?")


def _by(lists: str) -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    for language in LANGUAGES.values():
        for word in getattr(language, lists):
            found.setdefault(word.encode(), language.name)
    return found


_EXTENSIONS, _FILES, _INTERPRETERS = _by("extensions"), _by("files"), _by("interpreters")
_NAMES = {word.lower(): one.name for one in LANGUAGES.values() for word in (one.name, *one.aliases)}

_QUICK = re2.Options()
_QUICK.never_capture = True
_QUICK.encoding = re2.Options.Encoding.LATIN1

#: where an extension is shared: the first language whose pattern is in the beginning of the file
_SHARED = {
    ext: tuple((name, re2.compile(b"(?m)" + pattern, _QUICK)) for name, pattern in rules)
    for ext, rules in {
        b".h": (
            ("Objective-C", rb"^[ \t]*@(interface|protocol|class|property|end)\b|^#import\b"),
            (
                "C++",
                rb"^[ \t]*(template\s*<|namespace\b|class\s+\w+|using\s|(public|private|protected):|#include <\w+>)",
            ),
        ),
        b".m": (
            (
                "Objective-C",
                rb"^[ \t]*(@(interface|implementation|protocol|import|class)\b|#(import|include)\b|//|/\*)",
            ),
        ),
        b".pl": (
            ("Perl", rb"^[ \t]*(use|package|my|sub)\s|^#!.*perl"),
            ("Prolog", rb"^[ \t]*:-|^[a-z]\w*(\(.*\))?\s*:-"),
        ),
        b".pp": (("Puppet", rb"^[ \t]*(class|define|node|include)\s+['\w:]+.*[{(]?\s*$"),),
        b".t": (("Perl", rb"^[ \t]*(use|package|my)\s|^#!.*perl"), ("Text", rb"")),
        b".v": (("Verilog", rb"^[ \t]*(module|`\w+|always|endmodule)"), ("Text", rb"")),
        b".d": (("D", rb"^[ \t]*(module|import)\s+[\w.]+"), ("Makefile", rb"^[^\s:]+\.o\s*:")),
        b".r": (("R", rb""),),
        b".ts": (("XML", rb"\A\s*(<\?xml|<!DOCTYPE TS)"),),
        b".inc": (("PHP", rb"<\?php"), ("C", rb"^[ \t]*#\s*(define|include|if|ifdef|ifndef|pragma)\b"), ("Text", rb"")),
        b".s": (("Assembly", rb""),),
    }.items()
}
_DEFAULTS = {b".h": "C", b".m": "MATLAB", b".ts": "TypeScript", b".pp": "Pascal"}


def languages() -> list[str]:
    return list(LANGUAGES)


def named(text: str) -> str | None:
    """The language that a person means by a name or an alias, whatever its case."""
    return _NAMES.get(text.strip().lower())


def language(name: str) -> Language | None:
    return LANGUAGES.get(name)


def classify(path: bytes, content: bytes) -> tuple[str, int]:
    """The language ("" when it is not known) and the marks. Without content the name alone decides."""
    name = path[path.rfind(b"/") + 1 :]
    return _language(name, content), marks_of(path) | generated(name, content)


def _language(name: bytes, content: bytes) -> str:
    at = name.rfind(b".")
    kind, shared = _by_name(name, name[at:].lower() if at > 0 else b"")
    if shared and content:
        head = content[:_HEAD]
        return next((one for one, pattern in _SHARED[shared] if pattern.search(head)), kind)
    if not kind and content.startswith(b"#!"):
        return _by_first_line(content)
    return kind


@lru_cache(maxsize=4_096)
def _by_name(name: bytes, extension: bytes) -> tuple[str, bytes]:
    """The language, and the extension if that one is shared."""
    if name in _FILES:
        return _FILES[name], b""
    if extension in _SHARED:
        return _DEFAULTS.get(extension) or _EXTENSIONS[extension], extension
    if extension in _EXTENSIONS:
        return _EXTENSIONS[extension], b""
    stem = re.split(rb"[.\-_]", name, maxsplit=1)[0]  # Dockerfile.dev, Makefile.am, Kconfig.debug
    return _FILES.get(stem, ""), b""


def _by_first_line(content: bytes) -> str:
    match = _SHEBANG.match(content[:200])
    if match is None:
        return ""
    program = match[2] if match[1].endswith(b"/env") and match[2] else match[1]
    program = program[program.rfind(b"/") + 1 :]
    return _INTERPRETERS.get(program) or _INTERPRETERS.get(program.rstrip(b"0123456789."), "")
