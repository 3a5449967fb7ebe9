"""The access table: every operation, asked by every role for a public and a private object.

`record` writes tests/golden/access.tsv, `compare` shows how the answers of now differ from it. The operations come from
the running server; one that has no request in fixtures.py is an error.
"""

import argparse
import difflib
import gzip
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from skep.testing.server import free_port
from tests.access.fixtures import ALL, FIXTURES, NO_SUCCESS, RequestTemplate
from tests.access.fresh import Fresh
from tests.access.world import OBJECTS, ROLES, SPECIAL, World, form
from tests.renames import TABLE
from tests.replay.renames import Renames
from tests.replay.serving import Call, Reply, SkepProcess
from tests.replay.upstream import Upstream, upstream

FILE = Path(__file__).parents[1] / "golden" / "access.tsv"
SERVE = Path(__file__).parent / "serve.py"
#: name of a set of columns -> the settings that differ from those of `skep up` on one machine
SETTINGS: dict[str, dict[str, Any]] = {"default": {}, "closed": {"open_read": False}}
#: operation, role, object -> status and names
Cells = dict[tuple[str, str, str], tuple[str, str]]
_NAME = re.compile(r"\{(\w+)\}")
#: prepared for the object of the cell, so there are two cells
_BY_KIND = {
    *("source", "list", "running", "ended", "benchmark", "switched", "evaluation", "rule", "own_or_built_in"),
    *("member", "left", "consumer", "node_document", "serial", "sysmeta", "hook"),
}
#: names that are in an answer or not by chance: the status of a process names what it did at its last heartbeat
BY_CHANCE = {"GET /api/v1/status", "GET /status"}
_DONE = re.compile(r"-(?:source|node|task|context)$")


class BadFixture(Exception):
    """The table cannot be made: a fixture is missing or not good enough."""


def computed(names: Sequence[str] = tuple(SETTINGS), plant: str = "", only: str = "") -> str:
    """The table as text: with the columns of these settings, and the operations that hold `only`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        upstream(Path(folder) / "upstream") as up,
        ThreadPoolExecutor() as pool,
    ):
        made = [pool.submit(_columns, Path(folder) / name, up, name, plant, only) for name in names]
        sets = [one.result() for one in made]
    lines = ["\t".join((*key, *(text for cells in sets for text in cells[key]))) for key in sorted(sets[0])]
    return "\n".join([_head(names), *lines]) + "\n"


def recorded(names: Sequence[str] = tuple(SETTINGS), only: str = "") -> str:
    """The same part of the recorded table; routes that docs/project/renames.tsv renames have their new names."""
    head, *lines = FILE.read_text().splitlines()
    renames = Renames.read(TABLE)
    lines = sorted(_renamed(line, renames) for line in lines)
    chosen = [n for n, title in enumerate(head.split("\t")) if title in _head(names).split("\t")]
    kept = [head, *(line for line in lines if only in line.split("\t")[0])]
    return "".join("\t".join(line.split("\t")[n] for n in chosen) + "\n" for line in kept)


def _renamed(line: str, renames: Renames) -> str:
    method, _, rest = line.partition(" ")
    return f"{method} {renames.route(rest)}"


def _head(names: Sequence[str]) -> str:
    return "\t".join(
        ["operation", "role", "object", *(f"{what} {name}" for name in names for what in ("status", "ids"))]
    )


def _columns(folder: Path, up: Upstream, name: str, plant: str, only: str) -> Cells:
    port, routes = free_port(), folder / "routes.json"
    folder.mkdir()
    settings: dict[str, Any] = {
        "allow_networks": ["127.0.0.0/8"],
        "task_commands": ["*"],
        "task_packages": ["*"],
        "dataone_copies_for": f"http://127.0.0.1:{port}/cn",
        "dataone_index_within": 0.2,
        "member_seconds": 300.0,
        **SETTINGS[name],
    }
    command = [sys.executable, str(SERVE)]
    with SkepProcess(command, folder / "data", port, settings, ACCESS_ROUTES=str(routes), ACCESS_PLANT=plant) as server:
        world = World(server.ready(), up)
        try:
            world.build()
        except AssertionError as error:
            raise AssertionError(f"{error}{server.tail()}") from error
        operations = checked(json.loads(routes.read_text()))
        try:
            return TableRun(world).cells([one for one in operations if only in one])
        finally:
            world.http.close()


def checked(operations: Sequence[str]) -> Sequence[str]:
    """All of them, when each has a fixture and each fixture an operation."""
    missing, left = sorted(set(operations) - set(FIXTURES)), sorted(set(FIXTURES) - set(operations))
    if missing or left:
        raise BadFixture(
            f"operations without a request in tests/access/fixtures.py: {missing}; requests without: {left}"
        )
    return operations


class TableRun:
    def __init__(self, world: World) -> None:
        self._world = world

    def cells(self, operations: Sequence[str]) -> Cells:
        """Reads come first, on a world that stands still; then what changes something, each on objects of its own."""
        asks = [(operation, ask) for operation in operations for ask in _variants(FIXTURES[operation])]
        found: Cells = {}
        for reads in (True, False):
            some = [one for one in asks if _only_reads(*one) == reads]
            for operation, ask in sorted(some, key=lambda one: one[1].last):
                found |= self._of(operation, ask, reads)
        _need_success(operations, found)
        return found

    def _of(self, operation: str, ask: RequestTemplate, reads: bool) -> Cells:
        name = f"{operation} [{ask.variant}]" if ask.variant else operation
        found: Cells = {}
        for kind in self._kinds(ask):
            for role in (*ROLES, *_special(operation)):
                found[name, role, kind] = self._cell(operation, ask, role, kind, reads)
        return found

    def _kinds(self, ask: RequestTemplate) -> Sequence[str]:
        names = set(_NAME.findall(repr(ask))) & set(self._world.values["public"])
        return OBJECTS if names or ask.prepare in _BY_KIND else ("-",)

    def _cell(self, operation: str, ask: RequestTemplate, role: str, kind: str, reads: bool) -> tuple[str, str]:
        call, reply, made = self._sent(operation, ask, role, "public" if kind == "-" else kind)
        world, own = self._world, {str(made[name]): "own" for name in ("own", "own_task") if name in made}
        given = world.seen(f"{call.path} {(call.body or b'').decode('utf-8', 'replace')}", own)
        names = {one for one in world.seen(_text_of(reply), own) if one not in given or not _repeats(reply, one)}
        names = {one for one in names if not (operation in BY_CHANCE and _DONE.search(one))}
        unknown = {one for one in names if one.startswith("unknown:")}
        if unknown and reads:
            raise BadFixture(
                f"{operation} as {role} returned ids that the world does not know: {unknown}: {reply.text[:3000]}"
            )
        return str(reply.status), " ".join(sorted(names - unknown | ({"new"} if unknown else set()))) or "-"

    def _sent(
        self, operation: str, ask: RequestTemplate, role: str, kind: str, tries: int = 10
    ) -> tuple[Call, Reply, Mapping[str, Any]]:
        """What is sent and answered. A version that changed in the background since it was prepared is read again."""
        world, n = self._world, self._world.fresh()
        made = Fresh(world, kind, role, n).make(ask.prepare) if ask.prepare else {}
        call = built(operation, ask, {**world.shared, **world.values[kind], "n": n, **made})
        reply = world.send(role, call)
        if ask.prepare == "serial" and reply.status == 409 and tries:
            return self._sent(operation, ask, role, kind, tries - 1)
        return call, reply, made


def _variants(given: RequestTemplate | list[RequestTemplate]) -> list[RequestTemplate]:
    return given if isinstance(given, list) else [given]


def _special(operation: str) -> list[str]:
    return [role for begins, role, _ in SPECIAL if operation.startswith(begins)]


def _only_reads(operation: str, ask: RequestTemplate) -> bool:
    return operation.startswith("GET ") and not ask.prepare


def built(operation: str, ask: RequestTemplate, values: Mapping[str, Any]) -> Call:
    method = operation.split(maxsplit=1)[0]
    if method == "ASGI":
        method = ask.variant.split(maxsplit=1)[0]
    path, headers = filled(ask.path, values), dict(ask.headers or {})
    if ask.parts is not None:
        return form(method, path, filled(ask.parts, values))
    body: bytes | None = values.get("body")
    if ask.json is not None:
        headers["content-type"] = "application/json"
        body = json.dumps(filled(ask.json, values)).encode()
    elif ask.form is not None:
        headers["content-type"] = "application/x-www-form-urlencoded"
        body = urlencode(filled(ask.form, values)).encode()
    elif ask.raw:
        body = str(filled(ask.raw, values)).encode()
    blocks = 1 + values["messages"] if ask.blocks == ALL else ask.blocks
    return Call(method, path, headers, body, blocks)


def filled(given: Any, values: Mapping[str, Any]) -> Any:
    """With the names in braces replaced; a text that is one name becomes its value, whatever type that has."""
    if isinstance(given, dict):
        return {key: filled(value, values) for key, value in given.items()}
    if isinstance(given, list):
        return [filled(value, values) for value in given]
    if not isinstance(given, str):
        return given
    whole = _NAME.fullmatch(given)
    if whole and whole[1] in values:
        return values[whole[1]]
    return _NAME.sub(lambda found: str(values.get(found[1], found[0])), given)


def _text_of(reply: Reply) -> str:
    """All that an answer gives away."""
    body = gzip.decompress(reply.body).decode() if reply.body[:2] == b"\x1f\x8b" else reply.text
    return f"{reply.header('location')}\n{body}"


def _repeats(reply: Reply, name: str) -> bool:
    """A refusal repeats names of the request, and a page the words that were searched for: those give nothing away."""
    return reply.status >= 400 or name.endswith("-content")


def _need_success(operations: Sequence[str], found: Cells) -> None:
    wrong = []
    for operation in operations:
        of_admin = [
            cell[0]
            for (name, role, _), cell in found.items()
            if role in ("admin", *_special(operation)) and (name == operation or name.startswith(f"{operation} ["))
        ]
        good = any(status < "400" for status in of_admin)
        if good == (operation in NO_SUCCESS):
            wrong.append(f"{operation}: as admin {of_admin}")
    if wrong:
        raise BadFixture("the fixture is not good enough, or NO_SUCCESS is wrong: " + "; ".join(wrong))


def differences(recorded: str, now: str) -> list[str]:
    """Readable: the cells that differ, those of before with - and those of now with +."""
    lines = difflib.unified_diff(recorded.splitlines(), now.splitlines(), "recorded", "now", n=0, lineterm="")
    return [line for line in lines if not line.startswith("@@")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("--only", default="", help="operations that hold this text")
    args = parser.parse_args()
    try:
        table = computed(only=args.only)
    except BadFixture as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if args.command == "record":
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(table)
        return 0
    found = differences(recorded(only=args.only), table)
    sys.stdout.write("\n".join(found) + "\n" if found else "the same\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
