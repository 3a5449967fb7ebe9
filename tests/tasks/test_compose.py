"""From what is submitted to tasks: templates, inheritance, needs; and everything that is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.base.errors import BadInput
from skep.tasks.contexts import MOST_TOGETHER, compose
from skep.tasks.model import ContextSpec, Need, TaskSpec


def command(name: str, *needs: str, **more: object) -> TaskSpec:
    return TaskSpec(name, argv=("true",), needs=tuple(map(Need, needs)), **more)  # type: ignore[arg-type]


def test_templates_and_properties() -> None:
    template = TaskSpec(
        argv=("make",), retries=3, properties={"a": "template", "b": "template"}, environment={"X": "1"}
    )
    own = TaskSpec("one", template="build", properties={"b": "own"}, environment={"Y": "2"}, retries=1)
    spec = ContextSpec(
        "c",
        (own, TaskSpec(template="build")),
        properties={"a": "context", "z": "context"},
        templates={"build": template},
    )
    one, two = compose(spec)
    assert one.argv == ("make",)
    assert one.retries == 1
    assert two.retries == 3
    assert one.properties == {"a": "template", "b": "own", "z": "context"}
    assert one.environment == {"X": "1", "Y": "2"}
    assert (two.name, two.template) == ("task-2", "")


BAD = {
    "no tasks": (ContextSpec("c"), "without tasks"),
    "no name": (ContextSpec("", (command("a"),)), "no name for a context"),
    "a task's name": (ContextSpec("c", (command("\n"),)), "no name for a task"),
    "template": (ContextSpec("c", (TaskSpec(template="x"),)), "no template 'x'"),
    "nothing to run": (ContextSpec("c", (TaskSpec("a"),)), "nothing to run"),
    "argv of a kind": (ContextSpec("c", (TaskSpec("a", "index", ("x",)),)), "takes no argv"),
    "zero byte": (ContextSpec("c", (TaskSpec("a", argv=("a\0b",)),)), "zero byte"),
    "zero byte in the environment": (ContextSpec("c", (command("a", environment={"a": "\0"}),)), "zero byte"),
    "retries": (ContextSpec("c", (command("a", retries=101),)), "retries"),
    "negative retries": (ContextSpec("c", (command("a", retries=-1),)), "retries"),
    "backoff": (ContextSpec("c", (command("a", backoff=-1.0),)), "positive"),
    "timeout": (ContextSpec("c", (command("a", timeout=0.0),)), "positive"),
    "endless timeout": (ContextSpec("c", (command("a", timeout=float("nan")),)), "positive"),
    "endless backoff": (ContextSpec("c", (command("a", backoff=float("inf")),)), "positive"),
    "holder of nothing": (ContextSpec("c", (command("a", holder=True),)), "names none"),
    "selector": (ContextSpec("c", (command("a", selector="colour > 4"),)), "column 1"),
    "twice": (ContextSpec("c", (command("a"), command("a"))), "two tasks are called 'a'"),
    "a name that was given": (ContextSpec("c", (command("task-2"), TaskSpec(argv=("x",)))), "task-2"),
    "unknown need": (ContextSpec("c", (command("a", "b"),)), "'b', which is not in its context"),
    "itself": (ContextSpec("c", (command("a", "a"),)), "circle: a"),
    "circle": (ContextSpec("c", (command("a", "c"), command("b", "a"), command("c", "b"), command("d"))), "a, b, c"),
    "needs of those that go together": (
        ContextSpec("c", (command("a"), command("b", "a")), together=True),
        "need each other",
    ),
    "too many together": (
        ContextSpec("c", tuple(command(f"t{n}") for n in range(MOST_TOGETHER + 1)), together=True),
        "placed together",
    ),
    "too many": (ContextSpec("c", (TaskSpec(argv=("x",)),) * 100_001), "100000"),
    "the same need twice": (ContextSpec("c", (command("a"), command("b", "a", "a"))), "twice"),
    "a huge priority": (ContextSpec("c", (command("a", priority=1 << 70),)), "priority"),
}


@pytest.mark.parametrize("case", BAD)
def test_refusals(case: str) -> None:
    spec, message = BAD[case]
    with pytest.raises(BadInput, match=message):
        compose(spec)


def test_what_is_added_may_need_what_is_there_and_not_bear_its_name() -> None:
    spec = ContextSpec("c", (command("b", "a"),))
    assert compose(spec, {"a": "tsk_1"})[0].needs == (Need("a"),)
    with pytest.raises(BadInput, match="two tasks are called 'b'"):
        compose(spec, {"a": "tsk_1", "b": "tsk_2"})


def test_a_hundred_thousand_in_a_row() -> None:
    tasks = tuple(command(f"t{n}", *([f"t{n - 1}"] if n else [])) for n in range(100_000))
    assert len(compose(ContextSpec("c", tasks))) == 100_000


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=16))
def test_circles_are_found(edges: list[tuple[int, int]]) -> None:
    wanted = {n: {b for a, b in edges if a == n} for n in range(8)}
    tasks = tuple(command(f"t{n}", *(f"t{b}" for b in sorted(needs))) for n, needs in wanted.items())
    reach = {n: set(needs) for n, needs in wanted.items()}
    for _ in range(8):
        reach = {n: needs.union(*(reach[b] for b in needs)) for n, needs in reach.items()}
    if any(n in needs for n, needs in reach.items()):
        with pytest.raises(BadInput, match="circle"):
            compose(ContextSpec("c", tasks))
    else:
        compose(ContextSpec("c", tasks))
