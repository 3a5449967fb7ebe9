"""The verbs of contexts, tasks and workers, against a running server and its worker."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from skep.base.errors import BadInput, Conflict, NotAllowed, NotFound
from skep.client import AsyncClient, Client
from skep.tasks.model import ContextSpec, Need, TaskSpec
from tests.house.running import RunningSkep

#: no worker is so large: it waits
WAITS = TaskSpec("waits", argv=("sh",), selector="cpu > 99999")


def test_a_context_from_submission_to_removal(client: Client) -> None:
    spec = ContextSpec("trial", (TaskSpec("a", kind="noop"), TaskSpec("b", kind="noop", needs=(Need("a"),))))
    context = client.contexts.submit(spec)
    ended = client.contexts.wait(context.id)
    assert (ended.state, ended.tasks, ended.left, ended.failed) == ("FINISHED", 2, 0, 0)
    view = client.contexts.show(context.id, limit=1)
    assert [task.name for task in view.tasks] == ["a"]
    view = client.contexts.show(context.id, after=view.tasks[0].id)
    assert ([task.name for task in view.tasks], view.needs) == (["b"], {"b": ["a"]})
    shown = client.tasks.show(view.tasks[0].id)
    assert [(move.state, move.by) for move in shown.moves][-3:] == [
        ("ACCEPTED", "worker"), ("RUNNING", "worker"), ("FINISHED", "worker"),
    ]  # fmt: skip
    assert context.id in [one.id for one in client.contexts.list(state="FINISHED", cause="person:admin", limit=2)]
    with pytest.raises(Conflict):
        client.contexts.retry(context.id)
    client.contexts.remove(context.id)
    with pytest.raises(NotFound):
        client.contexts.wait(context.id)


def test_cancelling_and_retrying(client: Client) -> None:
    context = client.contexts.submit(
        ContextSpec("long", (WAITS, TaskSpec("last", kind="noop", needs=(Need("waits"),))))
    )
    (added,) = client.contexts.add(context.id, [TaskSpec("more", kind="noop")])
    assert [one for one in client.tasks.follow(added)] == []  # noqa: C416 - it ends, and wrote nothing
    assert client.contexts.wait(context.id, 0.01).state == "RUNNING"
    with pytest.raises(Conflict):
        client.contexts.remove(context.id)
    client.contexts.cancel(context.id, "enough")
    ended = client.contexts.wait(context.id)
    assert (ended.state, ended.failed) == ("FAILED", 2)
    waits = client.contexts.show(context.id).tasks[0]
    assert (waits.state, "enough" in waits.reason) == ("ABORTED", True)
    assert client.contexts.retry(context.id).state == "RUNNING"
    client.contexts.cancel(context.id)
    assert client.contexts.wait(context.id).failed == 2


def test_one_task_alone(client: Client) -> None:
    submitted = client.tasks.submit(TaskSpec("alone", kind="noop"))
    assert client.contexts.wait(submitted.context.id).state == "FINISHED"
    assert submitted.task in [one.id for one in client.tasks.list(state="FINISHED", limit=1)]
    assert list(client.tasks.output(submitted.task)) == []
    other = client.tasks.submit(WAITS)
    following = threading.Thread(target=lambda: list(client.tasks.follow(other.task)))
    following.start()
    assert client.tasks.cancel(other.task, "too late").state == "ABORTED"
    following.join(60)
    assert not following.is_alive()
    with pytest.raises(Conflict):
        client.tasks.cancel(other.task)


def test_workers_and_selectors(client: Client) -> None:
    (worker,) = [one for one in client.workers.list() if one.member.state == "alive"]
    assert worker.member.state == "alive" and "noop" in worker.offer.kinds
    (match,) = [one for one in client.workers.select(f'id == "{worker.member.id}"') if one.worker == worker.member.id]
    assert match.matches
    (match,) = [one for one in client.workers.select('id == "nobody"') if one.worker == worker.member.id]
    assert match.reason == f'id == "nobody" is not true (id is {worker.member.id})'
    with pytest.raises(BadInput) as caught:
        client.workers.select("cpu >> 2")
    assert caught.value.column == 6


def test_what_is_refused(client: Client, broker: RunningSkep) -> None:
    for spec in (ContextSpec("empty"), ContextSpec("c", (TaskSpec(),)), ContextSpec("c", (TaskSpec(template="t"),))):
        with pytest.raises(BadInput):
            client.contexts.submit(spec)
    for verb in (client.tasks.show, client.tasks.cancel, client.contexts.show, client.contexts.cancel):
        with pytest.raises(NotFound):
            verb("../../status")
    with pytest.raises(NotFound):
        next(client.tasks.follow("tsk_none"))
    reader = client.tokens.create("reader", ["read"]).token
    with Client(broker.url, reader) as other, pytest.raises(NotAllowed):
        other.tasks.submit(WAITS)


async def test_the_same_verbs_for_asyncio_on_tasks(broker: RunningSkep) -> None:
    async with AsyncClient(broker.url, broker.token) as skep:
        submitted = await skep.tasks.submit(TaskSpec(kind="noop"))
        assert [one async for one in skep.tasks.follow(submitted.task)] == []
        assert (await skep.contexts.wait(submitted.context.id)).state == "FINISHED"
        assert submitted.context.id in [one.id async for one in skep.contexts.list()]
        assert len([one for one in await skep.workers.list() if one.member.state == "alive"]) == 1


class Watched(Client):
    """Says when the server has answered it for the first time."""

    def __init__(self, skep: RunningSkep) -> None:
        super().__init__(skep.url, skep.token)
        self.answered = threading.Event()
        call, lines = self.transport.call, self.transport.lines

        def watched_call(*args: Any, **more: Any) -> Any:
            answer = call(*args, **more)
            self.answered.set()
            return answer

        def watched_lines(*args: Any, **more: Any) -> Iterator[str]:
            inner = lines(*args, **more)
            yield next(inner)
            self.answered.set()
            yield from inner

        self.transport.call, self.transport.lines = watched_call, watched_lines  # type: ignore[method-assign, assignment]


def test_whoever_waits_or_follows_comes_back_to_a_server_that_was_away(mortal: RunningSkep) -> None:
    ended: list[str] = []
    with Client(mortal.url, mortal.token) as client, Watched(mortal) as one, Watched(mortal) as two:
        submitted = client.tasks.submit(WAITS)
        context = submitted.context.id
        threads = [
            threading.Thread(target=lambda: ended.append(one.contexts.wait(context).state)),
            threading.Thread(target=lambda: ended.append(str(list(two.tasks.follow(submitted.task))))),
        ]
        for thread in threads:
            thread.start()
        assert one.answered.wait(60) and two.answered.wait(60)
        mortal.kill()
        mortal.start()
        client.contexts.cancel(context)
        for thread in threads:
            thread.join(60)
    assert sorted(ended) == ["FAILED", "[]"]
