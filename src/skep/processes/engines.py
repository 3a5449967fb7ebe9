"""Engines by the scheme of a URL. They are entry points, so an outside package adds one by naming it in its metadata.

| kind  | group        | an opener is called as                                           |
|-------|--------------|------------------------------------------------------------------|
| db    | `skep.db`    | `await open(url, data=folder, durability="full") -> Database`    |
| log   | `skep.log`   | `await open(url, db=database) -> Log`                            |
| blobs | `skep.blobs` | `await open(url, data=folder) -> Blobs`                          |
| index | `skep.index` | `await open(url, data=folder, db=database) -> Searcher`          |
| records | `skep.records` | `await open(url, data=folder) -> Records`                    |
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Literal

from skep.base.errors import BadInput

Kind = Literal["db", "log", "blobs", "index", "records"]

#: other spellings people use for a scheme
_ALIASES = {"postgres": "postgresql"}
#: which extra of skep brings a module that may be missing
_EXTRAS = {"asyncpg": "postgres", "nats": "nats", "httpx": "opensearch", "obstore": "s3"}


def find(kind: Kind, url: str) -> Callable[..., Any]:
    """The opener for `url`; only the module of the chosen engine is imported."""
    scheme, colon, _ = url.partition(":")
    known = {entry.name: entry for entry in entry_points(group=f"skep.{kind}")}
    entry = known.get(_ALIASES.get(scheme, scheme))
    if not colon or entry is None:
        # what follows the scheme may hold a password: it is never repeated
        named = f"{scheme!r} is no known scheme" if colon else "there is no scheme"
        raise BadInput(
            f"{named} in the URL for {kind}", hint="known: " + ", ".join(f"{name}:" for name in sorted(known))
        )
    try:
        opener: Callable[..., Any] = entry.load()
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        extra = _EXTRAS.get(missing)
        raise BadInput(
            f"the {kind} engine {scheme}: cannot be loaded: {error}",
            hint=f"pip install 'skep[{extra}]'" if extra else f"install what {entry.value.partition(':')[0]} needs",
        ) from error
    return opener
