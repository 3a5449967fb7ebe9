"""Tests land in their tier by what they use, and a fast one that starts a server fails."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests import tiers
from tests.house.running import RunningSkep
from tests.support.forge import Forge
from tests.support.postgres import running_postgres


def is_pure(text: str) -> str:
    return tiers.MARKER + text


def uses_a_server_inside() -> None:
    def later() -> Any:
        return running_postgres()

    later()


def uses_a_helper() -> None:
    starts_skep()


def starts_skep() -> None:
    RunningSkep  # noqa: B018


@pytest.mark.parametrize(
    ("test", "served"),
    [(is_pure, False), (Forge, True), (uses_a_server_inside, True), (uses_a_helper, True), (len, False)],
)
def test_tier_of_a_test_follows_from_what_it_refers_to(test: Callable[..., None], served: bool) -> None:
    assert tiers._starts(test) is served


def test_process_started_while_fast_tests_run_fails_the_test() -> None:
    watch = tiers.Watch()
    subprocess.run(["true"], check=True)
    watch.on = True
    try:
        subprocess.run(["git", "--version"], check=True, stdout=subprocess.DEVNULL)
        with pytest.raises(pytest.fail.Exception, match="starts 'true'"):
            subprocess.run(["true"], check=True)
    finally:
        watch.on = False
