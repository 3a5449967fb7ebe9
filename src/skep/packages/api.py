"""Packages: programs that tasks run, pushed once and brought to whatever worker needs them."""

import msgspec

from skep.tasks.model import ContextSpec, Limits, TaskSpec

MANIFEST = "skep-package.toml"
#: versions that end so may be pushed again
SNAPSHOT = "-SNAPSHOT"


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What `skep-package.toml` says."""

    group: str
    name: str
    version: str
    description: str = ""
    #: name -> program and first arguments; a path is one within the package
    commands: dict[str, tuple[str, ...]] = {}
    #: of its commands, unless a task has its own
    limits: Limits = Limits()
    environment: dict[str, str] = {}
    #: templates; what runs a command and names no package runs one of this
    tasks: dict[str, TaskSpec] = {}
    contexts: dict[str, ContextSpec] = {}

    @property
    def ref(self) -> str:
        return f"{self.group}/{self.name}/{self.version}"


class Package(msgspec.Struct, frozen=True):
    manifest: Manifest
    #: sha256 of the archive, by which it is stored
    blob: str
    size: int
    pushed_at: float
    pushed_by: str


class FromTemplate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A template of a package is to be done."""

    template: str
    #: those of the template, unless they are given here
    properties: dict[str, str] = {}


class PackageWanted(msgspec.Struct, frozen=True, tag=True):
    """Asked over the link by a worker whose task runs a command of a package."""

    package: str
    task: str
    attempt: int
    #: False: only what it is
    open: bool = False


class PackageFrom(msgspec.Struct, frozen=True, tag=True):
    package: Package
    #: of the tunnel that brings it
    ticket: str = ""
