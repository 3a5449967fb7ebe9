"""SQL is written once, with `:name` parameters; here it becomes what an engine reads. Quotes and comments stay."""

import re
from functools import lru_cache

_QUIET = r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/"""
_PARTS = re.compile(rf"{_QUIET} | :: | :(?P<name>[A-Za-z_]\w*) | (?P<end>;)", re.VERBOSE | re.DOTALL)
_SQLITE = re.compile(
    rf"""{_QUIET}
    | \b(?P<lock>FOR\s+UPDATE(?:\s+OF\s+\w+)?(?:\s+SKIP\s+LOCKED|\s+NOWAIT)?)\b
    | \b(?P<key>BIGINT)(?=(?:\s+NOT\s+NULL)?\s+PRIMARY\s+KEY\b)
    | \b(?P<bytes>BYTEA)\b""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)

_INSERT = re.compile(
    r"(?P<head>INSERT\s+INTO\s+\w+\s*\([\w\s,]+\)\s*)VALUES\s*\((?P<values>\s*:\w+\s*(?:,\s*:\w+\s*)*)\)"
    r"(?P<tail>\s*(?:ON\s+CONFLICT(?:\s*\([\w\s,]+\))?\s+DO\s+NOTHING)?\s*)",
    re.IGNORECASE,
)


def statements(script: str) -> list[str]:
    """Divided by `;`, empty ones left out."""
    cuts = [found.start() for found in _PARTS.finditer(script) if found["end"]]
    pieces = [script[start:end] for start, end in zip([0, *(cut + 1 for cut in cuts)], [*cuts, None], strict=True)]
    return [piece.strip() for piece in pieces if _PARTS.sub(_only_parts, piece).strip()]


def _only_parts(found: re.Match[str]) -> str:
    """Comments vanish, so that a piece of nothing else counts as empty."""
    return "" if found[0].startswith(("--", "/*")) else found[0]


@lru_cache(maxsize=2048)
def numbered(sql: str, casts: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...]]:
    """`:name` as `$1`, and the names in the order of their numbers. `casts` is what to put behind each number."""
    names: dict[str, int] = {}

    def place(found: re.Match[str]) -> str:
        if not found["name"]:
            return found[0]
        number = names.setdefault(found["name"], len(names) + 1)
        return f"${number}{casts[number - 1] if casts else ''}"

    text = _PARTS.sub(place, sql)
    return text, tuple(names)


@lru_cache(maxsize=2048)
def side_by_side(statements: tuple[str, ...], answering: tuple[bool, ...]) -> str:
    """One statement that does them all, `:name` of the second being `:name_1` there.

    Its rows are (number, row) of those that are `answering` with any.
    """
    parts, rows = [], []
    for number, (sql, answers) in enumerate(zip(statements, answering, strict=True)):
        text = _PARTS.sub(lambda found, n=number: f"{found[0]}_{n}" if found["name"] else found[0], sql)  # type: ignore[misc]
        parts.append(f"s{number} AS ({text})")
        if answers:
            rows.append(f"SELECT {number} AS number, ROW(s{number}.*) AS one FROM s{number}")  # noqa: S608
    return f"WITH {', '.join(parts)} {' UNION ALL '.join(rows) or 'SELECT 0 AS number, ROW() AS one WHERE false'}"


@lru_cache(maxsize=2048)
def insert_of_arrays(sql: str, types: tuple[str, ...]) -> str | None:
    """A plain `INSERT … VALUES (:a, :b)` as one statement that takes an array for each name; None for any other."""
    found = _INSERT.fullmatch(sql.strip())
    names = [name.strip() for name in found["values"].split(",")] if found else []
    if found is None or len(set(names)) != len(types) or len(names) != len(types):
        return None
    arrays = ", ".join(f"${number}::{type}[]" for number, type in enumerate(types, 1))
    return f"{found['head']}SELECT * FROM unnest({arrays}){found['tail']}"  # noqa: S608


@lru_cache(maxsize=2048)
def for_sqlite(sql: str) -> str:
    """Row locks dropped (there is one writer), `BIGINT PRIMARY KEY` as a rowid, BYTEA as BLOB."""
    return _SQLITE.sub(_sqlite_word, sql)


def _sqlite_word(found: re.Match[str]) -> str:
    if found["lock"]:
        return ""
    if found["key"]:
        return "INTEGER"
    return "BLOB" if found["bytes"] else found[0]


def shown(sql: str) -> str:
    """One short line for an error message; parameters are not in it, so no secret is either."""
    line = " ".join(sql.split())
    return line if len(line) <= 200 else line[:197] + "..."
