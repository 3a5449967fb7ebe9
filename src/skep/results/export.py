"""Results as one file: JSON lines, or CSV."""

import csv
import io
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from skep.results.fields import FIELDS

FORMATS = {"jsonl": "application/jsonl", "csv": "text/csv"}


async def lines(
    pieces: AsyncIterator[list[dict[str, Any]]], form: str, fields: Sequence[str] = ()
) -> AsyncIterator[bytes]:
    if form == "jsonl":
        async for piece in pieces:
            yield b"".join(msgspec.json.encode(row) + b"\n" for row in piece)
        return
    out = io.StringIO()
    table = csv.DictWriter(out, fields or list(FIELDS), lineterminator="\n")
    table.writeheader()
    async for piece in pieces:
        table.writerows({name: _cell(value) for name, value in row.items()} for row in piece)
        yield out.getvalue().encode()
        out.seek(0)
        out.truncate()


def _cell(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, dict | tuple) else value
