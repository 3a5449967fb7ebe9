"""What people give beside a URL, checked."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from skep.errors import BadInput
from skep.model.source import SourceSettings


def labels_of(labels: Sequence[str]) -> list[str]:
    for label in labels:
        if not label or len(label) > 100 or not label.isprintable():
            raise BadInput(f"{label[:40]!r} is not a label", hint="1 to 100 printable characters")
    return sorted(set(labels))


def settings_of(values: Mapping[str, Any]) -> SourceSettings:
    try:
        settings = msgspec.convert(values, SourceSettings)
    except msgspec.ValidationError as error:
        names = ", ".join(SourceSettings.__struct_fields__)
        raise BadInput(f"settings of a source: {error}", hint=f"there are {names}") from None
    if settings.poll_min and settings.poll_max and settings.poll_min > settings.poll_max:
        raise BadInput("settings of a source: poll_min is greater than poll_max")
    return settings
