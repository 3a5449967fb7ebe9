"""Starts `skep` with its route tables written to the file ACCESS_ROUTES and, where ACCESS_PLANT names one, with a bug.

`python tests/access/serve.py up …` is `skep up …` otherwise. Only this file knows how the application is put together.
"""

import json
import os
import re
import runpy
from pathlib import Path
from typing import Any

import litestar

from skep.base.caller import Caller
from skep.interfaces.http import app as application

_made = litestar.Litestar.__init__
_forked = application._fork
_operations: list[str] = []


def _listed(self: Any, *args: Any, **more: Any) -> None:
    _made(self, *args, **more)
    for route in self.routes:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
        _operations.extend(f"{method} {path}" for method in getattr(route, "methods", ()) if method != "OPTIONS")


def _bare(pages: Any, bare: Any, messages: Any, searches: Any) -> Any:
    """Routes that Litestar does not know."""
    _operations.extend(f"{method} /api/v1/topics/{{topic}}/messages" for method in messages)
    _operations.extend(f"{method} /api/v1/search" for method in searches)
    for prefix, door in bare.items():
        calls = getattr(door, "_calls", None)
        if calls is None:
            _operations.append(f"ASGI {prefix}")
        else:
            _operations.extend(f"{method} {prefix}v2/{word}".rstrip("/") for method, word in calls)
    Path(os.environ["ACCESS_ROUTES"]).write_text(json.dumps(sorted(set(_operations))))
    return _forked(pages, bare, messages, searches)


def _no_need() -> None:
    Caller.need = lambda self, scope: None  # type: ignore[method-assign]


def _sees_everything() -> None:
    Caller.sees = lambda self, visibility: True  # type: ignore[method-assign]


_PLANTS = {"": lambda: None, "need": _no_need, "sees": _sees_everything}

if __name__ == "__main__":
    litestar.Litestar.__init__ = _listed  # type: ignore[method-assign]
    application._fork = _bare
    _PLANTS[os.environ.get("ACCESS_PLANT", "")]()
    runpy.run_module("skep", run_name="__main__", alter_sys=True)
