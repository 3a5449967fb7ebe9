"""`skep ca …`: the fleet's own certificates, made where the coordinator keeps its data."""

import shutil
import socket
import time
from argparse import Namespace
from pathlib import Path

from skep.doors.cli.server import settings_of
from skep.errors import BadInput
from skep.link.authority import Authority
from skep.link.join import CA_CERT


def init(args: Namespace) -> None:
    settings, _ = settings_of(args)
    folder = Path(settings.data) / "tls"
    hosts = list(dict.fromkeys([*args.hosts, socket.gethostname(), "localhost", "127.0.0.1", "::1"]))
    authority = _authority(folder)
    authority.issue(hosts, folder)
    print(f"{'a new CA' if authority.is_new else 'the CA that was there'}, and a certificate for {', '.join(hosts)}")
    print(f"in {folder}; keep ca.key to yourself. A running coordinator uses them after a restart")


def issue(args: Namespace) -> None:
    settings, _ = settings_of(args)
    folder, out = Path(settings.data) / "tls", Path(args.out)
    if not (folder / CA_CERT).exists():
        raise BadInput(f"there is no CA in {folder}", hint="make it with `skep ca init`, or name its --data")
    _authority(folder).issue(args.hosts, out)
    shutil.copyfile(folder / CA_CERT, out / CA_CERT)
    print(f"a certificate for {', '.join(args.hosts)} in {out}: put its files into DATA/tls of that coordinator")


def _authority(folder: Path) -> Authority:
    try:
        return Authority(folder, time.time())
    except OSError as error:
        raise BadInput(f"{folder} cannot be written to: {error.strerror}", hint="name another with --data") from error
