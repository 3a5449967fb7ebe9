"""The column of a mistake in a regular expression."""

import pytest

from skep.base.errors import BadQuery
from skep.search.query import parse


@pytest.mark.parametrize(
    ("query", "column"), [("foo /a(b/ bar", 7), (r"/x\((y(z)/", 5), ("/[(]a(/", 6), ("/a[b/", 3), ("ok /a**/", 6)]
)
def test_a_mistake_is_pointed_at(query: str, column: int) -> None:
    with pytest.raises(BadQuery) as caught:
        parse(query)
    assert caught.value.column == column
