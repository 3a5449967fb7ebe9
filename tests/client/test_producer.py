"""Sending: durable, retried without doubles, buffered on request."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from skep.base.errors import Busy, NotFound, SkepError, TooLarge, Unavailable
from skep.client import AsyncProducer, Client, Producer
from skep.client.topics import Outgoing
from skep.client.transport import Patience
from skep.testing.server import free_port
from skep.topics.api import Posted
from tests.client.gate import Gate
from tests.house.running import RunningSkep


def bodies(client: Client, topic: str) -> list[Any]:
    found: list[Any] = []
    while page := client.topics.read(topic, len(found), max=1000).messages:
        found += [message.body for message in page]
    return found


def test_send_makes_missing_topics_and_returns_where_it_is_stored(client: Client, topic: str) -> None:
    with Producer(topic, client) as producer:
        assert [producer.send(topic, {"n": n}, key="k") for n in range(2)] == [Posted(0, 0), Posted(0, 1)]
        with pytest.raises(NotFound):
            producer.send("nowhere", "x")
    with Producer([topic], client) as again:
        assert again.send(topic, "x").offset == 2
    assert bodies(client, topic) == [{"n": 0}, {"n": 1}, "x"]


def test_threads_share_a_producer(client: Client, topic: str) -> None:
    with Producer(topic, client) as producer:

        def many(name: int) -> None:
            for n in range(50):
                producer.send(topic, [name, n])

        threads = [threading.Thread(target=many, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stored = bodies(client, topic)
    assert sorted(stored) == [[name, n] for name in range(4) for n in range(50)]
    assert [[name, n] for [name, n] in stored if name == 2] == [[2, n] for n in range(50)]


def test_killed_and_restarted_servers_lose_and_double_nothing(mortal: RunningSkep) -> None:
    """Two producers go on through two kill -9; every acknowledged message is there once, in order."""
    sent: dict[str, list[int]] = {"sending": [], "buffering": []}
    enough = threading.Event()

    def sending(producer: Producer) -> None:
        while not enough.is_set():
            producer.send("news", ["sending", len(sent["sending"])])
            sent["sending"].append(len(sent["sending"]))

    def buffering(producer: Producer) -> None:
        while not enough.is_set():
            for _ in range(20):
                producer.buffer("news", ["buffering", len(sent["buffering"])])
                sent["buffering"].append(len(sent["buffering"]))
            producer.flush()

    with Client(mortal.url, mortal.token) as client, Producer("news", client) as one, Producer("news", client) as two:
        threads = [threading.Thread(target=sending, args=(one,)), threading.Thread(target=buffering, args=(two,))]
        for thread in threads:
            thread.start()
        for _ in range(2):
            before = {name: len(numbers) for name, numbers in sent.items()}
            while any(len(sent[name]) < before[name] + 40 for name in sent):
                threads[0].join(0.01)
                assert all(thread.is_alive() for thread in threads)
            mortal.kill()
            mortal.start()
        enough.set()
        for thread in threads:
            thread.join()
    with Client(mortal.url, mortal.token) as client:
        stored = bodies(client, "news")
    for name, numbers in sent.items():
        assert [n for [who, n] in stored if who == name] == numbers


def test_patience_ends(topic: str) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with Producer(None, nobody, patience=0.2) as producer, pytest.raises(Unavailable):
        producer.send(topic, "x")


def test_pauses_double_up_to_a_limit_and_end_with_patience() -> None:
    now = [0.0]
    patience = Patience(20.0, now=lambda: now[0], chance=lambda: 1.0)
    pauses = []
    with pytest.raises(Unavailable, match="away"):
        while True:
            pauses.append(patience.pause(Unavailable("away")))
            now[0] += pauses[-1]
    assert pauses[:4] == [0.05, 0.1, 0.2, 0.4]
    assert max(pauses) == 2.0
    assert now[0] == pytest.approx(20.0)


def test_buffered_messages_are_stored_in_order(client: Client, topic: str) -> None:
    with Producer(topic, client) as producer:
        for n in range(1_200):
            producer.buffer(topic, n)
        producer.flush()
        assert bodies(client, topic) == list(range(1_200))
        producer.buffer(topic, "last")
    assert bodies(client, topic)[-1] == "last"
    with pytest.raises(Unavailable):
        producer.buffer(topic, "too late")


def test_a_message_that_is_refused_takes_no_other_with_it(client: Client, topic: str) -> None:
    told: list[tuple[type[SkepError], str, Sequence[Outgoing]]] = []
    producer = Producer(topic, client, on_error=lambda error, topic, lost: told.append((type(error), topic, lost)))
    large = "x" * 60_000
    for body in ("a", large, "b", "c"):
        producer.buffer(topic, body)
    with pytest.raises(TooLarge) as error:
        producer.flush()
    assert error.value.__notes__ == ["1 of the buffered messages were not stored"]
    assert told == [(TooLarge, topic, [Outgoing(large)])]
    producer.flush()
    producer.buffer("nowhere", "x")
    with pytest.raises(NotFound):
        producer.stop()
    assert bodies(client, topic) == ["a", "b", "c"]


def test_a_full_buffer_is_busy_or_makes_wait_and_what_is_lost_is_told() -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with Gate(nobody) as gate:
        gate.open.clear()  # none is lost, however long this takes, before there was no room
        producer = Producer(None, gate.url, token="x", patience=0.3, room=2)
        producer.buffer("news", 1)
        producer.buffer("news", 2)
        with pytest.raises(Busy):
            producer.buffer("news", 3, block=False)
        gate.open.set()
        producer.buffer("news", 3)
        with pytest.raises(Unavailable) as error:
            producer.stop()
    assert error.value.__notes__ == ["3 of the buffered messages were not stored"]


async def test_a_producer_for_asyncio(client: Client, topic: str) -> None:
    async with AsyncProducer(topic, client) as producer:
        assert (await producer.send(topic, 1)).offset == 0
        await producer.buffer(topic, 2)
        await producer.flush()
        with pytest.raises(NotFound):
            await producer.send("nowhere", 1)
    assert bodies(client, topic) == [1, 2]
