"""Who may ask, and which headers pass. Pure but for the reading of the key file."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from multidict import CIMultiDict, MultiMapping

from autospec.config.schema import ServerSection
from autospec.config.values import Address
from autospec.daemon.front.errors import Refused
from autospec.daemon.front.screen import SHELL
from autospec.errors import ServeError

_HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_NOT_SENT = _HOP_BY_HOP | {"content-length", "expect", "authorization", "x-api-key"}
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_FREE = re.compile(
    r"/|/((_app|assets)/([\w-]+/)*)?[\w.-]+\.(html|js|css|svg|png|ico|woff2?|webmanifest)"
)
"""The engine's web page and its files, as builds name them."""

_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

Headers = CIMultiDict[str]


class Keys:
    """The keys of a file, one a line as the engine reads them; kept as digests."""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        keys = (line.strip() for line in lines if not line.startswith("#"))
        self._digests = tuple(_digest(key) for key in keys if key)

    @classmethod
    def read(cls, file: Path | None) -> Keys:
        """ServeError when the file cannot be read or holds no key."""
        if file is None:
            return cls()
        try:
            keys = cls(file.read_text().splitlines())
        except (OSError, UnicodeError) as error:
            raise ServeError(f"cannot read the API key file {file}: {error}") from error
        if not keys:
            raise ServeError(f"{file} holds no key", hint="write one key on a line")
        return keys

    def __bool__(self) -> bool:
        return bool(self._digests)

    def hold(self, shown: str) -> bool:
        """Whether `shown` is a key, in a time that tells nothing about the keys."""
        digest = _digest(shown)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()


@dataclass(frozen=True)
class Guard:
    """The rules of one address."""

    keys: Keys
    hosts: frozenset[str] | None
    origins: frozenset[str]

    @classmethod
    def of(cls, settings: ServerSection, address: Address, keys: Keys) -> Guard:
        hosts = None
        if address.socket is None and "*" not in settings.allowed_hosts:
            names = ("localhost", address.host, *settings.allowed_hosts)
            hosts = frozenset(name.lower().strip("[]") for name in names)
        origins = (origin.lower().rstrip("/") for origin in settings.allowed_origins)
        return cls(keys, hosts, frozenset(origins))

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Raises Refused for a page of the Web that would reach a child through its user's
        browser: under a name of its own (DNS rebinding), or with an origin of its own."""
        host = headers.get("Host", "")
        if self.hosts is not None and not host_allowed(host, self.hosts):
            raise Refused(
                403,
                f"the host {host[:100]!r} is not served; [server] allowed_hosts can name it",
                "permission_error",
                "host_not_allowed",
            )
        origin = headers.get("Origin")
        if origin is not None and not self.origin_allowed(origin, host):
            raise Refused(
                403,
                f"the origin {origin[:100]!r} may not ask; [server] allowed_origins can name it",
                "permission_error",
                "origin_not_allowed",
            )

    def check_key(self, method: str, target: str, headers: Mapping[str, str]) -> None:
        """Raises Refused where a key has to be shown and is not."""
        if not self.keys or _free(method, target):
            return
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        shown = token.strip() if scheme.lower() == "bearer" else headers.get("X-Api-Key", "")
        if not self.keys.hold(shown):
            raise Refused(
                401,
                "Invalid API Key",
                "authentication_error",
                "invalid_api_key",
                {"WWW-Authenticate": "Bearer"},
            )

    def origin_allowed(self, origin: str, host: str) -> bool:
        wanted = origin.lower().rstrip("/")
        if "*" in self.origins or wanted in self.origins:
            return True
        scheme, _, place = wanted.partition("://")
        return scheme in ("http", "https") and place == host.lower()

    def cors(self, headers: Mapping[str, str]) -> dict[str, str]:
        """What of CORS an answer carries: nothing but for origins that the user allows."""
        origin = headers.get("Origin")
        wanted = (origin or "").lower().rstrip("/")
        if origin is None or not (self.origins & {wanted, "*"}):
            return {}
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}

    def preflight(self, headers: Mapping[str, str]) -> dict[str, str] | None:
        """The headers that answer a browser's question before a request; None if it is none."""
        if "Origin" not in headers or "Access-Control-Request-Method" not in headers:
            return None
        allowed = self.cors(headers)
        if allowed:
            allowed["Access-Control-Allow-Methods"] = _METHODS
            asked = headers.get("Access-Control-Request-Headers", "")
            if re.fullmatch(r"[\w, -]{1,1000}", asked):
                allowed["Access-Control-Allow-Headers"] = asked
            allowed["Access-Control-Max-Age"] = "600"
        return allowed


def host_allowed(host: str, hosts: frozenset[str]) -> bool:
    """Whether a Host header is one of `hosts` or a bare IP address, with any port.

    An address cannot be rebound: a page under it came from that address. A request without
    a host (HTTP/1.0) comes from no browser.
    """
    if not host:
        return True
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1].strip("[]").lower()
    if name in hosts or name.removesuffix(".") in hosts:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _free(method: str, target: str) -> bool:
    """Answered without a key: health, and the files of web pages, which ask for one."""
    path = target.partition("?")[0]
    if path.startswith("/upstream/"):
        path = "/" + path.removeprefix("/upstream/").partition("/")[2]
    if path in ("/health", "/v1/health"):
        return True
    return method in ("GET", "HEAD") and (path in SHELL or _FREE.fullmatch(path) is not None)


def check_framing(target: str, headers: MultiMapping[str]) -> None:
    """What the parser lets pass although two servers could read it in two ways."""
    if not target.startswith("/") and target != "*":
        raise Refused(400, "the request's target has to be a path")
    for name in ("Host", "Content-Length", "Transfer-Encoding"):
        if len(headers.getall(name, [])) > 1:
            raise Refused(400, f"more than one {name}")
    if "Content-Length" in headers and "Transfer-Encoding" in headers:
        raise Refused(400, "Content-Length beside Transfer-Encoding")
    if headers.get("Transfer-Encoding", "chunked").lower() != "chunked":
        raise Refused(501, "no Transfer-Encoding but chunked is understood")
    if headers.get("Upgrade", "").lower() == "websocket":
        raise Refused(501, "WebSockets are not served", code="upgrade_refused")


def to_child(headers: Iterable[tuple[str, str]]) -> Headers:
    """The headers of a request that go on: neither those of this connection nor its keys."""
    return _without(headers, _NOT_SENT)


def to_client(headers: Iterable[tuple[str, str]], cors: Mapping[str, str]) -> Headers:
    """The headers of an answer that go on, with our CORS in the place of the child's."""
    passed = _without(headers, _HOP_BY_HOP)
    for name in [name for name in passed if name.lower().startswith("access-control-")]:
        passed.popall(name, None)
    passed.setdefault("Server", "autospec")
    passed.extend(cors)
    return passed


def _without(headers: Iterable[tuple[str, str]], left_out: frozenset[str]) -> Headers:
    pairs = list(headers)
    named = {
        name.strip().lower()
        for key, value in pairs
        if key.lower() == "connection"
        for name in value.split(",")
    }
    # What frames a message or says whose it is cannot be asked to be dropped.
    gone = left_out | (named - {"host", "content-length", "content-type", "content-encoding"})
    return CIMultiDict((key, value) for key, value in pairs if key.lower() not in gone)
