"""Which class an error of the server comes back as."""

from skep.client.transport import _by_code
from skep.errors import BadUrl, NotFound, SkepError
from skep.topics.queue import Nothing


def test_a_subclass_that_shares_a_code_does_not_take_its_parents_place() -> None:
    assert Nothing.code == NotFound.code
    classes = _by_code(SkepError)
    assert classes["not_found"] is NotFound
    assert classes["bad_url"] is BadUrl
