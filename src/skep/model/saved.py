"""Searches that are kept: when a change brings new matches, they are told."""

import msgspec

from skep.model.search_answers import Hit


class SavedSearch(msgspec.Struct, frozen=True):
    name: str
    query: str
    #: where new matches are told
    topic: str
    #: who saved it
    owner: str
    #: tells also what matches when a source is indexed for the first time
    first: bool
    created_at: float


class SearchSpec(msgspec.Struct, frozen=True):
    query: str
    #: empty: `skep.searches`
    topic: str = ""
    first: bool = False


class Searches(msgspec.Struct, frozen=True):
    searches: list[SavedSearch]


class NewMatches(msgspec.Struct, frozen=True):
    """A message on the topic of a saved search: what a change brought to one file."""

    id: str
    #: its name
    search: str
    query: str
    #: the file with the lines that did not match before; its `more`: there are others of them
    hit: Hit
    at: float
    #: more files of this change match than are told
    more: bool = False
