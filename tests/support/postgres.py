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
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from skep.testing.server import Server, free_port

START_SECONDS = 60.0


class Postgres:
    """One server that can be stopped and started again; `standby` makes another that follows it."""

    def __init__(
        self,
        folder: Path,
        password: str,
        user: pwd.struct_passwd | None,
        *,
        fsync: bool = False,
        host: str = "127.0.0.1",
    ) -> None:
        self.folder = folder
        self._host = host
        self._password = password
        self._user = user
        self._fsync = fsync
        self.port = free_port()
        self._server = Server("PostgreSQL", folder / "log", START_SECONDS)
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def url(self) -> str:
        return f"postgresql://skep:{self._password}@{self.address}/postgres"

    def run(self, program: str, *args: str) -> None:
        """One of its programs, as its user."""
        done = subprocess.run(
            [str(find_binaries() / program), *args],
            cwd=self.folder,
            env={"PGPASSWORD": self._password, "PATH": os.defpath},
            capture_output=True,
            text=True,
            check=False,
            **self._as,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.strip()}")

    @property
    def _as(self) -> dict[str, Any]:
        user = self._user
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}

    def start(self) -> None:
        settings = {
            "listen_addresses": self._host,
            "port": self.port,
            "unix_socket_directories": self.folder,
            "fsync": "on" if self._fsync else "off",
            "shared_buffers": "32MB",
            "max_connections": 100,
            "log_min_messages": "fatal",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        ask = [str(find_binaries() / "pg_isready"), "--quiet", "--host", self._host, "--port", str(self.port)]
        self._server.start(
            [str(find_binaries() / "postgres"), "-D", str(self.folder / "data"), *options],
            lambda _: subprocess.run(ask, check=False).returncode == 0,
            cwd=self.folder,
            **self._as,
        )

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """By default "fast": ends sessions, leaves no shared memory behind."""
        self._server.stop(how)

    @contextmanager
    def standby(self) -> Iterator["Postgres"]:
        with _folder() as folder:
            other = Postgres(folder, self._password, self._user, fsync=self._fsync)
            where = ("--host=127.0.0.1", f"--port={self.port}", "--username=skep")
            other.run("pg_basebackup", f"--pgdata={folder / 'data'}", "--write-recovery-conf", "--no-sync", *where)
            other.start()
            try:
                yield other
            finally:
                other.stop()

    def promote(self) -> None:
        self.run("pg_ctl", "promote", "-D", str(self.folder / "data"))


@contextmanager
def postgres_server(*, fsync: bool = False, host: str = "127.0.0.1", network: str = "") -> Iterator[Postgres]:
    """As root it runs as the user `postgres` or `nobody`, which it insists on. Clients of `network` may connect."""
    with _folder() as folder:
        password, user = secrets.token_hex(8), _unprivileged()
        (folder / "password").write_text(password)
        (folder / "password").chmod(0o644)
        server = Postgres(folder, password, user, fsync=fsync, host=host)
        options = {
            "pgdata": folder / "data",
            "username": "skep",
            "pwfile": folder / "password",
            "auth": "scram-sha-256",
            "encoding": "UTF8",
            "locale": "C",
        }
        server.run("initdb", "--no-sync", *(f"--{name}={value}" for name, value in options.items()))
        if network:
            with (folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {network} scram-sha-256\n")
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def running_postgres(*, fsync: bool = False) -> Iterator[str]:
    """The URL of a server that runs meanwhile."""
    with postgres_server(fsync=fsync) as server:
        yield server.url


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="skep-pg-"))
    try:
        yield folder
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
