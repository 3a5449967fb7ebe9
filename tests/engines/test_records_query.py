"""The query language of records, without an engine."""

from hypothesis import given, settings
from hypothesis import strategies as st

from skep.base.errors import BadQuery
from skep.storage.records.query import parse
from tests.engines.test_records_contract import PAPERS


@settings(max_examples=300)
@given(st.text(st.sampled_from('ab :"()[]{}*?-\\TOorAND_.title:words:date:2001é'), max_size=30))
def test_any_text_is_a_query_or_an_error(text: str) -> None:
    try:
        parse(PAPERS, text)
    except BadQuery as error:
        assert error.column is None or 1 <= error.column <= len(text) + 1
