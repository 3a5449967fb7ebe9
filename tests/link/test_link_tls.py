"""Certificates: who is trusted, and in which words each mistake is told."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import grpc
import msgspec
import pytest

from skep.base.clock import SystemClock
from skep.base.errors import BadInput
from skep.cli.main import main
from skep.config.settings import Settings
from skep.processes.up import credentials_of
from skep.rpc import tunnel
from skep.rpc.client import LinkClient
from skep.rpc.connect import Authority, Dial, days_left, join_line, joined, keep_line, read_line
from skep.rpc.messages import Broken
from skep.rpc.server import LinkServer, listen
from skep.rpc.tunnel import Meeting
from tests.link.ends import MemoryDesk, MemoryOutpost

YEAR = 365 * 86_400.0


class Fleet:
    """Certificates as `skep ca init` makes them, at any time."""

    def __init__(self, folder: Path, now: float | None = None, hosts: tuple[str, ...] = ("127.0.0.1",)) -> None:
        Authority(folder, time.time() if now is None else now).issue(list(hosts), folder)
        self.ca = (folder / "ca.crt").read_text()
        self.chain = (folder / "link.crt").read_bytes()
        self.credentials = grpc.ssl_server_credentials([((folder / "link.key").read_bytes(), self.chain)])


@asynccontextmanager
async def listening(desk: MemoryDesk, folder: Path, credentials: object = None) -> AsyncIterator[str]:
    server = LinkServer(desk, beat_every=0.1)
    yield await server.start("127.0.0.1:0", credentials, socket=f"unix:{folder / 'link.sock'}")
    await server.stop()


@asynccontextmanager
async def dialling(dial: Dial) -> AsyncIterator[LinkClient]:
    client = LinkClient(MemoryOutpost(), dial, SystemClock())
    running = asyncio.create_task(client.run())
    yield client
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def told(caplog: pytest.LogCaptureFixture, dial: Dial, words: str) -> None:
    """That a client with this does not attach, and why; on a machine that stalls, not at its first try."""
    caplog.set_level(logging.WARNING, "skep.rpc.client")
    async with dialling(dial), asyncio.timeout(60):
        while not any(words in message for message in caplog.messages):
            await asyncio.sleep(0.02)


async def test_members_attach_over_tls_and_by_the_socket(desk: MemoryDesk, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    async with listening(desk, tmp_path, fleet.credentials) as target:
        async with dialling(Dial((target,), fleet.ca)):
            await desk.until(lambda: len(desk.hellos) == 1)
        async with dialling(Dial((f"unix:{tmp_path / 'link.sock'}",))):
            await desk.until(lambda: len(desk.hellos) == 2)
        assert desk.local == [False, True]


async def test_each_mistake_has_its_words(desk: MemoryDesk, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    right, other = Fleet(tmp_path / "right"), Fleet(tmp_path / "other")
    old = Fleet(tmp_path / "old", time.time() - 3 * YEAR)
    early = Fleet(tmp_path / "early", time.time() + YEAR)
    elsewhere = Fleet(tmp_path / "elsewhere", hosts=("example.org", "192.0.2.1"))
    cases = [
        (right.credentials, other.ca, "not of the CA"),
        (right.credentials, "", "it speaks TLS"),
        (None, right.ca, "speaks plain text"),
        (old.credentials, old.ca, "has expired"),
        (early.credentials, early.ca, "not valid yet"),
        (elsewhere.credentials, elsewhere.ca, "for other names"),
    ]
    for credentials, ca, words in cases:
        async with listening(desk, tmp_path, credentials) as target:
            await told(caplog, Dial((target,), ca), words)
        caplog.clear()
    await told(caplog, Dial((target,)), "refused")
    caplog.clear()
    await told(caplog, Dial(("nosuch.invalid:7338",)), "its name cannot be looked up")
    assert desk.hellos == []


async def test_a_reason_is_told_whatever_was_told_of_others(
    desk: MemoryDesk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two coordinators one is away: why the other does not want this member is said at once, and once."""
    caplog.set_level(logging.DEBUG, "skep.rpc.client")
    async with listening(desk, tmp_path) as target, asyncio.timeout(60):
        client = LinkClient(MemoryOutpost(token="revoked"), Dial(("127.0.0.1:1", target)), SystemClock())
        running = asyncio.create_task(client.run())

        def said(of: str) -> list[tuple[str, int]]:
            lines = [(record.getMessage().partition("; again in")[0], record.levelno) for record in caplog.records]
            return [(line, level) for line, level in lines if line.startswith(f"not attached to {of}: ")]

        while len(said("127.0.0.1:1")) < 3 or sum("this token is not known" in line for line, _ in said(target)) < 3:
            await asyncio.sleep(0.02)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    for of in ("127.0.0.1:1", target):
        for (before, _), (line, level) in pairwise([("", 0), *said(of)]):
            assert level == (logging.DEBUG if line == before else logging.WARNING), said(of)


async def test_a_tunnel_says_what_is_wrong_with_the_way(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    server, address = await listen({tunnel.METHOD: Meeting().carry}, "127.0.0.1:0", fleet.credentials)
    with pytest.raises(Broken, match=f"{address}: it speaks TLS"):
        async with tunnel.dial(address, "ticket", "wrk_1"):
            pass
    await server.stop(0)


async def test_the_next_coordinator_is_tried(desk: MemoryDesk, tmp_path: Path) -> None:
    fleet, second = Fleet(tmp_path), MemoryDesk()
    async with listening(second, tmp_path / "b", fleet.credentials) as there:
        async with listening(desk, tmp_path / "a", fleet.credentials) as here:
            async with dialling(Dial(("127.0.0.1:1", here), fleet.ca)):
                await desk.until(lambda: len(desk.hellos) == 1)
            client = LinkClient(MemoryOutpost(), Dial((here, there), fleet.ca), SystemClock())
            running = asyncio.create_task(client.run())
            async with asyncio.timeout(30):
                while not client.attached:
                    await asyncio.sleep(0.01)
            first = desk if len(desk.hellos) == 2 else second
        if first is desk:  # it has stopped
            await second.until(lambda: len(second.hellos) == 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_an_authority_is_kept_and_its_keys_are_private(tmp_path: Path) -> None:
    now = time.time()
    assert Authority(tmp_path, now).is_new
    again = Authority(tmp_path, now)
    assert not again.is_new
    again.issue(["one.example", "::1"], tmp_path / "one")
    assert {oct(file.stat().st_mode & 0o777) for file in tmp_path.rglob("*.key")} == {"0o600"}
    assert 700 < days_left((tmp_path / "one" / "link.crt").read_bytes(), now) < 800
    with pytest.raises(BadInput, match="name of a host"):
        again.issue(["exämple"], tmp_path)
    (tmp_path / "ca.key").write_text("no key")
    with pytest.raises(BadInput, match="no CA that can be used"):
        Authority(tmp_path, now)


def test_a_line_says_all_there_is_to_join_with(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "tls")
    here = Settings(data=str(tmp_path), link_listen="0.0.0.0:7338", coordinators=("a.example:7338", "b.example:1"))
    line = join_line(here, "the-token")
    assert len(line) < 800 and line.isascii() and "\n" not in line
    keep_line(tmp_path / "member", f"  {line}\n")
    assert (tmp_path / "member" / "join").stat().st_mode & 0o777 == 0o600
    dial, token = joined(Settings(data=str(tmp_path / "member")))
    assert (dial.targets, token) == (("a.example:7338", "b.example:1"), "the-token")
    assert dial.ca.split() == fleet.ca.split()
    assert read_line(join_line(Settings(link_listen="x:1"), "t")).ca == ""
    assert join_line(Settings(), "t") == ""


@pytest.mark.parametrize(
    "line", ["", "skep-join-", "skep-join-AAAA", "something else", "skep-join-é", "skep-join-gpGh"]
)
def test_what_is_no_line(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "join", "--data", str(tmp_path / "data"), line]) == 2
    assert "no line to join with" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["worker"], "where the coordinators are"),
        (["manager"], "where the coordinators are"),
        (["worker", "--coordinators", "127.0.0.1:1"], "needs a token"),
        (["worker", "--coordinators", "127.0.0.1"], "is not HOST:PORT"),
        (["worker", "--coordinators", "h:1", "--token-file", "/nowhere"], "token_file"),
        (["up", "--roles", "boss"], "wants list of"),
        (["up", "--roles", ""], "at least one role"),
        (["aggregator"], "needs PostgreSQL"),
        (["up", "--roles", "aggregator,worker"], "needs PostgreSQL"),
        (["ca", "issue", "h", "--out", "x"], "there is no CA"),
    ],
)
def test_what_cannot_start_says_why(
    args: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*args, "--data", str(tmp_path / "data")]) == 2
    assert words in capsys.readouterr().err


def test_plain_text_is_for_loopback_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(data=str(tmp_path), link_listen="127.0.0.1:0")
    assert credentials_of(settings) is None
    everywhere = msgspec.structs.replace(settings, link_listen="0.0.0.0:0")
    with pytest.raises(BadInput, match="no certificate"):
        credentials_of(everywhere)
    Fleet(tmp_path / "tls", time.time() - 3 * YEAR)
    assert credentials_of(everywhere) is not None
    assert "has expired" in caplog.text
    (tmp_path / "tls" / "link.crt").write_text("nothing")
    with pytest.raises(BadInput, match="cannot be used"):
        credentials_of(settings)
