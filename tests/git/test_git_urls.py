"""Which URLs are one, which are none, and how people call them."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.base.errors import BadUrl, NotAllowed
from skep.config.settings import Settings
from skep.net.urls import LONGEST, canonical, clean, host_of, name
from skep.sources.git.source_type import GitAddresses


@pytest.mark.parametrize(
    ("url", "identity", "called"),
    [
        ("https://GitHub.com/Org/Repo.git/", "https://github.com/org/repo", "github.com/org/repo"),
        ("HTTPS://github.com:443//org//repo", "https://github.com/org/repo", "github.com/org/repo"),
        ("https://Example.org/Org/Repo", "https://example.org/Org/Repo", "example.org/Org/Repo"),
        ("https://example.org./x", "https://example.org/x", "example.org/x"),
        ("https://example.org:8443/x.git", "https://example.org:8443/x", "example.org:8443/x"),
        ("http://example.org/x", "http://example.org/x", "example.org:80/x"),
        ("http://example.org:8080/x", "http://example.org:8080/x", "example.org:8080/x"),
        ("git://example.org/x", "git://example.org/x", "example.org:9418/x"),
        ("git@github.com:Org/Repo.git", "ssh://git@github.com/org/repo", "git@github.com/org/repo"),
        ("ssh://git@github.com/org/repo", "ssh://git@github.com/org/repo", "git@github.com/org/repo"),
        ("example.org:x/y", "ssh://example.org/x/y", "@example.org/x/y"),
        ("ssh://me@example.org:2222/x", "ssh://me@example.org:2222/x", "me@example.org:2222/x"),
        ("/srv/git/x.git", "file:///srv/git/x.git", "local/srv/git/x.git"),
        ("/srv/work/x/.git/", "file:///srv/work/x", "local/srv/work/x"),
        ("file:///srv//a/../x", "file:///srv/x", "local/srv/x"),
        ("file://localhost/srv/x", "file:///srv/x", "local/srv/x"),
        ("/srv/a b%20c", "file:///srv/a%20b%2520c", "local/srv/a b%2520c"),
        ("https://h.org/%7Euser/%c3%bc", "https://h.org/~user/%C3%BC", "h.org/~user/ü"),
        ("https://h.org/a%2fb", "https://h.org/a%2Fb", "h.org/a%2Fb"),
        ("https://bücher.example/x", "https://xn--bcher-kva.example/x", "xn--bcher-kva.example/x"),
        ("https://127.1/x", "https://127.0.0.1/x", "127.0.0.1/x"),
        ("http://2130706433/x", "http://127.0.0.1/x", "127.0.0.1:80/x"),
        ("http://0x7f000001/x", "http://127.0.0.1/x", "127.0.0.1:80/x"),
        ("https://[2001:DB8:0::1]/x", "https://[2001:db8::1]/x", "[2001:db8::1]/x"),
    ],
)
def test_one_spelling_for_one_repository(url: str, identity: str, called: str) -> None:
    assert (canonical(url), name(url)) == (identity, called)
    assert canonical(identity) == identity
    assert canonical(clean(url)) == identity


def test_git_gets_what_was_typed() -> None:
    assert clean("https://GitHub.com/Org/Repo.git") == "https://github.com/Org/Repo.git"
    assert clean("git@host.org:me/it.git") == "git@host.org:me/it.git"
    assert clean("host.org:/srv/it") == "ssh://host.org/srv/it"
    assert (host_of("git@host.org:x"), host_of("https://h.org:8443/x"), host_of("/x")) == ("host.org", "h.org:8443", "")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "   ",
        "foo",
        "./x",
        "../x",
        "github.com/org/repo",
        "https://",
        "https://h.org",
        "https://h.org/",
        "https:///x",
        "https://h.org/.git",
        "https://h.org/x?y=1",
        "https://h.org/x#y",
        "https://h.org/a b",
        "https://h.org/a\nb",
        "https://h.org/a\x00b",
        "https://h.org/%00",
        "https://h.org/%0a",
        "https://h.org/%zz",
        "https://h.org/a/../b",
        "https://h.org/%2e%2e/b",
        "https://h.org:0/x",
        "https://h.org:99999/x",
        "https://h.org:٣/x",
        "https://a..b/x",
        "ext::sh -c touch% /tmp/x",
        "fd::17",
        "foo::bar",
        "::x",
        "ssh+git::x",
        "--upload-pack=touch /tmp/x",
        "-x",
        "ssh://-oProxyCommand=x/y",
        "ssh://-x@h.org/y",
        "a@-h.org:x",
        "-a@h.org:x",
        "javascript://x/y",
        "ftp://h.org/x",
        "file://server/share",
        "file:relative",
        "https://1.2.3.4.5/x",
        "https://0x/x/y",
        "https://[::1/x",
        "https://[x]/y",
        "https://[fe80::1%25eth0]/x",
        "https://xn--�/x",
        "https://h.org/" + "a" * LONGEST,
        "/a\nb",
        "https://'\"/x",
    ],
)
def test_what_is_no_url_is_refused_with_a_word(url: str) -> None:
    with pytest.raises(BadUrl) as error:
        canonical(url)
    assert error.value.message


@pytest.mark.parametrize(
    "url",
    [
        "https://me:hunter2@h.org/x",
        "https://hunter2@h.org/x",
        "http://x:hunter2@h.org/x",
        "ssh://me:hunter2@h.org/x",
        "git://hunter2@h.org/x",
        "https://hunter2:@h.org/x",
        "https://a@b:hunter2@h.org/x",
    ],
)
def test_secrets_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadUrl) as error:
        canonical(url)
    assert "hunter2" not in error.value.message + error.value.hint
    assert "credentials" in error.value.hint or "plain name" in error.value.message


def test_a_missing_scheme_is_guessed_in_the_hint() -> None:
    with pytest.raises(BadUrl) as error:
        canonical("github.com/org/repo")
    assert "https://github.com/org/repo" in error.value.hint


_LETTERS = string.ascii_letters + string.digits + "-._~%/:@[]?#!$&'()*+,;= ü\n\0"


@given(st.text(_LETTERS, max_size=60).map(lambda text: "https://h.org/" + text) | st.text(max_size=80))
def test_whatever_is_typed_is_refused_or_has_a_stable_identity(url: str) -> None:
    try:
        identity = canonical(url)
    except BadUrl:
        return
    assert canonical(identity) == identity == canonical(clean(url))
    assert not identity.startswith("-") and not clean(url).startswith("-")
    assert "\n" not in clean(url) and "\0" not in clean(url)
    assert name(identity) == name(url)


def test_folders_are_for_admins_on_loopback() -> None:
    here, away = GitAddresses(Settings()), GitAddresses(Settings(listen="0.0.0.0:7337"))
    here.check("/srv/x", local=True)
    for addresses, local in ((here, False), (away, True), (away, False)):
        with pytest.raises(NotAllowed):
            addresses.check("/srv/x", local=local)
        with pytest.raises(NotAllowed):
            addresses.check("file:///srv/x", local=local)
    GitAddresses(Settings(listen="0.0.0.0:7337", allow_local=True)).check("/srv/x", local=True)


def test_schemes_can_be_closed() -> None:
    with pytest.raises(NotAllowed) as error:
        GitAddresses(Settings(allow_schemes=("https",))).check("http://h.org/x", local=True)
    assert "allow_schemes" in error.value.hint


def test_all_spellings_of_one_repository_are_one() -> None:
    spellings = [
        f"{scheme}://{host}{port}/{slash}{path}{end}"
        for scheme in ("https", "HTTPS")
        for host in ("github.com", "GitHub.COM", "github.com.", "ｇithub.com")
        for port in ("", ":443", ":")
        for slash in ("", "/", "//")
        for path in ("Org/Repo", "org/repo", "org//repo", "o%72g/r%65po")
        for end in ("", "/", "//", ".git", ".git/", ".git//")
    ]
    assert {canonical(url) for url in spellings} == {"https://github.com/org/repo"}
    assert len(set(spellings)) == len(spellings) == 1_728


def test_names_in_other_letters_are_told_apart() -> None:
    latin, cyrillic = canonical("https://example.org/x"), canonical("https://ехample.org/x")
    assert latin != cyrillic and cyrillic.startswith("https://xn--")
    assert name("https://ехample.org/x").startswith("xn--"), "people see that it is another"
    assert canonical("https://ａ․org/x") == "https://a.org/x", "letters that look the same are made the same"
    for url in ("https://xn--/x", "https://" + "ü" * 70 + ".org/x", "https://a\u200bb.org:9x/x"):
        with pytest.raises(BadUrl):
            canonical(url)


@pytest.mark.parametrize("letter", ["a", "ü", "%41", "/", ".", "@", ":", "[", "a@b:"])
def test_urls_without_end_are_refused_quickly(letter: str) -> None:
    for start in ("https://h.org/", "ssh://", "", "git@h.org:", "file:///"):
        with pytest.raises(BadUrl) as error:
            canonical(start + letter * 10_000)
        assert len(error.value.message) < 300
