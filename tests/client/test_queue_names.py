"""MyProducer and MyConsumer: the library of the topic queue, with its own names and attributes."""

import pytest

from skep.base.errors import BadInput, NotAllowed, SkepError
from skep.client import Client, MyConsumer, MyProducer
from skep.client.legacy_queue import NothingLeft
from tests.house.running import RunningSkep


def test_the_queue_with_its_own_names(client: Client, broker: RunningSkep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_TOKEN", broker.token)
    producer = MyProducer(["queue-a", "queue-b"], broker.url)
    consumer = MyConsumer(["queue-a", "queue-b"], broker.url)
    assert (producer.broker, sorted(producer.topics)) == (broker.url, ["queue-a", "queue-b"])
    assert producer.topics["queue-b"] == producer.topics["queue-a"] + 1
    assert not consumer.has_next("queue-a")
    for text in ("one", '{"two": 2}', "3"):
        producer.send("queue-a", text)
    assert (consumer.size("queue-a"), consumer.size("queue-b")) == (3, 0)
    assert [consumer.get_next("queue-a") for _ in range(3)] == ["one", '{"two": 2}', "3"]
    with pytest.raises(NothingLeft) as error:
        consumer.get_next("queue-a")
    assert isinstance(error.value, LookupError)
    assert isinstance(error.value, SkepError)
    late = MyConsumer("queue-a", client)
    assert (late.size("queue-a"), late.get_next("queue-a")) == (3, "one")
    for end in (producer, consumer, late):
        end.stop()


def test_what_the_queue_refuses(client: Client) -> None:
    producer = MyProducer(["queue-c"], client)
    with pytest.raises(BadInput, match="not registered"):
        producer.send("queue-d", "x")
    producer.stop()
    with pytest.raises(NotAllowed):
        MyProducer(["skep.mine"], client)
    with pytest.raises(BadInput):
        MyConsumer(["no/name"], client)
