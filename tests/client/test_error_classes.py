"""Which class an error of the server comes back as."""

from skep.base.errors import BadUrl, NotFound, SkepError, class_of
from skep.topics.legacy_queue import Nothing


def test_a_subclass_that_shares_a_code_does_not_take_its_parents_place() -> None:
    assert Nothing.code == NotFound.code
    assert class_of("not_found") is NotFound
    assert class_of("bad_url") is BadUrl
    assert class_of("of a newer Skep") is SkepError
