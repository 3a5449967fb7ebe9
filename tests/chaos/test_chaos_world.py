"""Members in namespaces of their own: cuts hold in the directions they name, and nothing is left afterwards."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.schedule import Event
from tests.chaos.world import address_of, ruleset, why_not

_ROOT = Path(__file__).parents[2]
needs_root = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
#: in a process of its own, because a thread that has entered a namespace stays there
_TRIAL = """
import socket, subprocess, sys
from tests.chaos.schedule import Event
from tests.chaos.world import World, address_of

def reaches(world, sender, receiver):
    with world.inside(receiver):
        listener = socket.create_server((address_of(receiver), 5000))
    with listener, world.inside(sender):
        try:
            with socket.create_connection((address_of(receiver), 5000), timeout=2):
                return "yes"
        except TimeoutError:
            return "silence"
        except ConnectionRefusedError:
            return "refused"

with World(home="cli") as world:
    for kind, one_way in (("", False), ("cut", False), ("block", False), ("block", True)):
        event = Event(0.0, kind, "c1", 1.0, "w1" if kind else "", one_way)
        world.cut(event)
        print(kind, one_way, reaches(world, "c1", "w1"), reaches(world, "c2", "w1"))
        world.heal(event)
        print("healed", reaches(world, "c1", "w1"))
    with world.inside("w2"):
        # it has no output: the caller would otherwise wait for its end when this process crashes
        child = subprocess.Popen(["sleep", "100"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(world.processes("w2") == {child.pid: "sleep 100"}, world.processes("w3"))
    if sys.argv[1:] == ["crash"]:
        import os
        os._exit(3)
"""


def trial(*args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", _TRIAL, *args]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)


def test_ruleset_of_a_one_way_cut_drops_only_what_the_target_sends() -> None:
    event = Event(0.0, "cut", "c1", 1.0, "w1", one_way=True)
    assert f"ip daddr {address_of('w1')} drop" in ruleset("c1", [event])
    assert "daddr" not in ruleset("w1", [event])


@needs_root
def test_world_with_cuts_loses_packets_in_the_named_directions_and_ends_without_a_trace() -> None:
    done = trial()
    assert done.stdout.splitlines() == [
        " False yes yes",
        "healed yes",
        "cut False silence yes",
        "healed yes",
        "block False refused yes",
        "healed yes",
        "block True refused yes",
        "healed yes",
        "True {}",
    ], done.stderr


@needs_root
def test_world_of_a_process_that_died_is_removed_by_the_next() -> None:
    trial("crash")
    before = {path.name for path in Path("/run/netns").glob("chaos*")}
    done = trial()
    assert done.returncode == 0, done.stderr
    left = {path.name for path in Path("/run/netns").glob("chaos*")} & before
    owners = {name.removeprefix("chaos").partition("-")[0] for name in left}
    assert not [owner for owner in owners if not Path(f"/proc/{owner}").exists()]
