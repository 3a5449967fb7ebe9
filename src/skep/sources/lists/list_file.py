"""From a file of a list to its entries (pure). What is wrong with one entry does not harm the others."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import yaml

from skep.base.caller import Visibility
from skep.base.errors import SkepError
from skep.sources.catalogue import Address
from skep.sources.model import SourceSettings
from skep.sources.service import labels_of

# YAML as a list needs it: values with their lines. Written by strangers, so without tags, aliases and depth.

LARGEST = 2_000_000
DEEPEST = 8
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}

Scalar = str | int | float | bool | None


class Node(NamedTuple):
    line: int
    value: "Scalar | list[Node] | dict[str, Node]"


class Problem(NamedTuple):
    line: int
    message: str


class BadYaml(Exception):
    """Nothing of the file can be used."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(line, message)


class _Open:
    """A list or mapping whose end has not come yet."""

    __slots__ = ("key", "node", "skips")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.key: str | None = None
        self.skips = False


def read(data: bytes) -> tuple[Node, list[Problem]]:
    """The one document of a file; of a key that is there twice, the first counts."""
    if len(data) > LARGEST:
        raise BadYaml(1, f"the file has {len(data):,} bytes; the limit is {LARGEST:,}")
    try:
        return _build(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadYaml(data.count(b"\n", 0, error.start) + 1, "not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadYaml(line, f"not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise BadYaml(1, f"not YAML: {str(error).splitlines()[0][:200]}") from None


def _build(text: str) -> tuple[Node, list[Problem]]:
    root: Node | None = None
    problems: list[Problem] = []
    stack: list[_Open] = []
    for event in yaml.parse(text, Loader=_LOADER):
        kind = type(event)
        if kind is yaml.ScalarEvent:
            _refuse_tag(event)
            done = Node(event.start_mark.line + 1, _scalar(event))
        elif kind in (yaml.MappingStartEvent, yaml.SequenceStartEvent):
            _refuse_tag(event)
            if len(stack) >= DEEPEST:
                raise BadYaml(event.start_mark.line + 1, f"nested deeper than {DEEPEST} levels")
            stack.append(_Open(Node(event.start_mark.line + 1, {} if kind is yaml.MappingStartEvent else [])))
            continue
        elif kind in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
            done = stack.pop().node
        elif kind is yaml.AliasEvent:
            raise BadYaml(event.start_mark.line + 1, "aliases (*name) are not supported")
        elif kind is yaml.DocumentStartEvent and root is not None:
            raise BadYaml(event.start_mark.line + 1, "a file holds one document")
        else:
            continue
        if stack:
            _put(stack[-1], done, problems)
        else:
            root = done
    return root or Node(1, None), problems


def _put(place: _Open, done: Node, problems: list[Problem]) -> None:
    into = place.node.value
    if isinstance(into, list):
        into.append(done)
    elif isinstance(into, dict) and place.key is None:
        if isinstance(done.value, list | dict):
            raise BadYaml(done.line, "a key is a text, not a list or mapping")
        place.key = str(done.value)
        place.skips = place.key in into
        if place.skips:
            problems.append(Problem(done.line, f"'{place.key[:80]}' is there twice; the first counts"))
    elif isinstance(into, dict) and place.key is not None:
        if not place.skips:
            into[place.key] = done
        place.key = None


def _refuse_tag(event: yaml.NodeEvent) -> None:
    if event.tag is not None:
        raise BadYaml(event.start_mark.line + 1, f"tags ({event.tag[:40]}) are not supported")


def _scalar(event: yaml.ScalarEvent) -> Scalar:
    """As YAML 1.2 reads plain words: `no` is a text."""
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


MOST_ENTRIES = 20_000
MOST_PROBLEMS = 100
_LONGEST_NAME = 300
#: keys of an entry that are settings of its source; any other key that is not known becomes a label
SETTINGS = frozenset(SourceSettings.__struct_fields__)

Defaults = Mapping[str, Node]
ToAddress = Callable[[str], Address]
#: SkepError when a source cannot be set so
ToSettings = Callable[[Mapping[str, Any]], SourceSettings]


class Entry(msgspec.Struct, frozen=True):
    #: what stays when the URL changes
    name: str
    address: Address
    line: int = 0
    labels: tuple[str, ...] = ()
    settings: SourceSettings = SourceSettings()
    #: workers that should hold it, the first that is there
    workers: tuple[str, ...] = ()
    visibility: Visibility | None = None
    #: stands for its refs, where a manifest says it; when it changes, the source is looked at
    fingerprint: str = ""
    #: bytes as a forge counts them; 0: not known
    size: int = 0


class Parsed(msgspec.Struct, frozen=True):
    entries: list[Entry]
    problems: list[Problem]


class _Bad(Exception):
    pass


def parse_defaults(data: bytes) -> tuple[dict[str, Node], list[Problem]]:
    try:
        node, problems = read(data)
    except BadYaml as error:
        return {}, [error.problem]
    if isinstance(node.value, dict):
        return node.value, problems
    return {}, problems if node.value is None else [Problem(node.line, "DEFAULTS is a mapping of keys to values")]


def parse(path: str, data: bytes, defaults: Defaults, address: ToAddress, settings: ToSettings) -> Parsed:
    """`defaults` are those of all folders above, already merged."""
    try:
        root, problems = read(data)
    except BadYaml as error:
        return Parsed([], [error.problem])
    entries: dict[str, Entry] = {}
    for name, node in _items(path, root):
        if len(entries) >= MOST_ENTRIES:
            problems.append(Problem(node.line, f"a file has at most {MOST_ENTRIES:,} entries; the rest is not read"))
            break
        try:
            entry = _entry(name, node, defaults, address, settings, problems)
        except _Bad as error:
            problems.append(Problem(node.line, str(error)))
            continue
        except SkepError as error:
            problems.append(Problem(node.line, f"{error.message}; {error.hint}".rstrip("; ")))
            continue
        if entry.name in entries:
            problems.append(Problem(node.line, f"'{entry.name[:80]}' is there twice; the first counts"))
        else:
            entries[entry.name] = entry
    return Parsed(list(entries.values()), sorted(set(problems))[:MOST_PROBLEMS])


def _items(path: str, root: Node) -> Iterator[tuple[str, Node]]:
    """Names and bodies; an entry of a plain list has no name of its own."""
    match root.value:
        case None:
            return
        case dict(body) if "url" in body:
            yield path, root
        case dict(named):
            yield from named.items()
        case list(items):
            for item in items:
                if isinstance(item.value, dict) and "url" not in item.value:
                    yield from item.value.items()
                else:
                    yield "", item
        case _:
            yield "", root


def _entry(
    name: str, node: Node, defaults: Defaults, address: ToAddress, settings: ToSettings, problems: list[Problem]
) -> Entry:
    own: Defaults = node.value if isinstance(node.value, dict) else {}
    if isinstance(node.value, list):
        raise _Bad("an entry is a URL or a mapping with the key 'url', not a list")
    url = _url(own.get("url", Node(node.line, name))) if own or node.value is None else str(node.value)
    if not name.isprintable() or len(name) > _LONGEST_NAME:
        raise _Bad(f"'{name[:40]!a}' is not a name: 1 to {_LONGEST_NAME} printable characters")
    place = address(url)
    labels: list[str] = []
    given_settings: dict[str, Node] = {}
    values: dict[str, Any] = {}
    for key, given in ({**defaults, **own} if own else defaults).items():
        if key in ("labels", "workers", "visibility"):
            values[key] = _texts(key, given)
        elif key == "settings" and isinstance(given.value, dict):
            given_settings |= given.value
        elif key in SETTINGS:
            given_settings[key] = given
        elif isinstance(given.value, dict):
            problems.append(Problem(given.line, f"'{key[:80]}' is a mapping and cannot be a label; it is not used"))
        elif key != "url":
            labels += _labels(key, given)
    labels += values.get("labels", ())
    return Entry(
        name or place.canonical,
        place,
        node.line,
        tuple(labels_of(labels)),
        _settings(given_settings, settings, problems),
        tuple(values.get("workers", ())),
        _visibility(values.get("visibility")),
    )


def _url(node: Node) -> str:
    """Of several URLs the first is asked."""
    value = node.value[0].value if isinstance(node.value, list) and node.value else node.value
    if not isinstance(value, str):
        raise _Bad("the entry has no URL")
    return value


def _texts(key: str, node: Node) -> list[str]:
    items = node.value if isinstance(node.value, list) else [node]
    values = [item.value for item in items if item.value is not None]
    if any(isinstance(value, list | dict) for value in values):
        raise _Bad(f"'{key}' is a text or a list of texts")
    return [str(value) for value in values]


def _labels(key: str, node: Node) -> list[str]:
    """`team: infra` is the label `team=infra`, `hot: true` is `hot`, and `hot: false` is none."""
    items = node.value if isinstance(node.value, list) else [node]
    return [text for item in items if (text := _label(key, item.value))]


def _label(key: str, value: "Scalar | list[Node] | dict[str, Node]") -> str:
    if value is None or value is False or isinstance(value, list | dict):
        return ""
    return key if value is True else f"{key}={value}"


def _settings(given: Mapping[str, Node], settings: ToSettings, problems: list[Problem]) -> SourceSettings:
    """One that is wrong, or does not go with those before it, is left out."""
    good: dict[str, Any] = {}
    for key, node in given.items():
        try:
            settings(good | {key: _plain(node)})
            good[key] = _plain(node)
        except SkepError as error:
            problems.append(Problem(node.line, f"'{key[:80]}' is not used: {error.message}"))
    return settings(good) if good else SourceSettings()


def _plain(node: Node) -> Any:
    if isinstance(node.value, list):
        return [_plain(item) for item in node.value]
    return {key: _plain(item) for key, item in node.value.items()} if isinstance(node.value, dict) else node.value


def _visibility(given: list[str] | None) -> Visibility | None:
    match given:
        case None | []:
            return None
        case ["public"]:
            return "public"
        case ["private"]:
            return "private"
        case _:
            raise _Bad("'visibility' is public or private")
