"""Reading: alone with a place of one's own, and in groups that share partitions."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count, islice, product
from typing import Any

import pytest

from skep.base.errors import BadInput, Conflict, NotFound
from skep.client import AsyncConsumer, Client, Consumer, Producer
from skep.client.consumer import Received
from skep.client.topics import Outgoing
from tests.client.member import Member
from tests.house.running import RunningSkep


def fill(client: Client, topic: str, partitions: int, many: int) -> None:
    client.topics.create(topic, partitions=partitions)
    for partition in range(partitions):
        client.topics.publish_batch(topic, [Outgoing(n, partition=partition) for n in range(many)])


def places(messages: Iterator[Received] | list[Received]) -> list[tuple[str, int, int]]:
    return [(message.topic, message.partition, message.offset) for message in messages]


class Worker:
    """A consumer iterated in a thread, noting what it handled."""

    def __init__(self, client: Client, topic: str, group: str, **options: object) -> None:
        self.consumer = Consumer(topic, client, group=group, heartbeat=0.1, **options)  # type: ignore[arg-type]
        self.handled: list[tuple[int, int]] = []
        self.pace = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for message in self.consumer:
            self.pace.acquire()
            self.handled.append((message.partition, message.offset))

    def stop(self) -> None:
        self.consumer.stop()
        self.pace.release()
        self._thread.join()


def until(reached: Callable[[], bool]) -> None:
    """Waits for what must come; the test's own limit is that it ends at all."""
    pause, last = threading.Event(), time.monotonic() + 180
    while not reached():
        assert time.monotonic() < last, "it did not come to pass"
        pause.wait(0.01)


def test_alone_over_all_topics_and_partitions(client: Client, topic: str) -> None:
    fill(client, topic, 3, 150)
    fill(client, topic + "-b", 1, 150)
    with Consumer([topic, topic + "-b"], client) as consumer:
        messages = list(islice(consumer, 600))
    assert sorted(places(messages)) == sorted(
        [(topic, p, n) for p in range(3) for n in range(150)] + [(topic + "-b", 0, n) for n in range(150)]
    )
    for partition in range(3):
        offsets = [message.offset for message in messages if (message.topic, message.partition) == (topic, partition)]
        assert offsets == list(range(150))


def test_where_one_starts(client: Client, topic: str) -> None:
    fill(client, topic, 1, 5)
    client.topics.trim(topic, 2)
    with Consumer(topic, client) as consumer:
        assert next(consumer).offset == 2
        assert consumer.missed == 0
    with Consumer(topic, client, start="offset:1") as consumer:
        assert (next(consumer).offset, consumer.missed) == (2, 1)
    with Consumer(topic, client, start="end") as consumer:
        client.topics.publish(topic, "new")
        assert next(consumer).body == "new"
    client.topics.publish_batch(topic, [Outgoing(n) for n in range(3)])
    times = [message.at for message in client.topics.read(topic).messages]
    for at in (times[0], times[-1]):
        with Consumer(topic, client, start=f"time:{at!r}") as consumer:
            assert next(consumer).offset == 2 + times.index(at)
    assert [place.offset for place in client.topics.places(topic, f"time:{times[-1] + 60}")] == [9]
    for start in ("middle", "offset:-1", "offset:", "time:", "time:soon", "offset:" + "9" * 100):
        with pytest.raises(BadInput):
            Consumer(topic, client, start=start)
    with pytest.raises(NotFound):
        Consumer("nowhere", client)
    with pytest.raises(NotFound):
        Consumer([topic, "nowhere"], client, group="g")
    assert [one.member for one in client.topics.group(topic, "g").lag()] == [None]


def test_bodies_as_json(client: Client, topic: str) -> None:
    client.topics.create(topic)
    client.topics.publish_batch(topic, [Outgoing({"a": 1}), Outgoing('{"a": 2}'), Outgoing("no json")])
    with Consumer(topic, client) as consumer:
        one, two, three = islice(consumer, 3)
    assert (one.json(), two.json()) == ({"a": 1}, {"a": 2})
    with pytest.raises(BadInput, match="is no JSON"):
        three.json()


def test_stop_ends_an_iteration_that_waits(client: Client, topic: str) -> None:
    client.topics.create(topic)
    consumer = Consumer(topic, client)
    timer = threading.Timer(0.1, consumer.stop)
    timer.start()
    assert list(consumer) == []
    timer.join()


def test_a_group_goes_on_where_it_was(client: Client, topic: str) -> None:
    fill(client, topic, 1, 10)
    with Consumer(topic, client, group="g") as consumer:
        assert [message.body for message in islice(consumer, 4)] == [0, 1, 2, 3]
    with pytest.raises(RuntimeError), Consumer(topic, client, group="g") as consumer:
        assert next(consumer).body == 4
        assert next(consumer).body == 5
        raise RuntimeError("message 5 could not be handled")
    with Consumer(topic, client, group="g", auto_commit=False) as consumer:
        assert [message.body for message in islice(consumer, 3)] == [5, 6, 7]
        consumer.commit()
        assert next(consumer).body == 8
    with Consumer(topic, client, group="g") as consumer:
        assert next(consumer).body == 8
    assert [(one.offset, one.member) for one in client.topics.group(topic, "g").lag()] == [(9, None)]


def test_who_lost_a_partition_cannot_commit_and_reads_where_the_group_is(client: Client, topic: str) -> None:
    fill(client, topic, 1, 10)
    with Consumer(topic, client, group="g", auto_commit=False, heartbeat=60.0) as consumer:
        assert [message.body for message in islice(consumer, 5)] == [0, 1, 2, 3, 4]
        client.topics.group(topic, "g").seek("offset:1")
        with pytest.raises(Conflict):
            consumer.commit()
        assert next(consumer).body == 1


def test_a_loss_that_a_heartbeat_noticed_is_told_by_the_next_commit_once(client: Client, topic: str) -> None:
    fill(client, topic, 1, 10)
    group = client.topics.group(topic, "g")
    with Consumer(topic, client, group="g", auto_commit=False, heartbeat=0.1) as consumer:
        assert [message.body for message in islice(consumer, 5)] == [0, 1, 2, 3, 4]
        group.seek("offset:1")
        until(lambda: group.lag()[0].member is not None)  # it was there again, under the next generation
        with pytest.raises(Conflict):
            consumer.commit()
        assert next(consumer).body == 1
        consumer.commit()
        assert [one.offset for one in group.lag()] == [2]


def test_a_partition_is_given_back_before_another_reads_it(client: Client, topic: str) -> None:
    """One member reads six partitions; another comes, and nothing is read twice or left out."""
    fill(client, topic, 6, 100)
    first = Worker(client, topic, "g")
    until(lambda: len(first.consumer.partitions) == 6)
    first.pace.release(40)
    until(lambda: len(first.handled) == 40)
    second = Worker(client, topic, "g")
    second.pace.release(600)
    # what the first has in its hands it keeps; the others it gives
    until(lambda: len(second.consumer.partitions) >= 2 and len(first.consumer.partitions) <= 4)
    taken = set(second.consumer.partitions)  # first, for what it has was given back before
    assert not set(first.consumer.partitions) & taken
    first.pace.release(600)
    until(lambda: len(first.handled) + len(second.handled) >= 600)
    until(lambda: len(first.consumer.partitions) == len(second.consumer.partitions) == 3)
    for worker in (first, second):
        worker.stop()
    assert Counter(first.handled + second.handled) == Counter({(p, n): 1 for p in range(6) for n in range(100)})
    for worker in (first, second):
        for partition in range(6):
            offsets = [n for p, n in worker.handled if p == partition]
            assert offsets == sorted(offsets)
    assert sum(one.lag for one in client.topics.group(topic, "g").lag()) == 0


def test_a_killed_member_is_replaced(client: Client, broker: RunningSkep, topic: str) -> None:
    """Three members share six partitions; one is killed in the middle, the others take over, nothing is left out."""
    client.topics.create(topic, partitions=6)
    victim = Member(broker.url, broker.token, topic, "g")
    workers = [Worker(client, topic, "g") for _ in range(2)]
    for worker in workers:
        worker.pace.release(100_000)
    until(lambda: [len(worker.consumer.partitions) for worker in workers] == [2, 2])
    rounds = count()
    with Producer(None, client) as producer, closing(victim):

        def send() -> None:
            n = next(rounds)
            for partition in range(6):
                producer.send(topic, n, partition=partition)

        def heard() -> bool:
            """And goes on sending: what the others read meanwhile the victim cannot."""
            send()
            return len(victim.lines) >= 20

        for _ in range(50):
            send()
        until(heard)
        victim.close()
        for _ in range(50):
            send()
    seen = Counter((int(line.split()[0]), int(line.split()[1])) for line in victim.lines)
    everything = set(product(range(6), range(next(rounds))))
    until(lambda: set(seen) | {one for worker in workers for one in worker.handled} == everything)
    until(lambda: sum(len(worker.consumer.partitions) for worker in workers) == 6)
    for worker in workers:
        worker.stop()
    survivors = Counter(one for worker in workers for one in worker.handled)
    # twice only what the killed one had handled and could not tell any more
    assert max(survivors.values()) == 1
    for partition in {p for p, _ in seen}:
        told = sorted(n for p, n in seen if p == partition)
        again = sorted(n for p, n in survivors if (p, n) in seen and p == partition)
        assert again == told[len(told) - len(again) :]


def test_reading_goes_on_through_a_kill_of_the_server(mortal: RunningSkep) -> None:
    with Client(mortal.url, mortal.token) as client, Producer("news", client) as producer:
        for n in range(20):
            producer.send("news", n)
        followed = client.topics.follow("news")
        with Consumer("news", client, group="g", heartbeat=0.2) as member, Consumer("news", client) as alone:
            assert [message.body for message in islice(member, 10)] == list(range(10))
            assert [next(followed).body for _ in range(10)] == [next(alone).body for _ in range(10)] == list(range(10))
            mortal.kill()
            mortal.start()
            for n in range(20, 40):
                producer.send("news", n)
            everybody: list[Iterator[Any]] = [member, alone, followed]
            for reader in everybody:
                assert [message.body for message in islice(reader, 30)] == list(range(10, 40))
        assert [one.lag for one in client.topics.group("news", "g").lag()] == [0]


async def test_a_consumer_for_asyncio_keeps_what_its_asker_gave_up_on(client: Client, topic: str) -> None:
    client.topics.create(topic)
    async with AsyncConsumer(topic, client, group="g") as consumer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(consumer), 0.05)
        await asyncio.to_thread(client.topics.publish_batch, topic, [Outgoing(n) for n in range(3)])
        assert (await anext(consumer)).body == 0
        async for message in consumer:
            assert message.body == 1
            break
        asked = asyncio.create_task(consumer.__anext__())
        await asyncio.sleep(0)
        asked.cancel()
    async with AsyncConsumer(topic, client, group="g") as consumer:
        assert (await anext(consumer)).body == 2
