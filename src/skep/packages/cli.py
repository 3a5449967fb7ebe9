"""`skep package …`."""

import tempfile
from argparse import Namespace
from pathlib import Path

import msgspec

from skep.base.errors import BadInput
from skep.client import Client
from skep.config.settings import Settings
from skep.interfaces.terminal import ago, clean, in_json, print_all, tell
from skep.packages.api import Package
from skep.packages.archive import Bounds
from skep.packages.archive import build as build_archive
from skep.tasks import cli
from skep.tasks.cli import pairs


def build(args: Namespace) -> None:
    with tempfile.TemporaryDirectory() as aside:
        made = Path(aside, "made")
        manifest = build_archive(Path(args.folder), made, Bounds(Settings().package_unpacked))
        into = Path(args.output or f"{manifest.name}-{manifest.version}.tar.gz")
        into.write_bytes(made.read_bytes())
    tell(args, {"package": manifest.ref, "file": str(into)}, f"{manifest.ref}  {into}")


def push(client: Client, args: Namespace) -> None:
    path = Path(args.path)
    if not path.exists():
        raise BadInput(f"there is no {path}")
    with tempfile.TemporaryDirectory() as aside:
        if path.is_dir():
            folder, path = path, Path(aside, "made")
            build_archive(folder, path, Bounds(Settings().package_unpacked))
        package = client.packages.push(path)
    tell(args, package, _line(package))


def _line(package: Package) -> str:
    return f"{package.manifest.ref}  {package.blob}"


def listing(client: Client, args: Namespace) -> None:
    def row(one: Package, now: float) -> tuple[str, ...]:
        return one.manifest.ref, f"{one.size:,}", ago(one.pushed_at, now), one.pushed_by, one.manifest.description

    print_all(args, client.packages.list(args.prefix), ("PACKAGE", "BYTES", "PUSHED", "BY", "ABOUT"), row)


def show(client: Client, args: Namespace) -> None:
    package = client.packages.show(args.package)
    if in_json(args, package):
        return
    told = {**msgspec.to_builtins(package.manifest), "sha256": package.blob, "size": package.size}
    for key, value in told.items():
        if not isinstance(value, dict):
            print(f"{key:<12}{clean(str(value))}")
            continue
        for name, one in value.items():
            print(
                f"{key:<12}{clean(name)}: {clean(one if isinstance(one, str) else msgspec.json.encode(one).decode())}"
            )


def download(client: Client, args: Namespace) -> None:
    print(clean(_line(client.packages.download(args.package, Path(args.file)))))


def remove(client: Client, args: Namespace) -> None:
    client.packages.remove(args.package)


def run(client: Client, args: Namespace) -> int:
    made = client.packages.run(args.package, args.template, pairs(args.property, "property"))
    return cli.submitted(client, made, args)
