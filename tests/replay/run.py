"""The replay: every request of the corpus goes to two servers, in the same order; their answers are compared.

`python -m tests.replay.run --old REV` compares a revision with this tree, `--old .` this tree with itself. Answers of
the older one are translated by the table of renames, and what may differ is named in normal.py.
"""

import argparse
import base64
import difflib
import gzip
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from skep.testing.server import free_port
from tests.renames import TABLE
from tests.replay import corpus
from tests.replay.normal import AnswerNormalizer
from tests.replay.renames import Renames
from tests.replay.serving import Call, HttpClient, Reply, SkepProcess, until
from tests.replay.upstream import upstream

ROOT = Path(__file__).parents[2]
#: members of groups and what is taken from a space must outlast a machine that stands still for a while
SETTINGS: dict[str, Any] = {
    "allow_networks": ["127.0.0.0/8"],
    "task_commands": ["*"],
    "dataone_index_within": 0.2,
    "member_seconds": 300.0,
}
_NAME = re.compile(r"\{([\w./-]+(?::[\w./-]+)?)\}")
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    number: int
    line: Line
    diff: list[str]

    def __str__(self) -> str:
        head = f"request {self.number}: {self.line['method']} {self.line['path']} as {self.line['role']}"
        return "\n".join([head, *self.diff])


class Side:
    """One of the two servers; requests and answers of it in its own words."""

    def __init__(self, server: SkepProcess, values: Mapping[str, str], renames: Renames, python: str) -> None:
        self.server = server
        self.http = HttpClient(server.url)
        self.names = AnswerNormalizer(server.url, str(server.data), python)
        #: what the newer version calls otherwise; empty for the older one
        self.renames = renames
        self.values = {**values, "token:admin": server.token, "token:wrong": "skep_" + "a" * 52}

    def ask(self, line: Line) -> Reply:
        call = self._call(line)
        if "until" not in line:
            reply = self.http.send(call)
        else:
            reply = until(lambda: self._if_so(self.http.send(call), line), f"{call.method} {call.path} {line['until']}")
        if reply.status < 300:
            for name, path in line.get("keep", {}).items():
                self.values[name] = _part(reply.json(), self._keys(path, line))
        return reply

    def _if_so(self, reply: Reply, line: Line) -> Reply | None:
        conditions = line["until"] if isinstance(line["until"][0], list) else [line["until"]]
        return reply if all(self._is_so(reply, line, *one) for one in conditions) else None

    def _is_so(self, reply: Reply, line: Line, path: str, how: str, wanted: Any) -> bool:
        if path == "status":
            return bool(reply.status == wanted)
        if reply.status >= 300:
            return False
        found = _part(reply.json(), self._keys(path, line))
        wanted = self.renames.json(wanted, line["path"])
        so = {"==": found == wanted, "!=": found != wanted, "set": bool(found), "len": _length(found) == wanted}
        return bool(so[how])

    def _keys(self, path: str, line: Line) -> list[str]:
        names = self.renames.of("field", line["path"])
        return [names.get(part, part) for part in path.split(".")]

    def _call(self, line: Line) -> Call:
        was = line["path"]
        path = self.renames.path(_NAME.sub(lambda found: self._value(found, inside=False), was))
        headers = dict(self.renames.names(line.get("headers", {}), "header", was))
        if line["role"] != "none":
            headers["authorization"] = f"Bearer {self.values['token:' + line['role']]}"
        body: bytes | None = None
        if "json" in line:
            headers.setdefault("content-type", "application/json")
            body = json.dumps(self._filled(self.renames.json(line["json"], was))).encode()
        elif "form" in line:
            headers["content-type"] = "application/x-www-form-urlencoded"
            body = urlencode(self._filled(self.renames.names(line["form"], "field", was))).encode()
        elif "parts" in line:
            headers["content-type"] = "multipart/form-data; boundary=a-boundary"
            parts = self._filled(line["parts"]).items()
            form = [
                f'--a-boundary\r\nContent-Disposition: form-data; name="{k}"{_file(v)}\r\n\r\n{v}\r\n' for k, v in parts
            ]
            body = ("".join(form) + "--a-boundary--\r\n").encode()
        elif "raw" in line:
            body = line["raw"].encode()
        elif "base64" in line:
            body = base64.b64decode(line["base64"])
        return Call(line["method"], path, headers, body, line.get("blocks", 0))

    def _filled(self, given: Any) -> Any:
        match given:
            case dict():
                return {key: self._filled(one) for key, one in given.items()}
            case list():
                return [self._filled(one) for one in given]
            case str():
                whole = _NAME.fullmatch(given)
                if whole and whole[1] in self.values:
                    return self.values[whole[1]]
                return _NAME.sub(lambda found: self._value(found, inside=True), given)
        return given

    def _value(self, found: re.Match[str], *, inside: bool) -> str:
        """What was never kept, as its request was refused, is asked for by its name."""
        value = str(self.values.get(found[1], f"never-{found[1]}"))
        return value if inside or "/" in value else quote(value, safe=":")

    def shown(self, reply: Reply, line: Line, renames: Renames) -> str:
        """An answer as text to compare; `renames` are those of the other side."""
        path = line["path"]
        headers = renames.names(self.names.headers(reply.headers), "header", path)
        lines = [f"status {reply.status}", *(f"{name}: {headers[name]}" for name in sorted(headers)), ""]
        return "\n".join(lines) + self._body(reply, path, renames)

    def _body(self, reply: Reply, path: str, renames: Renames) -> str:
        media = reply.header("content-type")
        raw = gzip.decompress(reply.body) if reply.body[:2] == b"\x1f\x8b" else reply.body
        page = "html" in media or "svg" in media
        if "json" in media or "gzip" in media:
            found = [renames.answer(json.loads(one), path) for one in _documents(raw, media)]
            return "\n".join(json.dumps(self.names.json(one), indent=1, ensure_ascii=False) for one in found)
        text = raw.decode("utf-8", "backslashreplace")
        if "event-stream" in media:
            return "\n".join(self._event(one, path, renames) for one in text.split("\n"))
        return self.names.text(renames.text(text, path, page), page)

    def _event(self, line: str, path: str, renames: Renames) -> str:
        begins, found, rest = line.partition(": ")
        if not found or begins != "data" or not rest.startswith(("{", "[")):
            return self.names.text(renames.text(line, path, page=False))
        return f"data: {json.dumps(self.names.json(renames.answer(json.loads(rest), path)))}"


def _file(value: str) -> str:
    """A document travels as a file, a text as a value."""
    return '; filename="x.xml"\r\nContent-Type: text/xml' if value.startswith("<") else ""


def _documents(raw: bytes, media: str) -> Iterator[bytes]:
    if "ndjson" in media or "jsonl" in media:
        yield from (line for line in raw.split(b"\n") if line)
    elif raw:
        yield raw


def _part(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value[int(key)] if isinstance(value, list) else value.get(key)
        if value is None:
            return None
    return value


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | dict | str) else -1


def replayed(old: Side, new: Side, lines: Sequence[Line], only: str = "") -> Iterator[Difference | None]:
    """One for each request that is compared: None when the answers are equal."""
    with ThreadPoolExecutor(2) as pool:
        for number, line in enumerate(lines, 1):
            asked = [pool.submit(side.ask, line) for side in (old, new)]
            first, second = (one.result() for one in asked)
            before = old.shown(first, line, new.renames).splitlines()
            after = new.shown(second, line, Renames()).splitlines()
            if only and not re.search(only, f"{line['method']} {line['path']}"):
                continue
            diff = list(difflib.unified_diff(before, after, "old", "new", n=2, lineterm=""))
            yield Difference(number, line, diff) if diff else None


@contextmanager
def sides(old: Sequence[str], new: Sequence[str], renames: Renames, folder: Path) -> Iterator[tuple[Side, Side]]:
    """Both servers with empty data, in front of one upstream."""
    with upstream(folder / "upstream") as up:
        values = {
            "forge": up.forge.url("").rstrip("/"),
            "open_node": up.open_node.base,
            "closed_node": up.closed_node.base,
            "node_host": up.open_node.base.split("/")[2],
        }
        with (
            _started(old, folder / "old", Renames()) as first,
            _started(new, folder / "new", renames) as second,
        ):
            made = (
                Side(first.ready(), values, Renames(), old[0]),
                Side(second.ready(), values, renames, new[0]),
            )
            try:
                yield made
            finally:
                for side in made:
                    side.http.close()


def _started(command: Sequence[str], data: Path, renames: Renames) -> SkepProcess:
    """It is its own Coordinating Node, so that it serves the API of a Member Node as well."""
    port = free_port()
    settings = SETTINGS | {"dataone_copies_for": f"http://127.0.0.1:{port}/cn"}
    return SkepProcess(command, data, port, renames.names(settings, "setting", ""))


@contextmanager
def version(given: str, folder: Path) -> Iterator[list[str]]:
    """The command of a version: a folder with a .venv, or a revision that is checked out and set up for this run."""
    if (Path(given) / ".venv" / "bin" / "python").exists():
        yield [str(Path(given).absolute() / ".venv" / "bin" / "python"), "-m", "skep"]
        return
    place = folder
    _git("worktree", "add", "--detach", str(place), given)
    try:
        subprocess.run(["make", ".venv/.run"], cwd=place, check=True, stdout=subprocess.DEVNULL)
        yield [str(place / ".venv" / "bin" / "python"), "-m", "skep"]
    finally:
        _git("worktree", "remove", "--force", str(place))


def _git(*args: str) -> None:
    subprocess.run(["git", *args], cwd=ROOT, check=True, capture_output=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", required=True, help="a revision, or a folder with a .venv")
    parser.add_argument("--new", default=str(ROOT), help="the same; without it this tree")
    parser.add_argument("--limit", type=int, help="only so many requests, the first ones")
    parser.add_argument("--only", default="", help="compare those whose method and path match; all are sent")
    parser.add_argument("--renames", type=Path, default=TABLE)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        with (
            version(args.old, folder / "old-version") as old,
            version(args.new, folder / "new-version") as new,
            sides(old, new, Renames.read(args.renames), folder) as (first, second),
        ):
            equal, found = 0, 0
            for one in replayed(first, second, corpus.load(args.limit), args.only):
                equal, found = equal + (one is None), found + (one is not None)
                if one is not None:
                    sys.stdout.write(f"{one}\n\n")
                    sys.stdout.flush()
    sys.stdout.write(f"{equal} equal, {found} different\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
