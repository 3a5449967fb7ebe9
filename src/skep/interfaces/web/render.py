"""Templates into answers. Everything is escaped; style and script come from our own static files only."""

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import cos, pi, sin
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import MediaType, Request, Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from litestar.types import Scope
from markupsafe import Markup

import skep
from skep.base.answers import ErrorBody
from skep.base.caller import Caller
from skep.base.clock import SystemClock
from skep.dataone.encoding import encode
from skep.search.api import excerpts
from skep.search.completion import narrowed
from skep.storage.code_index.model import Line

# Geometry of pictures: numbers in, places out; templates draw them as SVG. Pure.

_MOST_PARTS = 8
#: of a curve, in units of its own
WIDTH, HEIGHT, EDGE = 320.0, 90.0, 6.0


class Part(NamedTuple):
    """A stretch of a bar that is 100 wide."""

    name: str
    value: float
    start: float
    width: float
    #: which colour; the last is for "the rest"
    tone: int


class Curve(NamedTuple):
    path: str
    dots: list[tuple[float, float]]
    low: float
    high: float


class Arc(NamedTuple):
    name: str
    path: str
    tone: int


def ring(names: Sequence[str], stretches: Sequence[tuple[int, float, float]]) -> list[Arc]:
    """A circle, of which each name has many stretches; around (0, 0), with a radius of 50."""
    paths = ["" for _ in names]
    for n, start, end in stretches:
        (ax, ay), (bx, by) = _at(start), _at(min(end, start + 0.9999))
        large = int(end - start > 0.5)
        paths[n] += f"M{50 * ax:.2f} {50 * ay:.2f}A50 50 0 {large} 1 {50 * bx:.2f} {50 * by:.2f}"
        paths[n] += f"L{36 * bx:.2f} {36 * by:.2f}A36 36 0 {large} 0 {36 * ax:.2f} {36 * ay:.2f}Z"
    return [Arc(name, path, tone) for tone, (name, path) in enumerate(zip(names, paths, strict=True))]


def _at(turn: float) -> tuple[float, float]:
    """From the top, clockwise."""
    return sin(2 * pi * turn), -cos(2 * pi * turn)


def bar(pieces: Sequence[tuple[str, float]], whole: float | None = None) -> list[Part]:
    """One after the other; `whole` is what 100 stands for, if not their sum."""
    total = whole or sum(value for _, value in pieces) or 1.0
    parts: list[Part] = []
    at = 0.0
    for tone, (name, value) in enumerate(pieces):
        width = 100.0 * value / total
        parts.append(Part(name, value, round(at, 3), round(width, 3), tone))
        at += width
    return parts


def shares(pieces: Sequence[tuple[str, float]]) -> list[Part]:
    """The largest, and the rest as one."""
    ordered = sorted((piece for piece in pieces if piece[1] > 0), key=lambda piece: -piece[1])
    named = [piece for piece in ordered if piece[0]]
    shown = named[: _MOST_PARTS - 1]
    rest = sum(value for _, value in ordered) - sum(value for _, value in shown)
    parts = bar([*shown, ("other", rest)] if rest else shown)
    return [part._replace(tone=_MOST_PARTS - 1) if part.name == "other" else part for part in parts]


def curve(points: Sequence[tuple[float, float]]) -> Curve | None:
    """None: one point is no curve. Evenly spaced, because a commit is a step however long it took."""
    if len(points) < 2:
        return None
    values = [value for _, value in points]
    low, high = min(values), max(values)
    span, step = (high - low) or 1.0, (WIDTH - 2 * EDGE) / (len(points) - 1)
    inside = HEIGHT - 2 * EDGE
    dots = [
        (round(EDGE + n * step, 1), round(HEIGHT - EDGE - inside * (value - low) / span, 1))
        for n, value in enumerate(values)
    ]
    return Curve("M" + " L".join(f"{x} {y}" for x, y in dots), dots, low, high)


# How things look to people. Pure.


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


# Our own few static files, read once. Their URL changes with their content, so that browsers may keep them.

_FOLDER = Path(__file__).parent / "static"
_MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Asset(msgspec.Struct, frozen=True):
    body: bytes
    media: str
    mark: str


@cache
def _assets() -> dict[str, Asset]:
    files = [file for file in sorted(_FOLDER.iterdir()) if file.suffix in _MEDIA]
    return {file.name: _asset(file.read_bytes(), file.suffix) for file in files}


def _asset(body: bytes, suffix: str) -> Asset:
    return Asset(body, _MEDIA[suffix], hashlib.sha256(body).hexdigest()[:12])


def url(name: str) -> str:
    return f"/static/{name}?v={_assets()[name].mark}"


@get("/static/{name:str}")
async def static_file(name: FromPath[str]) -> Response[bytes]:
    asset = _assets().get(name)
    if asset is None:
        raise NotFoundException
    return Response(
        asset.body, media_type=asset.media, headers={"cache-control": "public, max-age=31536000, immutable"}
    )


@cache
def _environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    env.filters |= {"when": when, "size": size, "url": url_path, "duration": duration}
    env.filters |= {
        "parts": parts,
        "steps": steps,
        "entry": entry,
        "version": version,
        "rows": rows,
        "pieces": pieces,
        "excerpts": excerpts,
        "query": query,
        "segment": encode,
        "narrowed": narrowed,
    }
    env.globals |= {"asset": url, "ago": ago, "count": count, "version": skep.__version__}
    return env


def page(request: Request[Caller, Any, Any], template: str, status: int = 200, **values: object) -> Response[bytes]:
    now = request.app.state.clock.now()
    body = _render(template, request.scope, request.user, now, values)
    return Response(body, status_code=status, media_type=MediaType.HTML)


def error_page(scope: Scope, status: int, error: ErrorBody) -> bytes:
    caller = scope.get("user") or Caller("nobody", frozenset(), known=False)
    return _render("error.html", scope, caller, SystemClock().now(), {"status": status, "error": error})


def _render(template: str, scope: Scope, caller: Caller, now: float, values: dict[str, object]) -> bytes:
    shared = {"caller": caller, "here": scope.get("path", ""), "now": now, "q": ""}
    text = _environment().get_template(template).render({**shared, **values})
    return text.encode("utf-8", "replace")
