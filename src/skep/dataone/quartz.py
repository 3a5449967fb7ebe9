"""A node's Quartz schedule as a cron (pure). What is wrong with it is repaired and said; none stops the scheduler."""

import re

from skep.dataone.types import Schedule
from skep.errors import BadInput
from skep.schedule.cron import Cron

#: where nothing can be made of a schedule
HOURLY = "0 * * * *"
_ANY = ("?", "*", "")
_DAY = re.compile(r"(?<![/\d])\d+")


def cron_of(schedule: Schedule) -> tuple[Cron, str]:
    """And what had to be repaired; empty: nothing. Seconds and years do not matter here."""
    words = {name: "".join(getattr(schedule, name).split()) for name in ("min", "hour", "mday", "mon", "wday")}
    wrong = []
    if words["mday"] not in _ANY and words["wday"] not in _ANY:
        wrong.append("both days are set, the day of the month is kept")
        words["wday"] = "?"
    # Sunday is 1 there, and a step counts from its first number
    words["wday"] = _DAY.sub(lambda found: str((int(found[0]) + 6) % 7), words["wday"])
    text = " ".join("*" if word in _ANY else word for word in words.values())
    try:
        return Cron(text), "; ".join(wrong)
    except BadInput as error:
        return Cron(HOURLY), f"its schedule is not understood ({error.message}): it is looked at every hour"
