"""What is sent at the same time goes together, and everybody still hears of its own message only."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.base.errors import BadInput, NotFound, TooLarge, Unavailable
from skep.base.ids import new_id
from skep.client import AsyncProducer, Client, Producer
from skep.topics.api import Posted
from tests.client.gate import Gate
from tests.client.test_producer import bodies
from tests.house.running import RunningSkep


@pytest.fixture
def gate(broker: RunningSkep) -> Iterator[Gate]:
    with Gate(broker.url) as standing:
        yield standing


@pytest.fixture
def token(broker: RunningSkep) -> str:
    return broker.token


async def came(gate: Gate) -> None:
    """One more request has reached the gate."""
    assert await asyncio.to_thread(gate.came.acquire, timeout=30)


async def test_what_is_sent_while_requests_are_under_way_goes_together(
    gate: Gate, client: Client, token: str, topic: str
) -> None:
    client.topics.create(topic)
    async with AsyncProducer(None, gate.url, token=token) as producer:
        gate.open.clear()
        sends = []
        for n in range(2):
            sends.append(asyncio.create_task(producer.send(topic, n)))
            await came(gate)
        sends += [asyncio.create_task(producer.send(topic, n)) for n in range(2, 52)]
        await asyncio.sleep(0)
        gate.open.set()
        places = await asyncio.gather(*sends)
    assert [len(batch) for batch in gate.batches] == [1, 1, 50]
    stored = bodies(client, topic)
    assert [stored[place.offset] for place in places] == list(range(52))
    # (which of the requests under way is stored first nobody says)
    assert [n for n in stored if n > 1] == list(range(2, 52))


async def test_errors_reach_those_whose_message_it_was(gate: Gate, client: Client, token: str, topic: str) -> None:
    client.topics.create(topic)
    large = "x" * 60_000
    async with AsyncProducer(None, gate.url, token=token) as producer:
        sends = [producer.send(topic, large if n == 7 else n, partition=9 if n == 3 else None) for n in range(20)]
        answers = await asyncio.gather(*sends, producer.send("nowhere", 0), return_exceptions=True)
        with pytest.raises(BadInput, match="JSON value"):
            await producer.send(topic, object())
    assert max(len(batch) for batch in gate.batches) == 20
    assert {n: type(one) for n, one in enumerate(answers) if not isinstance(one, Posted)} == {
        3: BadInput,
        7: TooLarge,
        20: NotFound,
    }
    assert bodies(client, topic) == [n for n in range(20) if n not in (3, 7)]


async def test_who_gives_up_waiting_leaves_the_others_their_answers(
    gate: Gate, client: Client, token: str, topic: str
) -> None:
    client.topics.create(topic)
    async with AsyncProducer(None, gate.url, token=token) as producer:
        gate.open.clear()
        sends = [asyncio.create_task(producer.send(topic, n)) for n in range(5)]
        await came(gate)
        sends[2].cancel()
        gate.open.set()
        answers = await asyncio.gather(*sends, return_exceptions=True)
    assert isinstance(answers[2], asyncio.CancelledError)
    assert [one.offset for one in answers if isinstance(one, Posted)] == [0, 1, 3, 4]


async def test_nothing_overtakes_what_is_buffered(gate: Gate, client: Client, token: str, topic: str) -> None:
    client.topics.create(topic)
    async with AsyncProducer(None, gate.url, token=token) as producer:
        gate.open.clear()
        await producer.buffer(topic, "a")
        await came(gate)
        await producer.buffer(topic, "b")
        sent = asyncio.create_task(producer.send(topic, "c"))
        await asyncio.sleep(0)
        gate.faults += ["request lost", "answer lost"]
        gate.open.set()
        assert (await sent).offset == 2
    assert gate.batches == [["a"]] * 3 + [["b", "c"]]
    assert bodies(client, topic) == ["a", "b", "c"]


def test_whoever_still_waits_when_a_producer_stops_is_told(gate: Gate, client: Client, token: str, topic: str) -> None:
    client.topics.create(topic)
    told: list[BaseException] = []
    producer = Producer(None, gate.url, token=token)

    def send(text: str) -> None:
        try:
            producer.send(topic, text)
        except Unavailable as error:
            told.append(error)

    gate.open.clear()
    threads = [threading.Thread(target=send, args=(text,)) for text in "abc"]
    for thread in threads[:2]:
        thread.start()
        assert gate.came.acquire(timeout=30)
    threads[2].start()
    producer.stop()
    gate.open.set()
    for thread in threads:
        thread.join()
    assert ["stopped" in str(error) for error in told] == [True] * 3
    assert len({id(error) for error in told}) == 3
    producer.stop()
    with pytest.raises(Unavailable, match="stopped"):
        producer.flush()


def test_who_hears_of_a_loss_may_send(client: Client, topic: str) -> None:
    def elsewhere(error: Exception, name: str, lost: Any) -> None:
        producer.send(topic, [name, [one.body for one in lost], type(error).__name__])

    producer = Producer(topic, client, on_error=elsewhere)
    producer.buffer("nowhere", "x")
    with pytest.raises(NotFound):
        producer.flush()
    producer.stop()
    assert bodies(client, topic) == [["nowhere", ["x"], "NotFound"]]


#: how many are sent or buffered at once, or what the next request meets
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 30)),
        st.tuples(st.just("buffer"), st.integers(1, 30)),
        st.tuples(st.sampled_from(["request lost", "answer lost"]), st.integers(1, 2)),
        st.tuples(st.just("flush"), st.just(1)),
    ),
    max_size=12,
)


@given(steps=STEPS)
@settings(max_examples=10)
def test_whatever_is_lost_on_the_way_everything_is_stored_once(
    gate: Gate, client: Client, token: str, steps: list[tuple[Any, int]]
) -> None:
    topic = new_id("topic", 0.0)
    client.topics.create(topic)
    gate.faults.clear()
    buffered: list[str] = []
    sent: dict[str, int] = {}

    async def run() -> None:
        async with AsyncProducer(None, gate.url, token=token) as producer:
            for turn, (what, many) in enumerate(steps):
                names = [f"{what}-{turn}-{n}" for n in range(many)]
                if what == "send":
                    places = await asyncio.gather(*[producer.send(topic, name) for name in names])
                    sent.update(zip(names, [place.offset for place in places], strict=True))
                elif what == "buffer":
                    for name in names:
                        await producer.buffer(topic, name)
                    buffered.extend(names)
                elif what == "flush":
                    await producer.flush()
                else:
                    gate.faults.extend([what] * many)

    asyncio.run(run())
    stored = bodies(client, topic)
    assert sorted(stored) == sorted([*buffered, *sent])
    assert [name for name in stored if name.startswith("buffer")] == buffered
    assert {name: stored[offset] for name, offset in sent.items()} == {name: name for name in sent}
