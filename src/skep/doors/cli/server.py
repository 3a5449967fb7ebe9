"""`skep up` and the roles by themselves: settings first. Roles stand above doors, so they are named by text."""

import os
import sys
from argparse import Namespace
from functools import partial
from importlib import import_module

import msgspec

from skep.config import Role, Settings
from skep.config_load import FIELDS, Origins, load, load_tables
from skep.doors.cli.source import absolute
from skep.model.benchmark import BenchmarkSpec
from skep.model.credential import CredentialSpec
from skep.model.rule import RuleSpec


def settings_of(args: Namespace) -> tuple[Settings, Origins]:
    flags = {name: getattr(args, f"set_{name}", None) for name in FIELDS}
    return load(os.environ, config=args.config, flags=flags, warn=_warn)


def _warn(text: str) -> None:
    print(f"skep: {text}", file=sys.stderr)


def up(args: Namespace) -> int:
    settings, _ = settings_of(args)
    return _run(settings, args, tuple(absolute(url) for url in args.add))


def _alone(role: Role, args: Namespace) -> int:
    """With those beside it that the settings name together with it; a file for other machines changes nothing."""
    settings, origins = settings_of(args)
    if origins["roles"] == "default" or role not in settings.roles:
        settings = msgspec.structs.replace(settings, roles=(role,))
    return _run(settings, args)


coordinator = partial(_alone, "coordinator")
aggregator = partial(_alone, "aggregator")
manager = partial(_alone, "manager")
worker = partial(_alone, "worker")


def _run(settings: Settings, args: Namespace, urls: tuple[str, ...] = ()) -> int:
    if args.config:  # a worker hides this file from tasks, and it may be another process
        os.environ["SKEP_CONFIG"] = os.path.abspath(args.config)  # noqa: PTH100
    if not {"coordinator", "aggregator"} & set(settings.roles):
        return import_module("skep.roles.member").main(settings) or 0
    read = partial(load_tables, environ=os.environ, config=args.config)
    tables = (read(kind) for kind in (RuleSpec, CredentialSpec, BenchmarkSpec))
    return import_module("skep.roles.up").main(settings, urls, *tables) or 0
