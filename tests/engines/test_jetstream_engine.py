"""What is particular to the log on NATS JetStream."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop
from nats.aio.client import Client

from skep.base.errors import BadInput, NoSpace, TooLarge, Unavailable
from skep.processes.engines import find
from skep.storage.jetstream import Reader
from skep.storage.jetstream_connection import Fault, Link, address
from skep.storage.topic_log import Log
from skep.topics.api import Draft, Part
from tests.support.nats import NatsServer, running_nats, with_store

PART = Part("news")
STREAM = "skep_0_news"


@asynccontextmanager
async def opened(url: str, patience: float = 30.0) -> AsyncIterator[Log]:
    log: Log = await find("log", url)(url, db=None, patience=patience)
    try:
        yield log
    finally:
        await log.close()


def be_patient(log: Log, seconds: float) -> None:
    """From now on: a server that is there may take longer than one waits for another that is away."""
    log._link.patience = seconds  # type: ignore[attr-defined]


@pytest.fixture
async def log(nats: NatsServer) -> AsyncIterator[Log]:
    async with opened(nats.url) as log:
        yield log


async def consumers(nats: NatsServer, stream: str = STREAM) -> int:
    count: int = (await nats.call(f"STREAM.INFO.{stream}"))["state"]["consumer_count"]
    return count


async def fewer(nats: NatsServer, most: int) -> None:
    """Nobody waits for the server to forget one that is given up."""
    async with asyncio.timeout(60):
        while await consumers(nats) > most:
            await asyncio.sleep(0.05)


async def test_it_promises_what_the_server_does(log: Log, nats: NatsServer) -> None:
    assert (log.promises.fsync, log.promises.atomic_batch, log.promises.dedup_window) == (False, False, 120)
    await log.append(PART, [Draft(b"")])
    config = (await nats.call(f"STREAM.INFO.{STREAM}"))["config"]
    assert config["duplicate_window"] == log.promises.dedup_window * 1e9
    assert (config["storage"], config["max_msgs"], config["max_age"], config["deny_delete"]) == ("file", -1, 0, True)


async def test_topics_whose_names_are_alike_are_different(log: Log) -> None:
    topics = ["a.b", "a-b", "a_b", "ab", "A.b", "..", "a.", "_", "-", "." * 200, "x" * 200, "0_a.b"]
    parts = [Part(topic, partition) for topic in topics for partition in (0, 1, 4_000_000_000)]
    for n, part in enumerate(parts):
        assert await log.append(part, [Draft(str(n).encode())]) == [0]
    for n, part in enumerate(parts):
        assert [m.body for m in await log.read(part, 0, 9)] == [str(n).encode()]


@pytest.mark.parametrize("topic", ["", "a b", "a/b", "a*", ">", "a~b", "a\r\nPUB x", "ü", "x" * 201])
async def test_other_names_are_refused(log: Log, topic: str) -> None:
    for call in (log.append(Part(topic), [Draft(b"")]), log.read(Part(topic), 0, 1), log.bounds(Part(topic))):
        with pytest.raises(BadInput):
            await call


async def test_too_large_is_found_before_the_server_hangs_up(log: Log) -> None:
    largest = 1024 * 1024
    for draft in (
        Draft(bytes(largest + 1)),
        Draft(bytes(largest - 50), key="k" * 100),
        Draft(b"", headers={"h": "ü" * largest}),
    ):
        with pytest.raises(TooLarge, match="1048576"):
            await log.append(PART, [Draft(b"first"), draft])
    assert await log.bounds(PART) == (0, 0)
    for less in range(40, 60):  # around what fits with headers
        try:
            await log.append(PART, [Draft(bytes(largest - less), id="i", key="k")])
        except TooLarge:
            continue
        break
    assert await log.append(PART, [Draft(bytes(largest))]) == [1]
    assert [len(m.body) for m in await log.read(PART, 0, 9)] == [largest - less, largest]


@pytest.mark.parametrize(
    "bad", [Draft(b"", id="\ud800"), Draft(b"", key="\ud800"), Draft(b"", headers={"h": "\ud800"})]
)
async def test_text_that_is_none(log: Log, bad: Draft) -> None:
    with pytest.raises(BadInput, match="Unicode"):
        await log.append(PART, [Draft(b"first"), bad])
    assert await log.bounds(PART) == (0, 0)


async def test_reading_on_needs_one_consumer(log: Log, nats: NatsServer) -> None:
    await log.append(PART, [Draft(str(n).encode()) for n in range(1200)])
    seen = 0
    while some := await log.read(PART, seen, 50):
        seen += len(some)
        assert await log.read(PART, seen, 0) == []
    assert seen == 1200
    await fewer(nats, 1)
    assert len(await log.read(PART, 3, 10_000)) == 1197  # more than one batch
    await fewer(nats, 1)  # both stand at the end now: one is enough
    for n in range(100):
        assert [m.offset for m in await log.read(PART, n * 7, 1)] == [n * 7]
    await fewer(nats, 64)


async def test_a_forgotten_consumer_is_replaced(log: Log, nats: NatsServer) -> None:
    await log.append(PART, [Draft(str(n).encode()) for n in range(10)])
    await log.read(PART, 0, 5)
    for name in (await nats.call(f"CONSUMER.NAMES.{STREAM}"))["consumers"]:
        await nats.call(f"CONSUMER.DELETE.{STREAM}.{name}")
    assert [m.offset for m in await log.read(PART, 5, 5)] == [5, 6, 7, 8, 9]


async def test_a_server_that_stands_still_before_it_delivers_is_waited_for(
    log: Log, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.append(PART, [Draft(b"a")])
    opening, server = Reader.open, nats._server.process
    assert server is not None

    async def then_stand_still(reader: Reader, link: Link) -> None:
        await opening(reader, link)
        server.send_signal(signal.SIGSTOP)
        asyncio.get_running_loop().call_later(3.0, server.send_signal, signal.SIGCONT)

    monkeypatch.setattr(Reader, "open", then_stand_still)
    assert [m.body for m in await log.read(PART, 0, 5)] == [b"a"]


async def test_a_stream_that_was_removed_is_made_again(log: Log, nats: NatsServer) -> None:
    await log.append(PART, [Draft(b"a"), Draft(b"b")])
    assert len(await log.read(PART, 0, 5)) == 2
    await nats.call(f"STREAM.DELETE.{STREAM}")
    assert await log.bounds(PART) == (0, 0)
    assert await log.append(PART, [Draft(b"c"), Draft(b"d"), Draft(b"e")]) == [0, 1, 2]
    assert [m.body for m in await log.read(PART, 0, 5)] == [b"c", b"d", b"e"]
    assert [m.body for m in await log.read(PART, 2, 5)] == [b"e"]


async def test_several_processes_make_a_topic_and_hear_of_it(nats: NatsServer) -> None:
    async with opened(nats.url) as one, opened(nats.url) as two, two.listen(PART) as bell:
        given = await asyncio.gather(*(log.append(PART, [Draft(b"")]) for log in (one, two) for _ in range(20)))
        assert sorted(given) == [[n] for n in range(40)]
        assert await bell.wait(30)
        assert len(await two.read(PART, 0, 100)) == 40
        await one.trim(PART, 30)
        assert [m.offset for m in await two.read(PART, 5, 2)] == [30, 31]


async def test_a_stream_somebody_configured_is_used_as_it_is(log: Log, nats: NatsServer) -> None:
    """And a failure in the middle of a batch says how far it came."""
    limits = {"max_msgs": 3, "discard": "new"}
    await nats.call(f"STREAM.CREATE.{STREAM}", name=STREAM, subjects=["skep.log.0_news"], **limits)
    with pytest.raises(NoSpace, match="3 of 5 messages were stored"):
        await log.append(PART, [Draft(str(n).encode()) for n in range(5)])
    assert [m.body for m in await log.read(PART, 0, 9)] == [b"0", b"1", b"2"]
    await log.trim(PART, 3)
    assert await log.append(PART, [Draft(b"x")]) == [3]


async def test_no_room_for_more(tmp_path: Path) -> None:
    with running_nats(tmp_path, js=False, settings=with_store(tmp_path, "max_file_store: 100KB")) as server:
        async with opened(server.url) as log:
            with pytest.raises(NoSpace):
                await log.append(PART, [Draft(bytes(1000)) for _ in range(200)])
            first, end = await log.bounds(PART)
            assert len(await log.read(PART, first, 1000)) == end
            await log.trim(PART, end)
            assert await log.append(PART, [Draft(b"again")]) == [end]


async def test_a_restart_under_an_open_log(nats: NatsServer) -> None:
    """Appends fail or are kept, and everything goes on by itself; no acknowledged message is lost."""
    async with opened(nats.url) as log, log.listen(PART) as bell:
        acknowledged: dict[int, bytes] = {}

        async def produce(name: int) -> None:
            for n in range(60):
                body = f"{name}.{n}".encode()
                while True:
                    try:
                        [offset] = await log.append(PART, [Draft(body, id=body.decode())])
                    except Unavailable:
                        continue
                    assert acknowledged.setdefault(offset, body) == body
                    break

        producers = [asyncio.create_task(produce(name)) for name in range(8)]
        while len(acknowledged) < 100:
            assert await bell.wait(30)
        assert (await log.read(PART, 0, 10))[0].offset == 0
        await asyncio.to_thread(nats.restart)
        await asyncio.gather(*producers)
        messages = await log.read(PART, 0, 10_000)
        assert {m.offset: m.body for m in messages} == acknowledged
        assert [m.offset for m in messages] == list(range(480))
        assert [m.offset for m in await log.read(PART, 10, 1)] == [10]


async def test_a_server_that_is_away(tmp_path: Path) -> None:
    with running_nats(tmp_path) as server:
        url = server.url.replace("//", "//user:s3cret@")
        async with opened(url) as log, log.listen(PART) as bell:
            await log.append(PART, [Draft(b"a")])
            await log.read(PART, 0, 1)
            assert await bell.wait(30)
            server.stop()
            be_patient(log, 0.3)
            for call in (log.append(PART, [Draft(b"b")]), log.read(PART, 1, 1), log.bounds(PART), log.trim(PART, 1)):
                with pytest.raises(Unavailable) as caught:
                    await call
                assert server.address in caught.value.hint
                assert "s3cret" not in str(caught.value) + caught.value.hint
            server.start()
            be_patient(log, 30.0)
            assert await bell.wait(30)
            assert await log.append(PART, [Draft(b"c")]) == [1]
            assert [m.body for m in await log.read(PART, 0, 9)] == [b"a", b"c"]
    with pytest.raises(Unavailable, match="closed"):
        await log.bounds(PART)
    with pytest.raises(Unavailable) as caught:
        async with opened(url, patience=0.3):
            pass
    assert server.address in caught.value.hint


async def test_the_next_of_several_servers_is_tried(nats: NatsServer) -> None:
    async with opened(f"nats://127.0.0.1:1,{nats.address}") as log:
        assert await log.append(PART, [Draft(b"")]) == [0]


async def test_a_changed_password(tmp_path: Path) -> None:
    """The server ends the client for good; it is replaced, and let in when the password is right again."""
    config = with_store(tmp_path) + 'authorization { user: skep, password: "%s" }\n'
    with running_nats(tmp_path, js=False, settings=config % "p@ss/w") as server:
        url = server.url.replace("//", "//skep:p%40ss%2Fw@")
        patience, refusal = 0.3, ""
        while "uthorization" not in refusal:  # a server may take its time for its first word
            with pytest.raises(Unavailable) as caught:
                async with opened(server.url.replace("//", "//skep:wrong@"), patience):
                    pass
            refusal, patience = str(caught.value), 2 * patience
        assert "wrong" not in refusal + caught.value.hint
        async with opened(url) as log, log.listen(PART) as bell:
            assert await log.append(PART, [Draft(b"a")]) == [0]
            assert await bell.wait(30)
            be_patient(log, 0.5)
            server.configure(config % "other")
            with pytest.raises(Unavailable):
                while True:
                    await log.bounds(PART)
            server.configure(config % "p@ss/w")
            be_patient(log, 5.0)
            offset = -1
            while offset < 0:
                try:
                    [offset] = await log.append(PART, [Draft(b"b", "b")])
                except Unavailable:
                    continue
            assert offset == 1
            assert await bell.wait(30)


async def test_a_server_without_jetstream(tmp_path: Path) -> None:
    with running_nats(tmp_path, js=False) as server:
        with pytest.raises(Unavailable, match="without JetStream") as caught:
            async with opened(server.url):
                pass
        assert "-js" in caught.value.hint


def test_a_connection_that_broke_unnoticed_is_replaced(nats_server: NatsServer) -> None:
    """On uvloop, which has words of its own for that."""

    async def run() -> tuple[int, int]:
        async with opened(nats_server.url) as log:
            be_patient(log, 1.0)
            log._link._client._transport._io_writer.transport.abort()  # type: ignore[attr-defined]
            while True:
                with suppress(Unavailable):
                    return await log.bounds(Part("nothing-here"))
                await asyncio.sleep(0.01)

    assert uvloop.run(run()) == (0, 0)


async def test_peers_that_are_away_come_back(log: Log) -> None:
    """What a cluster says while one of those that are to keep a stream has not been heard of."""
    said = Fault(400, 10005, "no suitable peers for placement, peer offline")
    assert isinstance(log._link.meaning(said), Unavailable)  # type: ignore[attr-defined]


async def test_a_killed_server_comes_back_with_its_messages(nats: NatsServer) -> None:
    """The machine goes on, so what the server had written is there; it may not be after a loss of power."""
    async with opened(nats.url) as log:
        await log.append(PART, [Draft(str(n).encode()) for n in range(100)])
        await asyncio.to_thread(nats.restart, signal.SIGKILL)
        first, end = await log.bounds(PART)
        assert first == 0
        assert [m.body for m in await log.read(PART, 0, 1000)] == [str(n).encode() for n in range(end)]


@pytest.mark.parametrize(
    "url",
    [
        "nats:",
        "nats://",
        "nats://user:s3cret@",
        "nats://user:s3cret@host:port",
        "nats://user:s3?cret@host",
        "nats://user:s3cret@host#s3",
        "nats://user:s3cret@host/path",
        "nats://user:s3cret@host?replicas=x",
        "nats://user:s3cret@host?other=1",
        "nats://user:s3cret@one,,two",
    ],
)
def test_a_url_that_cannot_be_understood(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        address(url)
    assert "s3" not in str(caught.value) + caught.value.hint


def test_urls() -> None:
    several = address("nats://me:p%3Aw@one,two:5,[::1]:6?replicas=3")
    assert several.hosts == ("one:4222", "two:5", "[::1]:6")
    assert (several.user, several.password, several.replicas) == ("me", "p:w", 3)
    assert (address("nats://token@one").user, address("nats://token@one").password) == ("token", None)
    assert (address("nats://one").user, str(address("nats://u:p@one"))) == (None, "one:4222")


async def test_patience_ends_although_the_client_swallows_that(monkeypatch: pytest.MonkeyPatch) -> None:
    async def swallowing(_: Client) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        raise OSError("gone")

    monkeypatch.setattr(Client, "_select_next_server", swallowing)
    with pytest.raises(Unavailable):
        async with asyncio.timeout(20), opened("nats://127.0.0.1:1", patience=0.2):
            pass
