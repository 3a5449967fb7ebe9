"""`skep package …`."""

import tempfile
from argparse import Namespace
from pathlib import Path

import msgspec

from skep.client import Client
from skep.config import Settings
from skep.doors.cli import context, exits
from skep.doors.cli.listing import print_all, print_json
from skep.doors.cli.task import pairs
from skep.doors.cli.terminal import ago, clean
from skep.errors import BadInput
from skep.model.package import Package
from skep.packages.archive import Bounds
from skep.packages.build import build as build_archive


def build(args: Namespace) -> int:
    with tempfile.TemporaryDirectory() as aside:
        made = Path(aside, "made")
        manifest = build_archive(Path(args.folder), made, Bounds(Settings().package_unpacked))
        into = Path(args.output or f"{manifest.name}-{manifest.version}.tar.gz")
        into.write_bytes(made.read_bytes())
    print_json({"package": manifest.ref, "file": str(into)}) if args.json else print(f"{manifest.ref}  {into}")
    return exits.OK


def push(args: Namespace) -> int:
    path = Path(args.path)
    if not path.exists():
        raise BadInput(f"there is no {path}")
    with Client() as client, tempfile.TemporaryDirectory() as aside:
        if path.is_dir():
            folder, path = path, Path(aside, "made")
            build_archive(folder, path, Bounds(Settings().package_unpacked))
        package = client.packages.push(path)
    return _tell(package, args.json)


def _tell(package: Package, as_json: bool) -> int:
    print_json(package) if as_json else print(clean(f"{package.manifest.ref}  {package.blob}"))
    return exits.OK


def listing(args: Namespace) -> int:
    with Client() as client:
        found = list(client.packages.list(args.prefix))

    def row(one: Package, now: float) -> tuple[str, ...]:
        return one.manifest.ref, f"{one.size:,}", ago(one.pushed_at, now), one.pushed_by, one.manifest.description

    return print_all(found, ("PACKAGE", "BYTES", "PUSHED", "BY", "ABOUT"), row, json=args.json)


def show(args: Namespace) -> int:
    with Client() as client:
        package = client.packages.show(args.package)
    if args.json:
        return _tell(package, True)
    told = {**msgspec.to_builtins(package.manifest), "sha256": package.blob, "size": package.size}
    for key, value in told.items():
        if not isinstance(value, dict):
            print(f"{key:<12}{clean(str(value))}")
            continue
        for name, one in value.items():
            print(
                f"{key:<12}{clean(name)}: {clean(one if isinstance(one, str) else msgspec.json.encode(one).decode())}"
            )
    return exits.OK


def download(args: Namespace) -> int:
    with Client() as client:
        return _tell(client.packages.download(args.package, Path(args.file)), False)


def remove(args: Namespace) -> int:
    with Client() as client:
        client.packages.remove(args.package)
    return exits.OK


def run(args: Namespace) -> int:
    with Client() as client:
        made = client.packages.run(args.package, args.template, pairs(args.property, "property"))
        return context.submitted(client, made, args)
