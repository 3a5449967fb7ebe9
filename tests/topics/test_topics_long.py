"""Many producers and consumers, kill -9 again and again: every acknowledged message is there, once, in its order.

Skep is killed, NATS where it keeps the log, both at once, and consumers, which leave their group without a word.
A slice of some seconds belongs to every run; `make long LONG=600 SEED=5` goes on longer.
"""

import os
import random
import signal
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.house.running import RunningSkep
from tests.support.nats import NatsServer, running_nats
from tests.topics.crowd import AWAY, GROUP, PARTITIONS, Consumer, Out, Place, Story, Wire, produce

LONG = float(os.environ.get("LONG", "5"))
SEED = int(os.environ.get("SEED", "11"))
COUNTED, PLAIN, CONSUMERS = 4, 4, 3
DRAIN_SECONDS = 120.0


@pytest.mark.parametrize("log", ["db", "nats"])
def test_acknowledged_messages_survive_kills(tmp_path: Path, log: str) -> None:
    with ExitStack() as stack:
        nats = stack.enter_context(running_nats(tmp_path / "nats")) if log == "nats" else None
        # (what the log waits for is less than what a client does)
        settings: dict[str, Any] = {"log": f"{nats.url}?patience=20" if nats else "db:", "member_seconds": 3.0}
        skep = stack.enter_context(RunningSkep(tmp_path / "data", **settings))
        crowd = stack.enter_context(ThreadPoolExecutor(COUNTED + PLAIN + CONSUMERS))
        story = Story(skep, "crowd")
        skep_makes(story)
        try:
            counted = {f"c{n}": crowd.submit(produce, story, f"c{n}", n, counted=True) for n in range(COUNTED)}
            plain = {f"p{n}": crowd.submit(produce, story, f"p{n}", n, counted=False) for n in range(PLAIN)}
            consumers = [crowd.submit(Consumer(story, n).run) for n in range(CONSUMERS)]
            kill_again_and_again(story, nats, random.Random(SEED))
            story.produced.set()
            made = {name: one.result(60) for name, one in (counted | plain).items()}
            drain(story)
        finally:
            story.produced.set()
            story.drained.set()
        for one in consumers:
            one.result(60)
        stored = everything(story)
        check_stored(story, stored, made)
        check_delivered(story, stored)
        assert skep.stop() == 0, skep.tail()


def skep_makes(story: Story) -> None:
    wire = Wire(Story(story.skep, ""))
    with suppress(Out):  # it was made, and only the answer did not come
        patiently(wire, "POST", "", {"name": story.topic, "partitions": PARTITIONS})
    wire.close()


def patiently(wire: Wire, verb: str, path: str, body: Any = None) -> Any:
    """While nobody is killed: a machine that holds its breath is no answer."""
    until = monotonic() + DRAIN_SECONDS
    while True:
        try:
            return wire.ask(verb, path, body)
        except AWAY:
            if monotonic() > until:
                raise


def kill_again_and_again(story: Story, nats: NatsServer | None, chance: random.Random) -> None:
    until = monotonic() + LONG
    while monotonic() < until or (not eventful(story) and monotonic() < until + DRAIN_SECONDS):
        threading.Event().wait(0.3 + 2.0 * chance.random())  # the moment of the kill is the test's input
        victim = chance.choice(["skep", "nats", "both"]) if nats else "skep"
        if nats and victim != "skep":
            nats.stop(signal.SIGKILL)
        if victim != "nats":
            story.skep.kill()
        story.crashes += 1
        if nats and victim != "skep":
            threading.Event().wait(0.5 * chance.random())
            nats.start()
        if victim != "nats":
            story.skep.start()


def eventful(story: Story) -> bool:
    return bool(story.dead) and len(story.acknowledged) > 100


def drain(story: Story) -> None:
    wire, until = Wire(story), monotonic() + DRAIN_SECONDS
    while monotonic() < until:
        try:
            if not sum(one["lag"] for one in wire.ask("GET", f"/groups/{GROUP}/lag")["partitions"]):
                break
        except AWAY:
            continue
        threading.Event().wait(0.2)
    wire.close()
    assert monotonic() < until, "the group never came to the end"


def everything(story: Story) -> dict[Place, dict[str, Any]]:
    stored: dict[Place, dict[str, Any]] = {}
    wire = Wire(story)
    for partition in range(PARTITIONS):
        offset = 0
        page = f"/messages?partition={partition}&max=1000&offset="
        while found := patiently(wire, "GET", f"{page}{offset}")["messages"]:
            for message in found:
                assert message["offset"] == offset, "a gap"
                stored[partition, offset] = message["body"]
                offset += 1
    wire.close()
    return stored


def check_stored(story: Story, stored: dict[Place, dict[str, Any]], made: dict[str, int]) -> None:
    assert eventful(story), "messages were stored, and a consumer died"
    lost = {place: body for place, body in story.acknowledged.items() if stored.get(place) != body}
    assert not lost
    by_producer: dict[str, list[int]] = defaultdict(list)
    for place in sorted(stored):
        by_producer[stored[place]["by"]].append(stored[place]["n"])
    for name, numbers in by_producer.items():
        if name.startswith("c"):
            assert numbers == list(range(made[name])), f"{name}: lost, repeated or out of order"
        else:
            assert numbers == sorted(set(numbers)), f"{name}: repeated or out of order"


def check_delivered(story: Story, stored: dict[Place, dict[str, Any]]) -> None:
    last: dict[Place, tuple[int, str]] = {}
    for place, body, crashes, member in story.delivered:
        assert stored[place] == body
        before, had = last.get(place, (-1, ""))
        assert before < crashes or had in story.dead | story.silent, (
            f"{place} came twice, to {had} and {member}, without a crash between"
        )
        last[place] = crashes, member
    assert last.keys() == stored.keys()
