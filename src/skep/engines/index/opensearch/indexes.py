"""The indexes on the server: one behind our alias, and during a copy another beside it."""

from collections.abc import Iterator

from skep.engines.index.base import Size
from skep.engines.index.opensearch.address import Address
from skep.engines.index.opensearch.documents import FORMAT, MAPPING, actions
from skep.engines.index.opensearch.node import Node
from skep.model.search import Damage, Document


class Indexes:
    def __init__(self, node: Node, address: Address) -> None:
        self._node = node
        self._address = address

    def current(self) -> tuple[str, str]:
        """Name and unique id of the index behind the alias; made when there is none."""
        found = self._node.behind()
        if found:
            return next(iter(found.items()))
        name, uuid = self.make()
        self._node.call("POST", "_aliases", {"actions": [{"add": {"index": name, "alias": self._node.prefix}}]})
        return name, uuid

    def make(self) -> tuple[str, str]:
        """An empty index that no alias names. What a copy left behind that did not finish is removed."""
        names = set(self._node.call("GET", f"{self._node.prefix}-*/_settings"))
        ours = {name for name in names if name.removeprefix(f"{self._node.prefix}-").isdigit()}
        named = set(self._node.behind())
        for name in ours - named:
            self._node.call("DELETE", name)
        last = max((int(name.rpartition("-")[2]) for name in named & ours), default=0)
        name = f"{self._node.prefix}-{last + 1:06d}"
        self._node.call("PUT", name, {"settings": self._address.settings(), "mappings": MAPPING})
        settings = self._node.call("GET", f"{name}/_settings")
        return name, settings[name]["settings"]["index"]["uuid"]

    def fill(self, name: str, documents: Iterator[tuple[int, int, Document]]) -> None:
        self._node.bulk(name, actions(documents), is_alias=False)
        self._node.call("POST", f"{name}/_refresh")

    def swap(self, name: str) -> None:
        """The alias names this index from now on, and the old one is removed."""
        alias = self._node.prefix
        old = list(self._node.behind())
        away = [{"remove": {"index": one, "alias": alias}} for one in old]
        self._node.call("POST", "_aliases", {"actions": [*away, {"add": {"index": name, "alias": alias}}]})
        for one in old:
            self._node.call("DELETE", one)

    def is_current(self) -> bool:
        """Of this format, and with as many shards as the URL says."""
        name, _ = self.current()
        found = self._node.call("GET", name)[name]
        wanted = str(self._address.shards)
        made = found["mappings"].get("_meta", {}).get("format")
        return bool(made == FORMAT and found["settings"]["index"]["number_of_shards"] == wanted)

    def size(self) -> Size:
        asked = {"size": 0, "track_total_hits": True, "aggs": {"bytes": {"sum": {"field": "size"}}}}
        answer = self._node.call("POST", f"{self._node.prefix}/_search", asked)
        return Size(
            answer["_shards"]["total"], answer["hits"]["total"]["value"], int(answer["aggregations"]["bytes"]["value"])
        )

    def damage(self) -> list[Damage]:
        health = self._node.call("GET", f"_cluster/health/{self._node.prefix}", level="indices")["indices"]
        return [
            Damage(name, "the server has lost some of its shards")
            for name, one in health.items()
            if one["status"] == "red"
        ]
