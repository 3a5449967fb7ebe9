"""A real PostgreSQL for tests: its own folder, its own free port on loopback, gone afterwards."""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from skep.testing.server import Server, free_port

START_SECONDS = 60.0


@contextmanager
def running_postgres(*, fsync: bool = False) -> Iterator[str]:
    """Start a server and yield its URL. As root it runs as the user `postgres` or `nobody`, which it insists on."""
    binaries = find_binaries()
    user = _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="skep-pg-"))
    password = secrets.token_hex(8)
    try:
        (folder / "password").write_text(password)
        if user is not None:
            for path in (folder, folder / "password"):
                os.chown(path, user.pw_uid, user.pw_gid)
        _make_cluster(binaries, folder, user)
        port = free_port()
        server = Server("PostgreSQL", folder / "log", START_SECONDS)
        _start(server, binaries, folder, port, user, fsync)
        try:
            yield f"postgresql://skep:{password}@127.0.0.1:{port}/postgres"
        finally:
            server.stop(signal.SIGINT)  # "fast": ends sessions, leaves no shared memory behind
    finally:
        shutil.rmtree(folder, ignore_errors=True)


#: databases that were used and emptied again, by server: making one costs as much as many a test
_emptied: dict[str, list[str]] = {}


@asynccontextmanager
async def fresh_database(url: str) -> AsyncIterator[str]:
    """The URL of an empty database on the same server, for one test."""
    emptied = _emptied.setdefault(url, [])
    own = emptied.pop() if emptied else await _new_database(url)
    yield own
    # not after an exception: then the server's end is the database's end
    connection = await asyncpg.connect(own)
    try:
        await connection.execute(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid();
               DROP SCHEMA public CASCADE; CREATE SCHEMA public"""
        )
    finally:
        await connection.close()
    emptied.append(own)


async def _new_database(url: str) -> str:
    name = f"t{secrets.token_hex(8)}"
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    finally:
        await connection.close()
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def find_binaries() -> Path:
    """The folder of `initdb` and `postgres`: of the newest version in Debian's place, else from the PATH."""
    versions = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if versions:
        return max(versions, key=lambda folder: float(folder.parent.name))
    found = shutil.which("initdb")
    if found is None:
        raise RuntimeError("these tests need a PostgreSQL server: apt-get install postgresql")
    return Path(found).resolve().parent


def _unprivileged() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return known.get("postgres") or known["nobody"]


def _make_cluster(binaries: Path, folder: Path, user: pwd.struct_passwd | None) -> None:
    options = {
        "pgdata": folder / "data",
        "username": "skep",
        "pwfile": folder / "password",
        "auth": "scram-sha-256",
        "encoding": "UTF8",
        "locale": "C",
    }
    done = subprocess.run(
        [str(binaries / "initdb"), "--no-sync", *(f"--{name}={value}" for name, value in options.items())],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        user=user and user.pw_uid,
        group=user and user.pw_gid,
        extra_groups=[] if user else None,
    )
    if done.returncode:
        raise RuntimeError(f"initdb failed: {done.stderr.strip()}")


def _start(
    server: Server, binaries: Path, folder: Path, port: int, user: pwd.struct_passwd | None, fsync: bool
) -> None:
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": port,
        "unix_socket_directories": folder,
        "fsync": "on" if fsync else "off",
        "shared_buffers": "32MB",
        "max_connections": 100,
        "log_min_messages": "fatal",
    }
    options = [f"--{name}={value}" for name, value in settings.items()]
    ask = [str(binaries / "pg_isready"), "--quiet", "--host", "127.0.0.1", "--port", str(port)]
    server.start(
        [str(binaries / "postgres"), "-D", str(folder / "data"), *options],
        lambda _: subprocess.run(ask, check=False).returncode == 0,
        cwd=folder,
        user=user and user.pw_uid,
        group=user and user.pw_gid,
        extra_groups=[] if user else None,
    )
