import pytest

from skep.languages.blob_facts import analyse, licence_of

BSD_2 = "Redistributions of source code must retain\nRedistributions in binary form must"


@pytest.mark.parametrize(
    ("path", "text", "counted"),
    [
        ("a.py", "# one\n\nx = 1  # not this line\n'''\ndoc\n'''\n", (6, 1, 1)),
        ("a.c", "/* one\n * two\n */\nint x; /* no */\n\n// last", (6, 4, 1)),
        ("a.sh", "#!/bin/sh\n# one\necho '#'\n\n", (4, 2, 1)),
        ("a.sql", "-- one\nselect 1", (2, 1, 0)),
        ("notes.txt", "a\n\nb", (3, 0, 1)),
        ("unknown", "a\n \t\nb\n", (3, 0, 1)),
        ("empty.py", "", (0, 0, 0)),
    ],
)
def test_lines(path: str, text: str, counted: tuple[int, int, int]) -> None:
    facts, _ = analyse(path.encode(), text.encode())
    assert (facts.lines, facts.comments, facts.blanks) == counted


@pytest.mark.parametrize(
    ("path", "text", "licence"),
    [
        ("a.c", "// SPDX-License-Identifier: GPL-2.0-only\n", "GPL-2.0-only"),
        ("a.c", "/* SPDX-License-Identifier: (GPL-2.0+ OR MIT) */\n", "(GPL-2.0+ OR MIT)"),
        ("a.html", "<!-- SPDX-License-Identifier: MIT -->", "MIT"),
        ("a.c", "int x;", ""),
        ("LICENSE", "Apache License\n   Version 2.0, January 2004\n", "Apache-2.0"),
        ("COPYING", "GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007\n", "GPL-3.0"),
        ("COPYING.LIB", "GNU LESSER GENERAL PUBLIC LICENSE\n Version 2.1, February 1999", "LGPL-2.1"),
        ("LICENCE.md", BSD_2, "BSD-2-Clause"),
        ("LICENSE", "All rights reserved.", ""),
        ("src/license_check.py", "x = 1", ""),
    ],
)  # fmt: skip
def test_licence(path: str, text: str, licence: str) -> None:
    assert licence_of(path.encode(), text.encode()) == licence
