"""The verbs of topics and groups, against a running server."""

import threading
from itertools import islice

import pytest

from skep.base.errors import BadInput, Conflict, NotAllowed, NotFound, TooLarge
from skep.client import AsyncClient, Client
from skep.client.topics import Outgoing
from skep.topics.api import Commit, Posted
from tests.house.running import RunningSkep


def test_making_changing_and_listing(client: Client, topic: str) -> None:
    made = client.topics.create(topic, partitions=2, retain_bytes=1_000_000)
    assert (made.name, made.owner, made.partitions, made.retain_bytes) == (topic, "user", 2, 1_000_000)
    with pytest.raises(Conflict):
        client.topics.create(topic)
    assert client.topics.update(topic, retain_seconds=3600.0).retain_bytes == 1_000_000
    assert client.topics.update(topic, retain_bytes=None).retain_seconds == 3600.0
    assert topic in [one.name for one in client.topics.list(limit=2)]
    assert [one.partition for one in client.topics.show(topic).partitions] == [0, 1]


@pytest.mark.parametrize("name", ["a/b", "", "\x00", "x" * 10_000, "ü", "../x"])
def test_names_that_are_none(client: Client, name: str) -> None:
    with pytest.raises(BadInput):
        client.topics.create(name)


@pytest.mark.parametrize("body", ["text", '{"looks": "like JSON"}', "5", 5, None, {"a": [1, "ü\n"]}, "", " \u2028"])
def test_a_body_comes_back_as_it_was_sent(client: Client, topic: str, body: object) -> None:
    client.topics.create(topic)
    assert client.topics.publish(topic, body, key="k", headers={"h": "v"}) == Posted(0, 0)
    (message,) = client.topics.read(topic).messages
    assert (message.body, message.key, message.headers) == (body, "k", {"h": "v"})


def test_what_cannot_be_published(client: Client, broker: RunningSkep, topic: str) -> None:
    client.topics.create(topic)
    with pytest.raises(BadInput):
        client.topics.publish(topic, b"bytes")
    with pytest.raises(TooLarge):
        client.topics.publish(topic, "x" * 60_000)
    with pytest.raises(BadInput):
        client.topics.publish(topic, "x", partition=1)
    with pytest.raises(NotFound):
        client.topics.publish("nowhere", "x")
    with pytest.raises(NotAllowed):
        client.topics.publish("skep.changes", "x")
    assert client.topics.read(topic).next == 0


def test_a_batch_repeated_by_its_producer_is_stored_once(client: Client, topic: str) -> None:
    client.topics.create(topic, partitions=3)
    batch = [Outgoing(n) for n in range(5)]
    first = client.topics.publish_batch(topic, batch, producer="p", sequence=0)
    for _ in range(5):
        assert client.topics.publish_batch(topic, batch, producer="p", sequence=0) == first
    assert sum(one.next for one in client.topics.show(topic).partitions) == 5


def test_reading_waits_trims_and_tells_of_the_edge(client: Client, topic: str) -> None:
    client.topics.create(topic)
    later = threading.Timer(0.1, client.topics.publish, (topic, "first"))
    later.start()
    assert [one.body for one in client.topics.read(topic, wait=30).messages] == ["first"]
    later.join()
    client.topics.publish_batch(topic, [Outgoing(n) for n in range(4)])
    assert client.topics.trim(topic, 3).first == 3
    found = client.topics.read(topic, 0, max=1)
    assert (found.first, found.next, [one.offset for one in found.messages]) == (3, 5, [3])
    with pytest.raises(BadInput):
        client.topics.read(topic, -1)


def test_following_gives_what_there_is_and_what_comes(client: Client, topic: str) -> None:
    client.topics.create(topic)
    client.topics.publish_batch(topic, [Outgoing("old"), Outgoing("two\nlines")])
    messages = client.topics.follow(topic, 1)
    assert next(messages).body == "two\nlines"
    client.topics.publish(topic, "new")
    assert next(messages).offset == 2
    client.topics.trim(topic, 3)
    client.topics.publish(topic, "after")
    assert [one.offset for one in islice(client.topics.follow(topic, 0), 1)] == [3]
    with pytest.raises(NotFound):
        next(client.topics.follow("nowhere"))


def test_a_group_commits_seeks_and_is_behind(client: Client, topic: str) -> None:
    client.topics.create(topic)
    client.topics.publish_batch(topic, [Outgoing(n) for n in range(10)])
    group = client.topics.group(topic, "readers")
    with pytest.raises(NotFound):
        group.lag()
    joined = group.join()
    (lease,) = joined.leases
    group.commit(joined.member, [Commit(0, lease.generation, 4)])
    assert [(one.offset, one.lag, one.member) for one in group.lag()] == [(4, 6, joined.member)]
    assert [one.offset for one in group.seek("end")] == [10]
    with pytest.raises(Conflict):
        group.commit(joined.member, [Commit(0, lease.generation, 5)])
    group.leave(joined.member)
    assert client.topics.show(topic).groups == ["readers"]


async def test_the_same_verbs_for_asyncio_on_topics(broker: RunningSkep, topic: str) -> None:
    async with AsyncClient(broker.url, broker.token) as skep:
        await skep.topics.create(topic)
        await skep.topics.publish(topic, "x")
        assert (await skep.topics.read(topic)).next == 1
        async for message in skep.topics.follow(topic):
            assert message.body == "x"
            break
