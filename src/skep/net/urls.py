"""Git URLs (pure): what is one, which are the same, and how people call it.

`clean` is what the user typed, made safe to hand to git. `canonical` is the identity: one spelling for all URLs of the
same repository. `name` is what people say and what `/git/<name>.git` serves.
"""

import ipaddress
import os
import posixpath
import re
import socket
from functools import lru_cache
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from skep.base.errors import BadUrl

LONGEST = 2_048
PORTS = {"https": 443, "http": 80, "ssh": 22, "git": 9418}
#: forges whose paths do not tell capitals apart
_CASELESS = {"github.com", "gitlab.com", "gitee.com", "bitbucket.org", "codeberg.org"}

_UNSAFE = re.compile(r"[\x00-\x20\x7f]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HELPER = re.compile(r"[A-Za-z0-9+.-]*::")
_SCP = re.compile(r"(?:(?P<user>[^@/:]*)@)?(?P<host>\[[^\]/]*\]|[^:/@]+):(?P<path>.+)")
_HOST = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9])?")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})|%[01][0-9A-Fa-f]|%7[fF]")
#: characters of a path that need no percent sign, beside letters and digits
_PLAIN = "/-._~!$&'()*+,;=:@"

_HINT = "give https://HOST/PATH, ssh://USER@HOST/PATH, USER@HOST:PATH, git://HOST/PATH or an absolute path"
_SECRETS = "credentials never live in URLs"


class Parts(msgspec.Struct, frozen=True):
    scheme: str
    user: str
    #: lower case, IDNA; IPv6 without brackets; empty for files
    host: str
    #: 0 for files
    port: int
    #: from the first slash, percent-encoded
    path: str
    #: `user@host:path` where the path starts in the user's home folder
    from_home: bool = False

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        port = "" if self.port == PORTS.get(self.scheme, 0) else f":{self.port}"
        return user + host + port

    def __str__(self) -> str:
        if self.from_home and self.port == PORTS["ssh"]:
            # decoded: git does not undo percent signs in this form
            return f"{self.authority}:{unquote_to_bytes(self.path[1:]).decode('utf-8', 'surrogateescape')}"
        return f"{self.scheme}://{self.authority}{self.path}"


@lru_cache(maxsize=256)  # one URL is asked for its canonical form, its name and more in a row
def parse(url: str) -> Parts:
    """BadUrl unless `url` names a repository; the message never repeats a password."""
    if len(url) > LONGEST:
        raise BadUrl(f"a URL of {len(url):,} characters is too long", hint=f"the limit is {LONGEST:,}")
    if not url.strip():
        raise BadUrl("the URL is empty", hint=_HINT)
    if url.startswith("-"):
        raise BadUrl("a URL cannot start with '-': that is an option", hint=_HINT)
    if _HELPER.match(url):
        raise BadUrl(
            f"'{url.partition('::')[0][:20]}::' would start a program; remote helpers are not allowed", hint=_HINT
        )
    if url.startswith("/"):
        return _file(_raw(url))
    if _UNSAFE.search(url):
        raise BadUrl("the URL has spaces or control characters", hint="percent-encode them: a space is %20")
    if scheme := _SCHEME.match(url):
        return _url(scheme[1].lower(), url[scheme.end() :])
    scp = _SCP.fullmatch(url)
    if scp and not url.startswith(".") and scp["host"].lower() not in {*PORTS, "file"}:
        return _scp(scp["user"], scp["host"], scp["path"])
    guess = f"did you mean https://{url} ?" if re.match(r"[\w-]+(\.[\w-]+)+/", url) else _HINT
    raise BadUrl(f"'{url[:80]}' is no URL and no absolute path", hint=guess)


def clean(url: str) -> str:
    """The URL as typed, safe to hand to git after `--`."""
    return str(parse(url))


def canonical(url: str) -> str:
    """One spelling for all URLs of the same repository."""
    return str(_identity(parse(url)))


def name(url: str) -> str:
    """`github.com/org/repo`, `host:8443/repo`, `git@host/repo`, `local/srv/repo`."""
    parts = _identity(parse(url))
    path = _readable(parts.path)
    if parts.scheme == "file":
        return "local" + path
    host = f"[{parts.host}]" if ":" in parts.host else parts.host
    at = f"{parts.user}@" if parts.scheme == "ssh" else ""
    default = PORTS["ssh"] if parts.scheme == "ssh" else PORTS["https"]
    port = "" if parts.port == default else f":{parts.port}"
    return f"{at}{host}{port}{path}"


def host_of(url: str) -> str:
    """The upstream host that limits are kept for: `github.com`, `host:8443`; empty for files."""
    parts = parse(url)
    return msgspec.structs.replace(parts, user="").authority


def _identity(parts: Parts) -> Parts:
    path = re.sub(r"/+", "/", parts.path).rstrip("/")
    if parts.scheme == "file":
        # beside /srv/x there is often a bare /srv/x.git: only the folder inside a work tree means the same
        return msgspec.structs.replace(parts, path=path.removesuffix("/.git") or "/")
    path = path.removesuffix(".git").rstrip("/")
    if parts.host in _CASELESS:
        path = path.lower()
    _need_path(path)
    return msgspec.structs.replace(parts, path=path, from_home=False)


def _url(scheme: str, rest: str) -> Parts:
    if scheme != "file" and scheme not in PORTS:
        raise BadUrl(f"'{scheme[:20]}://' cannot be mirrored", hint="schemes: https, http, ssh, git, file")
    if "?" in rest or "#" in rest:
        raise BadUrl("a repository URL has no '?' or '#' part", hint="leave it away, or encode as %3F or %23")
    authority, slash, path = rest.partition("/")
    path = _encoded(slash + path)
    if scheme == "file":
        if authority.lower() not in {"", "localhost"}:
            raise BadUrl("file:// URLs with a host are not supported", hint="file:///absolute/path")
        return _file(path)
    user, at, place = authority.rpartition("@")
    if at and scheme != "ssh":
        raise BadUrl("the URL carries a user name or a secret", hint=f"leave out what stands before '@'; {_SECRETS}")
    host, port = _split_port(place)
    _no_dots(path)
    _need_path(path)
    return Parts(scheme, _user(user, at), _host(host), port or PORTS[scheme], path)


def _scp(user: str | None, host: str, path: str) -> Parts:
    quoted = _raw("/" + path.lstrip("/"))
    _no_dots(quoted)
    _need_path(quoted)
    from_home = not path.startswith("/")
    return Parts(
        "ssh", _user(user or "", "@" if user is not None else ""), _host(host), PORTS["ssh"], quoted, from_home
    )


def _file(path: str) -> Parts:
    if not path.startswith("/"):
        raise BadUrl("file:// needs an absolute path", hint="file:///absolute/path")
    normal = posixpath.normpath(path)
    return Parts("file", "", "", 0, "/" + normal.lstrip("/"))


def _user(user: str, at: str) -> str:
    if ":" in user:
        raise BadUrl("the URL carries a password", hint=f"{_SECRETS}; use an ssh key")
    if at and not _USER.fullmatch(user):
        raise BadUrl("the user name in the URL is not a plain name", hint=_HINT)
    return user


def _split_port(place: str) -> tuple[str, int | None]:
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        return place, None
    if not port:
        return host, None
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise BadUrl(f"'{port[:20]}' is no port", hint="a number from 1 to 65535")
    return host, int(port)


@lru_cache(maxsize=1024)  # a million URLs have few hosts
def _host(host: str) -> str:
    """Lower case, IDNA, and every spelling of an address as that address: what is compared must be what is asked."""
    if host.startswith("["):
        try:
            address = ipaddress.IPv6Address(host[1:-1] if host.endswith("]") else host)
            if address.scope_id:
                raise ValueError
            return str(address)
        except ValueError:
            raise BadUrl(f"'{host[:60]}' is no IPv6 address") from None
    try:
        plain = host.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError:
        raise BadUrl(f"'{host[:60]}' is no host name") from None
    if not _HOST.fullmatch(plain) or len(plain) > 253 or ".." in plain:
        raise BadUrl(f"'{host[:60]}' is no host name", hint=_HINT)
    if _NUMBER.fullmatch(plain.rpartition(".")[2]):
        try:
            return socket.inet_ntoa(socket.inet_aton(plain))
        except OSError:
            raise BadUrl(f"'{host[:60]}' is no address") from None
    return plain


def _encoded(path: str) -> str:
    """A path from a URL: percent signs only where they must be, so that two spellings become one."""
    if _BAD_PERCENT.search(path):
        raise BadUrl("the path has a bad percent sign or an encoded control character", hint="a percent sign is %25")
    plain = re.sub("%([0-9A-Fa-f]{2})", lambda found: _unreserved(found[0]), path)
    return quote_from_bytes(os.fsencode(plain), safe=_PLAIN + "%")


def _unreserved(code: str) -> str:
    letter = chr(int(code[1:], 16))
    return letter if letter.isascii() and (letter.isalnum() or letter in "-._~") else code.upper()


def _raw(path: str) -> str:
    """A path from a file system, where a percent sign is a percent sign."""
    if _CONTROL.search(path):
        raise BadUrl("the path has control characters")
    return quote_from_bytes(os.fsencode(path), safe=_PLAIN)


def _no_dots(path: str) -> None:
    if any(segment in {".", ".."} for segment in path.split("/")):
        raise BadUrl("the path has '.' or '..' in it", hint="give the path without them")


def _need_path(path: str) -> None:
    if not path.strip("/"):
        raise BadUrl("the URL names a host but no repository", hint=_HINT)


def _readable(path: str) -> str:
    """Decoded where that loses nothing: `%20` is a space to people, `%2F` is no slash."""
    kept = re.sub("%(2F|25)", r"%25\1", path)
    try:
        text = unquote_to_bytes(kept).decode("utf-8")
    except UnicodeDecodeError:
        return path
    return path if _CONTROL.search(text) else text
