"""Contexts, tasks and workers in a real Chromium, while a worker works on them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skep.base.caller import SYSTEM
from skep.tasks.model import Context, ContextSpec, Need, TaskSpec

from .chromium import Tab, chromium
from .tasks_house import House, served, working

BROWN = "<b onclick=alert(1)>brown</b>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium(tmp_path_factory.mktemp("tasks-profile")) as tab:
        yield tab


class Visit:
    """A person with a browser. What the browser does runs in a thread: the server it asks shares our loop."""

    def __init__(self, house: House, url: str, tab: Tab) -> None:
        self.house = house
        self.url = url
        self.tab = tab

    async def log_in(self) -> None:
        token = await self.house.door.token("read", "write")
        await self.open("/login?next=/contexts")
        await self.value(f"document.getElementById('token').value = {token!r}; 0")
        await self.do(self.tab.submit, "form.stack button")

    async def open(self, path: str) -> None:
        await self.do(self.tab.open, self.url + path)

    async def do(self, verb: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.to_thread(verb, *args)

    async def value(self, script: str) -> Any:
        return await self.do(self.tab.value, script)

    async def words(self, selector: str = "main") -> str:
        return str(await self.value(f"document.querySelector({selector!r})?.innerText"))

    async def until(self, condition: str) -> None:
        look = f"const look = () => {condition} ? done(1) : setTimeout(look, 20); look();"
        await self.value(f"new Promise(done => {{ {look} }})")


@pytest.fixture
async def visit(tmp_path: Path, browser: Tab) -> AsyncIterator[Visit]:
    browser.size(1280, 900)
    browser.console.clear()
    async with working(tmp_path) as house, served(house) as url:
        visit = Visit(house, url, browser)
        yield visit
        said = list(browser.console)
        await visit.open("/healthz")  # no stream stays open
    assert said == []


async def release(house: House) -> Context:
    tasks = (
        TaskSpec("build", kind="held"),
        TaskSpec("test", kind="bad", needs=(Need("build"),)),
        TaskSpec("ship", kind="held", needs=(Need("build"), Need("test"))),
        TaskSpec("odd", kind="magic", selector="cpu > 1"),
    )
    return await house.core.contexts.submit(
        SYSTEM, ContextSpec("release", tasks, description=BROWN, properties={BROWN: BROWN}), cause=f"request:{BROWN}"
    )


async def test_a_context_is_seen_to_move_and_is_cancelled_and_retried(visit: Visit) -> None:
    context = await release(visit.house)
    await visit.house.running(context, "build")
    await visit.log_in()
    assert BROWN in await visit.words("#contexts")
    await visit.do(visit.tab.submit, "#contexts a")
    lines = "[...document.querySelectorAll('.tasks li')].map(li => li.className + ' ' + li.innerText.split('\\n')[0])"
    assert await visit.value(lines) == ["depth0 build", "depth1 test", "depth2 ship needs build", "depth0 odd"]
    assert "no worker does tasks of kind magic" in await visit.words(".tasks")
    visit.house.go.set()
    await visit.until("document.querySelector('#tasks').innerText.includes('needs test, which is FAILED')")
    await visit.until("document.querySelector('#about').innerText.includes('3 ended, 2 of them failed, 1 to go')")
    await visit.do(visit.tab.submit, "form[action$=cancel] button")
    await visit.until("document.querySelector('.title .FAILED')")
    await visit.until("document.querySelector('form[action$=remove]')")
    await visit.do(visit.tab.submit, "form[action$=retry] button")
    assert await visit.value("location.pathname") == f"/contexts/{context.id}"
    await visit.house.core.contexts.cancel(SYSTEM, context.id)
    await visit.until("document.querySelector('form[action$=remove]')")
    await visit.do(visit.tab.submit, "form[action$=remove] button")
    assert "No contexts yet" in await visit.words()
    assert await visit.value("document.querySelectorAll('b[onclick]').length") == 0


async def test_output_is_followed_live(visit: Visit) -> None:
    task = await visit.house.held_task()
    await visit.house.write(task, 0, f"first {BROWN}\n")
    await visit.log_in()
    await visit.open(f"/tasks/{task.id}")
    assert await visit.words("#output") == f"first {BROWN}\n"
    umlaut = "ü\n".encode()
    await visit.house.write(task, 1, umlaut[:1])
    await visit.house.write(task, 2, umlaut[1:])
    await visit.house.write(task, 3, "bees", "stderr")
    await visit.until("document.querySelector('#output .stderr')")
    assert await visit.words("#output") == f"first {BROWN}\nü\nbees"
    visit.house.go.set()
    await visit.until("document.querySelector('.title .FINISHED')")
    await visit.until("document.querySelector('#result pre')")
    assert '"pots": 3' in await visit.words("#result")
    assert await visit.words("#output") == f"first {BROWN}\nü\nbees"
    assert (await visit.words("#moves tbody tr")).startswith("finished\tworker\t1")


async def test_a_running_task_is_cancelled(visit: Visit) -> None:
    task = await visit.house.held_task()
    await visit.log_in()
    await visit.open(f"/tasks/{task.id}")
    await visit.do(visit.tab.submit, "form[action$=cancel] button")
    assert "aborted" in await visit.words(".title")
    assert "tester" in await visit.words("#reason")


async def test_of_a_long_output_the_newest_part_is_shown(visit: Visit) -> None:
    task = await visit.house.held_task()
    for n in range(5):
        await visit.house.write(task, n, f"{n} " + "honey " * 6000 + "\n")
    visit.house.go.set()
    await visit.open(f"/tasks/{task.id}")
    shown = await visit.words("#output")
    assert shown.startswith("3 ") and len(shown) < 100_000 and "newest part" in await visit.words("section.wide")


async def test_a_selector_is_tried_while_it_is_typed(visit: Visit) -> None:
    await visit.open("/workers")
    assert "<i>fast" in await visit.words(".worker") and "2.0 GB of 8.0 GB" in await visit.words(".worker")
    await visit.value("document.getElementById('selector').focus(); 0")
    for text, told in (
        ("cpu >= 2", "1 of 1 worker may"),
        (" and cpu > 4", "cpu > 4 is not true"),
        (" or", "too early"),
    ):
        await visit.do(lambda text=text: visit.tab.call("Input.insertText", text=text))
        await visit.until(f"document.getElementById('workers').innerText.includes({told!r})")
    assert await visit.value("document.getElementById('selector').value") == "cpu >= 2 and cpu > 4 or"


async def test_many_tasks_come_in_pages(visit: Visit) -> None:
    tasks = tuple(TaskSpec(f"t{n}", kind="magic", needs=(Need(f"t{n - 1}"),) if n else ()) for n in range(450))
    context = await visit.house.core.contexts.submit(SYSTEM, ContextSpec("many", tasks))
    seen: list[str] = []
    await visit.open(f"/contexts/{context.id}")
    for count in (200, 400, 450):
        seen += await visit.value("[...document.querySelectorAll('.tasks a')].map(a => a.textContent)")
        assert seen == [f"t{n}" for n in range(count)]
        if count < 450:
            await visit.do(visit.tab.submit, "a[rel=next]")
            assert "needs t" in await visit.words(".tasks li")
    assert await visit.value("document.querySelector('a[rel=next]')") is None


async def test_the_pages_fit_a_phone(visit: Visit) -> None:
    long = "x" * 199
    spec = TaskSpec(long, kind="held", properties={long: long}, environment={long: long * 10})
    context = await visit.house.core.contexts.submit(
        SYSTEM, ContextSpec(long, (spec,), description=long, properties={long: long}), cause=long
    )
    task = await visit.house.running(context, long)
    await visit.house.write(task, 0, long * 20)
    await visit.log_in()
    visit.tab.size(390, 844, dark=True)
    for path in ("/contexts", f"/contexts/{context.id}", f"/tasks/{task.id}", "/workers", "/workers?selector=cpu+%3E"):
        await visit.open(path)
        assert await visit.value("document.documentElement.scrollWidth") <= 390, path
    visit.tab.size(1280, 900)
    for path in ("/contexts", f"/contexts/{context.id}", f"/tasks/{task.id}"):
        await visit.open(path)
        assert await visit.value("document.documentElement.scrollWidth") <= 1280, path


async def test_without_a_token_nothing_can_be_changed(visit: Visit) -> None:
    context = await release(visit.house)
    task = await visit.house.running(context, "build")
    await visit.do(visit.tab.call, "Network.clearBrowserCookies")
    for path in (f"/contexts/{context.id}", f"/tasks/{task.id}"):
        await visit.open(path)
        assert await visit.value("document.querySelectorAll('main form').length") == 0
