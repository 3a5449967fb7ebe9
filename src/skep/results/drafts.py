"""What may be recorded. Pure."""

import math
from collections.abc import Collection
from statistics import median

import msgspec

from skep.errors import BadInput
from skep.model.result import Draft

MOST_VALUES = 10_000
_LONGEST = {"metric": 200, "unit": 40, "group": 500, "kind": 40}
_MOST_TAGS, _LONGEST_TAG = 32, 1_000


def checked(draft: Draft, kinds: Collection[str]) -> Draft:
    """With its value; BadInput says what is wrong with it."""
    if draft.kind not in kinds:
        raise BadInput(
            f"{draft.kind[:80]!r} is no kind of result; known are {', '.join(kinds)}",
            hint="the setting result_kinds names more",
        )
    failure = draft.kind == "failure"
    if not draft.metric and not failure:
        raise BadInput("a result without a metric", hint='such as {"metric": "time", "value": 1.25, "unit": "s"}')
    for name, most in _LONGEST.items():
        _text(name, getattr(draft, name), most)
    if len(draft.tags) > _MOST_TAGS:
        raise BadInput(f"{draft.metric!r} has {len(draft.tags)} tags; at most {_MOST_TAGS} are allowed")
    for name, text in draft.tags.items():
        _text("a tag's name", name, _LONGEST["metric"])
        _text(f"the tag {name}", text, _LONGEST_TAG)
    return msgspec.structs.replace(draft, value=_value(draft, failure))


def _value(draft: Draft, failure: bool) -> float:
    if len(draft.values) > MOST_VALUES:
        raise BadInput(f"{draft.metric!r} has {len(draft.values):,} values; at most {MOST_VALUES:,} are allowed")
    for number in (*draft.values, draft.value or 0.0):
        if not math.isfinite(number):
            raise BadInput(f"a value of {draft.metric!r} is {number}", hint="only finite numbers are recorded")
    if draft.value is not None:
        return draft.value
    if not draft.values and not failure:
        raise BadInput(f"{draft.metric!r} has neither a value nor values")
    return median(draft.values) if draft.values else 0.0


def _text(name: str, text: str, most: int) -> None:
    if len(text) > most or not text.isprintable():
        raise BadInput(f"{name}: {text[:80]!r} has more than {most} characters, or some that nobody can read")
