"""Under which licence: what a file says in its beginning (SPDX), and which licence a licence file is.

A licence is recognised by phrases that only it has. The text of the GPL does not say whether "or later" is meant, so
the answer does not either.
"""

import re

_SAYS = re.compile(rb"SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+() -]{2,100})")
_SAYS_WITHIN = 4_096
_FILE = re.compile(rb"^(un)?licen[cs]e|^copying|^mit-license", re.IGNORECASE)
_READ = 100_000
_NOT_WORDS = re.compile(rb"[^a-z0-9.]+")

#: the first of which all phrases are there; phrases are words with single spaces, lower case, without punctuation
_PHRASES: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("AGPL-3.0", (b"gnu affero general public license", b"version 3 19 november 2007")),
    ("LGPL-3.0", (b"gnu lesser general public license", b"version 3 29 june 2007")),
    ("LGPL-2.1", (b"gnu lesser general public license", b"version 2.1 february 1999")),
    ("LGPL-2.0", (b"gnu library general public license", b"version 2 june 1991")),
    ("GPL-3.0", (b"gnu general public license", b"version 3 29 june 2007")),
    ("GPL-2.0", (b"gnu general public license", b"version 2 june 1991")),
    ("Apache-2.0", (b"apache license", b"version 2.0 january 2004")),
    ("Apache-2.0", (b"licensed under the apache license version 2.0",)),
    ("MPL-2.0", (b"mozilla public license version 2.0",)),
    ("EPL-2.0", (b"eclipse public license v 2.0",)),
    ("EPL-1.0", (b"eclipse public license v 1.0",)),
    ("BSL-1.0", (b"boost software license version 1.0",)),
    ("CC0-1.0", (b"cc0 1.0 universal",)),
    ("CC-BY-SA-4.0", (b"attribution sharealike 4.0 international",)),
    ("CC-BY-4.0", (b"attribution 4.0 international",)),
    ("Unlicense", (b"free and unencumbered software released into the public domain",)),
    ("OFL-1.1", (b"sil open font license version 1.1",)),
    ("Artistic-2.0", (b"artistic license 2.0",)),
    ("PSF-2.0", (b"python software foundation license version 2",)),
    ("Zlib", (b"altered source versions must be plainly marked",)),
    ("WTFPL", (b"do what the fuck you want to public license",)),
    ("BSD-3-Clause", (b"redistributions of source code must retain", b"may be used to endorse or promote products")),
    ("BSD-2-Clause", (b"redistributions of source code must retain", b"redistributions in binary form must")),
    (
        "MIT",
        (b"permission is hereby granted free of charge", b"without restriction", b"shall be included in all copies"),
    ),
    ("MIT-0", (b"permission is hereby granted free of charge", b"without restriction")),
    ("ISC", (b"permission to use copy modify and or distribute this software for any purpose",)),
    ("ISC", (b"permission to use copy modify and distribute this software for any purpose",)),
)
_KNOWN = {name.lower(): name for name, _ in _PHRASES}


def named(identifier: str) -> str:
    """As SPDX spells it, where that is known; two identifiers never differ by their case alone."""
    return _KNOWN.get(identifier.lower(), identifier)


def is_licence_file(path: bytes) -> bool:
    return _FILE.match(path[path.rfind(b"/") + 1 :]) is not None


def licence_of(path: bytes, content: bytes) -> str:
    """An SPDX expression; empty: it says nothing that we understand."""
    said = _SAYS.search(content[:_SAYS_WITHIN])
    if said is not None:
        return said[1].strip().rstrip(b"-").strip().decode()
    return _recognise(content[:_READ]) if is_licence_file(path) else ""


def _recognise(text: bytes) -> str:
    words = _NOT_WORDS.sub(b" ", text.lower()).replace(b". ", b" ")
    return next((name for name, phrases in _PHRASES if all(phrase in words for phrase in phrases)), "")
