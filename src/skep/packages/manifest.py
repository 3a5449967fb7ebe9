"""`skep-package.toml`: read, and checked. Pure."""

import re
import tomllib

import msgspec

from skep.errors import BadInput
from skep.model.package import MANIFEST, Manifest
from skep.model.task import ContextSpec, TaskSpec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_HINT = "letters, digits and . _ + - inside, at most 100"


def parse(body: bytes) -> Manifest:
    try:
        manifest = msgspec.convert(tomllib.loads(body.decode()), Manifest)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, msgspec.ValidationError) as error:
        raise BadInput(f"{MANIFEST}: {error}") from None
    for what in ("group", "name", "version"):
        if not _NAME.fullmatch(text := getattr(manifest, what)):
            raise BadInput(f"{MANIFEST}: {text[:80]!r} is no {what}", hint=_HINT)
    for name, argv in manifest.commands.items():
        if not _NAME.fullmatch(name) or not argv or not argv[0]:
            raise BadInput(
                f"{MANIFEST}: the command {name[:80]!r} says nothing to run", hint='run = ["python3", "run.py"]'
            )
    return manifest


def split(ref: str) -> tuple[str, str, str]:
    parts = ref.split("/")
    if len(parts) != 3 or not all(_NAME.fullmatch(part) for part in parts):
        raise BadInput(f"{ref[:100]!r} is no package", hint="GROUP/NAME/VERSION")
    return parts[0], parts[1], parts[2]


def context(manifest: Manifest, template: str, properties: dict[str, str]) -> ContextSpec:
    """What a template asks for; of the properties those given here win."""
    if template in manifest.contexts:
        spec = manifest.contexts[template]
    elif template in manifest.tasks:
        spec = ContextSpec(template, (manifest.tasks[template],))
    else:
        known = ", ".join((*manifest.contexts, *manifest.tasks)) or "none"
        raise BadInput(f"{manifest.ref} has no template {template[:80]!r}", hint=f"it has: {known}")
    return msgspec.structs.replace(
        spec,
        tasks=tuple(_own(manifest, task) for task in spec.tasks),
        templates={name: _own(manifest, task) for name, task in (manifest.tasks | spec.templates).items()},
        properties=spec.properties | properties,
    )


def _own(manifest: Manifest, task: TaskSpec) -> TaskSpec:
    return msgspec.structs.replace(task, package=manifest.ref) if task.command and not task.package else task
