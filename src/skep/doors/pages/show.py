"""How things look to people. Pure."""

import time
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, urlencode

from markupsafe import Markup

from skep.model.search import Line


def ago(at: float | None, now: float) -> str:
    """`3 min ago`, `in 2 h`, `never`."""
    if at is None:
        return "never"
    span = _span(abs(now - at))
    if not span:
        return "now"
    return f"{span} ago" if at <= now else f"in {span}"


def _span(seconds: float) -> str:
    for size, unit in ((365 * 86400, "y"), (86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return ""


def when(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def size(count: int | None) -> str:
    if count is None:
        return ""
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def count(number: int, one: str, many: str = "") -> str:
    """`1 line`, `2,000 lines`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def url_path(path: str) -> str:
    """For the inside of a URL: slashes stay, bytes that are no UTF-8 survive."""
    return quote(path, safe="/:@", errors="surrogateescape")


def query(values: Mapping[str, object]) -> str:
    """For behind the question mark of a URL; what is empty is left out."""
    return urlencode({name: value for name, value in values.items() if value}, errors="surrogatepass")


def parts(line: Line) -> list[tuple[str, bool]]:
    return pieces(line.text, line.ranges)


def pieces(text: str, ranges: Iterable[tuple[int, int]]) -> list[tuple[str, bool]]:
    """A text cut where it matched: each piece, and whether it did."""
    made: list[tuple[str, bool]] = []
    place = 0
    for first, last in sorted(ranges):
        start, end = max(first, place), min(last, len(text))
        if start >= end:
            continue
        if start > place:
            made.append((text[place:start], False))
        made.append((text[start:end], True))
        place = end
    if place < len(text):
        made.append((text[place:], False))
    return made


def rows(lines: Sequence[Markup], first: int) -> Markup:
    """Numbered lines of a file. Not a loop of the template: that takes four times as long, and holds up everybody."""
    row = '<div class="line" id="L{n}"><a class="n" href="#L{n}">{n}</a><code>{line}</code></div>'.format
    return Markup("\n".join(row(n=n, line=line) for n, line in enumerate(lines, first)))  # noqa: S704  (all Markup)


def steps(path: str) -> list[tuple[str, str]]:
    """`a/b/c` -> (a, a), (b, a/b), (c, a/b/c): the way to a file."""
    names = [name for name in path.split("/") if name]
    return [(name, "/".join(names[: place + 1])) for place, name in enumerate(names)]


def pointed(text: str, column: int | None) -> tuple[str, str, str]:
    """A query cut where it is wrong: before, the character, after."""
    if column is None or column < 1:
        return text, "", ""
    return text[: column - 1], text[column - 1 : column] or " ", text[column:]


def entry(name: str) -> str:
    """`refs/heads/main` -> `main`."""
    for prefix in ("refs/heads/", "refs/tags/", "refs/"):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def version(name: str) -> str:
    """Where an entry stands, in short: a commit, or the branch that HEAD names."""
    return entry(name) if name.startswith("refs/") else name[:8]


def readme(names: Sequence[str]) -> str | None:
    """The file that introduces a folder."""
    found = [name for name in names if name.lower().split(".")[0] == "readme"]
    return min(found, key=lambda name: (not name.lower().endswith((".md", ".rst", ".txt")), name), default=None)
