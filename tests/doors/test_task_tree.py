"""The tree of a context: every task once, below the last of what it needs, whatever page of it is shown."""

from hypothesis import given
from hypothesis import strategies as st

from skep.tasks.model import Task
from skep.tasks.pages import tree


def task(n: int) -> Task:
    return Task(f"tsk_{n:03}", "ctx_1", f"t{n}", "noop", "WAITING", 0, 0, 0, "", "", 0.0)


@st.composite
def contexts(draw: st.DrawFn) -> dict[str, list[str]]:
    count = draw(st.integers(1, 30))
    return {f"t{n}": [f"t{m}" for m in draw(st.sets(st.integers(0, n - 1)))] if n else [] for n in range(count)}


@given(contexts(), st.integers(0, 30), st.integers(1, 30))
def test_every_task_stands_once_below_what_it_needs(needs: dict[str, list[str]], first: int, count: int) -> None:
    shown = [task(n) for n in range(len(needs))][first : first + count]
    branches = tree(shown, needs)
    assert sorted(branch.task.id for branch in branches) == [one.id for one in shown]
    names = {one.name for one in shown}
    way: list[str] = []
    for branch in branches:
        wanted = needs[branch.task.name]
        below = [name for name in wanted if name in names]
        if branch.depth < 8:
            way[branch.depth :] = [branch.task.name]
            assert (branch.depth == 0) == (not below)
            if below:
                assert way[branch.depth - 1] == below[-1]
        assert sorted([*branch.needs, *below[-1:]]) == sorted(wanted)


def test_a_long_chain_is_no_deep_recursion() -> None:
    chain = [task(n) for n in range(100_000)]
    needs = {f"t{n}": [f"t{n - 1}"] for n in range(1, 100_000)}
    branches = tree(chain, needs)
    assert (len(branches), branches[-1].depth) == (100_000, 8)
