"""Where the coordinators are, and how a member knows that it is them."""

import asyncio
import os
import socket
import ssl
from typing import Any
from urllib.parse import quote

import grpc
import msgspec

from skep.config import is_loopback, split_address

_OPTIONS = [
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]
_PROBE_SECONDS = 5.0
_PLAIN = "it speaks plain text where TLS is wanted; is that its link_listen, and has it a certificate?"
#: OpenSSL's numbers for what is wrong with a certificate
_EXPIRED, _NOT_YET, _OTHER_NAME = {10}, {9}, {62, 64}


def uri(target: str) -> str:
    """As gRPC reads it: in a path, `#` and `%` would mean something."""
    scheme, _, path = target.partition(":")
    return f"unix:{quote(path)}" if scheme == "unix" else target


class Dial(msgspec.Struct, frozen=True):
    #: `HOST:PORT` or `unix:PATH`
    targets: tuple[str, ...]
    #: PEM of the CA that signed their certificates; empty: one of the well-known
    ca: str = ""

    def is_secure(self, target: str) -> bool:
        """On this machine plain text will do, unless a CA is named."""
        return not target.startswith("unix:") and (bool(self.ca) or not is_loopback(split_address(target)[0]))

    def channel(self, target: str) -> Any:
        """A connection of its own, never shared with other channels of this process."""
        if not self.is_secure(target):
            return grpc.aio.insecure_channel(uri(target), options=_OPTIONS)
        credentials = grpc.ssl_channel_credentials(self.ca.encode() or None)
        return grpc.aio.secure_channel(target, credentials, options=_OPTIONS)

    async def explain(self, target: str) -> str:
        """What is wrong with the way there, found by a handshake of our own; empty when nothing is.

        gRPC says it in the words of its innermost library, or not at all.
        """
        if target.startswith("unix:"):
            return ""
        secure = self.is_secure(target)
        context = ssl.create_default_context(cadata=self.ca or None)
        context.set_alpn_protocols(["h2"])
        if not secure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        host, port = split_address(target)
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                _, writer = await asyncio.open_connection(host, port, ssl=context)
        except ssl.SSLCertVerificationError as error:
            return f"{_certificate(error)} ({error.verify_message})"
        except ssl.SSLError:
            return _PLAIN if secure else ""
        except TimeoutError:
            return "no answer"
        except socket.gaierror as error:
            return f"its name cannot be looked up: {error.strerror}"
        except OSError as error:
            return os.strerror(error.errno) if error.errno else str(error)
        writer.transport.abort()
        return (
            "" if secure else "it speaks TLS; join with a line of `skep worker token --join`, or name its CA in tls_ca"
        )


def _certificate(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _EXPIRED:
        return "its certificate has expired; `skep ca init` there makes a new one"
    if error.verify_code in _NOT_YET:
        return "its certificate is not valid yet; compare the clocks"
    if error.verify_code in _OTHER_NAME:
        return "its certificate is for other names; `skep ca init HOST` there makes one for this"
    return "its certificate is not of the CA that this member trusts; join again with a new line"
