"""What the catalogue knows of git: its URLs, and which of them may be added."""

from skep.clock import SystemClock
from skep.config import Settings
from skep.globs import compile_globs
from skep.model.source import SourceSettings
from skep.sources.git import url as urls
from skep.sources.git.guard import Guard
from skep.sources.git.selection import check_patterns


def allows_local(settings: Settings) -> bool:
    return settings.loopback if settings.allow_local is None else settings.allow_local


class GitAddresses:
    clean = staticmethod(urls.clean)
    canonical = staticmethod(urls.canonical)
    name = staticmethod(urls.name)
    host = staticmethod(urls.host_of)

    def __init__(self, settings: Settings) -> None:
        clock = SystemClock()
        self._for_admins = Guard(settings, clock, local=allows_local(settings))
        self._for_others = Guard(settings, clock, local=False)

    def check(self, url: str, *, local: bool) -> None:
        (self._for_admins if local else self._for_others).check_url(url)
        urls.canonical(url)

    def check_settings(self, settings: SourceSettings) -> None:
        if settings.refs is not None:
            check_patterns(settings.refs)
        if settings.branches:
            compile_globs(settings.branches, "branches")
