"""Where settings come from: defaults, then a file, then SKEP_* variables, then flags; each value knows its origin."""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec

from skep.base.errors import BadInput
from skep.benchmarks.api import BenchmarkSpec
from skep.config.settings import Settings, split_address
from skep.rules.api import RuleSpec
from skep.sources.model import CredentialSpec

FILE = "skep.toml"
PREFIX = "SKEP_"
#: tables of the file that are no settings
_TABLES: dict[type, str] = {RuleSpec: "rule", CredentialSpec: "credential", BenchmarkSpec: "benchmark"}
#: SKEP_* variables that are no settings: where the client finds a server, and where the file is
RESERVED = frozenset({"SKEP_URL", "SKEP_TOKEN", "SKEP_CONFIG"})
FIELDS = {field.name: field for field in msgspec.structs.fields(Settings)}

T = TypeVar("T")
Warn = Callable[[str], None]
#: setting -> "default", "skep.toml", "SKEP_POLL_MIN" or "--poll-min"
Origins = dict[str, str]


def load(
    environ: Mapping[str, str],
    *,
    config: str | None = None,
    flags: Mapping[str, str | None] | None = None,
    warn: Warn = lambda _: None,
) -> tuple[Settings, Origins]:
    """`flags` are the texts people typed, by name of setting; those that are None were not given."""
    values: dict[str, Any] = {}
    origins: Origins = dict.fromkeys(FIELDS, "default")
    for origin, name, value, text in [
        *_from_file(config, environ),
        *_from_variables(environ, warn),
        *(
            (f"--{name.replace('_', '-')}", name, value, True)
            for name, value in (flags or {}).items()
            if value is not None
        ),
    ]:
        values[name] = _convert(origin, name, value, text)
        origins[name] = origin
    settings = Settings(**values)
    _check(settings, origins)
    return settings, origins


Found = tuple[str, str, Any, bool]


def load_tables(kind: type[T], environ: Mapping[str, str], *, config: str | None = None) -> list[T]:
    """The tables of one kind, such as `[[rule]]`; what they say is checked where rules are."""
    name = _TABLES[kind]
    path, table = _read_file(config, environ)
    try:
        return msgspec.convert(table.get(name, []), list[kind])  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        hint = f"docs/{name}s.md shows what a {name} is made of"
        raise BadInput(f"{path}: [[{name}]]: {error}", hint=hint) from error


def _from_file(config: str | None, environ: Mapping[str, str]) -> list[Found]:
    path, table = _read_file(config, environ)
    settings = {key: value for key, value in table.items() if key not in _TABLES.values()}
    for key in settings:
        if key not in FIELDS:
            raise BadInput(f"{path}: unknown setting '{key}'", hint=nearest(key) or "`skep config` lists every setting")
    return [(str(path), key, value, False) for key, value in settings.items()]


def _read_file(config: str | None, environ: Mapping[str, str]) -> tuple[Path, dict[str, Any]]:
    named = config or environ.get("SKEP_CONFIG")
    path = Path(named or FILE)
    if not named and not path.exists():
        return path, {}
    import tomllib

    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}", hint="check --config or SKEP_CONFIG") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path}: is not TOML: {error}", hint="`skep config --example` prints a file to start from"
        ) from error


def _from_variables(environ: Mapping[str, str], warn: Warn) -> list[Found]:
    found: list[Found] = []
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in RESERVED:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in FIELDS and variable.isupper():
            found.append((variable, name, environ[variable], True))
        else:
            hint = nearest(name, lambda known: PREFIX + known.upper())
            warn(f"variable {variable} is no setting and is ignored" + (f"; {hint}" if hint else ""))
    return found


def nearest(key: str, spell: Callable[[str], str] = str) -> str:
    import difflib

    close = difflib.get_close_matches(key, FIELDS, n=1)
    return f"did you mean '{spell(close[0])}'?" if close else ""


def _convert(origin: str, name: str, value: Any, text: bool) -> Any:
    """Variables and flags are text and converted leniently; a file has types of its own."""
    kind = FIELDS[name].type
    if text and _is_list(name):
        value = _split(origin, name, value)
    try:
        return msgspec.convert(value, kind, strict=not text)
    except msgspec.ValidationError as error:
        hint = f"{name} is: {about(name)} (default {shown(FIELDS[name].default)})"
        raise BadInput(f"{_place(origin, name)}: wants {expected(name)}, not {shown(value)}", hint=hint) from error


def _is_list(name: str) -> bool:
    return isinstance(FIELDS[name].default, tuple)


def _split(origin: str, name: str, value: str) -> Any:
    if not value.lstrip().startswith("["):
        return [part.strip() for part in value.split(",") if part.strip()]
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise BadInput(
            f"{_place(origin, name)}: is not a JSON list: {error}", hint="or write: one,two,three"
        ) from error


def _check(settings: Settings, origins: Origins) -> None:
    """What no type can say."""
    for name in FIELDS:
        value = getattr(settings, name)
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput(f"{_place(origins[name], name)}: must be a finite number")
    _check_addresses("listen", [settings.listen], origins)
    _check_addresses("link_listen", [settings.link_listen] if settings.link_listen else [], origins)
    _check_addresses("coordinators", settings.coordinators, origins)
    if not settings.roles:
        raise BadInput(f"{_place(origins['roles'], 'roles')}: a process has at least one role")
    if not settings.data or "\0" in settings.data:
        raise BadInput(f"{_place(origins['data'], 'data')}: names no folder")
    if settings.poll_min > settings.poll_max:
        raise BadInput(
            f"poll_min ({settings.poll_min:g}, from {origins['poll_min']}) is greater than "
            f"poll_max ({settings.poll_max:g}, from {origins['poll_max']})",
            hint="a source is looked at no sooner than poll_min and no later than poll_max",
        )
    for name in ("allow_networks", "trusted_proxies"):
        if networks := getattr(settings, name):
            _check_networks(networks, _place(origins[name], name))
    if settings.public_url:
        _check_url(settings.public_url, _place(origins["public_url"], "public_url"))


def _check_addresses(name: str, addresses: Iterable[str], origins: Origins) -> None:
    for address in addresses:
        try:
            split_address(address)
        except ValueError as error:
            raise BadInput(f"{_place(origins[name], name)}: {error}", hint="such as 127.0.0.1:7337") from error


def _check_networks(networks: tuple[str, ...], place: str) -> None:
    from ipaddress import ip_network

    for network in networks:
        try:
            ip_network(network)
        except ValueError as error:
            raise BadInput(f"{place}: {error}", hint="such as 192.168.1.0/24 or fd00::/8") from error


def _check_url(url: str, place: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        raise BadInput(f"{place}: '{url}' is not an http or https URL", hint="such as https://code.example.org")


def _place(origin: str, name: str) -> str:
    """A variable or flag names its setting already; a file does not."""
    return origin if origin.startswith(("--", PREFIX)) else f"{origin}: {name}"


def expected(name: str) -> str:
    """The values a setting may have, in words."""
    bound = {"gt": " above ", "ge": " of at least "}
    kind = msgspec.inspect.type_info(FIELDS[name].type)
    if isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    match kind:
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            limits = [f"{word}{getattr(kind, key):g}" for key, word in bound.items() if getattr(kind, key) is not None]
            return ("whole number" if isinstance(kind, msgspec.inspect.IntType) else "number") + "".join(limits)
        case msgspec.inspect.LiteralType():
            return "one of " + ", ".join(str(value) for value in kind.values)
        case msgspec.inspect.VarTupleType(item_type=msgspec.inspect.StructType()):
            return "list of tables"
        case msgspec.inspect.VarTupleType(item_type=msgspec.inspect.LiteralType(values=values)):
            return "list of " + ", ".join(str(value) for value in values)
        case msgspec.inspect.VarTupleType():
            return "list of texts"
        case msgspec.inspect.UnionType():
            return "true or false"
        case _:
            return "text"


def about(name: str) -> str:
    info = msgspec.inspect.type_info(FIELDS[name].type)
    schema = info.extra_json_schema if isinstance(info, msgspec.inspect.Metadata) else None
    return str((schema or {}).get("description", ""))


def shown(value: object) -> str:
    """A value as it is written in skep.toml, but without the password of a URL."""
    return "unset" if value is None else msgspec.json.encode(masked(value)).decode()


def masked(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        parts = urlsplit(value)
        password = parts.password
    except ValueError:
        return value
    if not password:
        return value
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{password}@", ":***@", 1)))
