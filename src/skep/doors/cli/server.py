"""`skep up`: settings first, then the role. Roles stand above doors, so it is named by text."""

import os
import sys
from argparse import Namespace
from importlib import import_module

from skep.config import Settings
from skep.config_load import FIELDS, Origins, load, load_credentials, load_rules
from skep.doors.cli.source import absolute


def settings_of(args: Namespace) -> tuple[Settings, Origins]:
    flags = {name: getattr(args, f"set_{name}") for name in FIELDS}
    return load(os.environ, config=args.config, flags=flags, warn=_warn)


def _warn(text: str) -> None:
    print(f"skep: {text}", file=sys.stderr)


def up(args: Namespace) -> int:
    settings, _ = settings_of(args)
    rules = load_rules(os.environ, config=args.config)
    credentials = load_credentials(os.environ, config=args.config)
    urls = tuple(absolute(url) for url in args.add)
    return import_module("skep.roles.up").main(settings, urls, rules, credentials) or 0
