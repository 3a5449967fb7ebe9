"""YAML as a list needs it: values with their lines. Written by strangers, so without tags, aliases and depth."""

import re
from typing import NamedTuple

import yaml

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
