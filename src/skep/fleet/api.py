"""What a member of the fleet is and offers."""

import msgspec


class Offer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker can do for tasks, and what its machine is like; said at Hello and with each renewal."""

    #: kinds of tasks it does
    kinds: tuple[str, ...] = ()
    #: `command` and `own`: tasks at once
    slots: dict[str, int] = {}
    labels: tuple[str, ...] = ()
    #: programs found on its machine
    tools: tuple[str, ...] = ()
    #: os, arch, cpu, memory, disk, load …: what selectors compare
    facts: dict[str, str | float] = {}
    #: it mirrors sources
    mirror: bool = True
    #: how people call it; pins may name it so
    name: str = ""
    #: how much it can hold in comparison with others
    capacity: float = 1.0
