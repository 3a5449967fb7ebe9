"""What hosts that count requests say about coming back."""

from hypothesis import given
from hypothesis import strategies as st

from skep.net.limits import pause

DATE = b"Date: Wed, 21 Oct 2015 07:28:00 GMT\r\n"
THEN = 1_445_412_480


def test_a_time_is_measured_by_the_hosts_own_clock() -> None:
    used_up = b"x-ratelimit-remaining: 0\r\n"
    assert pause([DATE, used_up, b"X-RateLimit-Reset: %d\r\n" % (THEN + 900)]) == 900
    assert pause([DATE, used_up, b"RateLimit-Reset: %d\r\n" % (THEN - 5)]) == 1
    assert pause([used_up, b"RateLimit-Reset: 30\r\n"]) == 30


def test_nothing_is_made_of_what_is_left_unsaid_or_makes_no_sense() -> None:
    reset = b"x-ratelimit-reset: 30\r\n"
    assert pause([reset]) == 0
    assert pause([b"x-ratelimit-remaining: 12\r\n", reset]) == 0
    assert pause([b"x-ratelimit-remaining: 0\r\n", b"x-ratelimit-reset: -3\r\n"]) == 0
    assert pause([b"x-ratelimit-remaining: 0\r\n", b"x-ratelimit-reset: %d\r\n" % (THEN + 900)]) == 1


@given(st.lists(st.binary(max_size=60)), st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_are_read_without_a_word(lines: list[bytes], reset: bytes, date: bytes) -> None:
    said = [*lines, b"ratelimit-remaining: 0", b"ratelimit-reset: " + reset, b"date: " + date]
    assert 0 <= pause(said) < 10**12
