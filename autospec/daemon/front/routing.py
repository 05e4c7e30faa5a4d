"""Which model a request is for. Pure: text in, a decision out.

One model takes everything, whatever name a request gives. Of several, `/upstream/NAME/…` names
one for any path; else the body's `model` (or `?model=`) does; else it is the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qs

UPSTREAM = "/upstream/"
SCREEN = "/autospec"
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class Page(StrEnum):
    HEALTH = "health"
    METRICS = "metrics"
    MODELS = "models"
    INDEX = "index"
    MOVED = "moved"
    SCREEN = "screen"
    CHILD = "child"


_HEALTH = frozenset({"/health", "/v1/health"})
_PAGES = {"/metrics": Page.METRICS, "/models": Page.MODELS, "/v1/models": Page.MODELS}


@dataclass(frozen=True)
class Route:
    """`path` is what a child is sent (of MOVED: where to go instead).

    `model` is None where the front door's own page is about all models, or where the body
    (`by_body`) is to be asked.
    """

    page: Page
    path: str
    model: str | None = None
    by_body: bool = False


class UnknownModel(LookupError):
    """`name` is none of the models."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def route(method: str, target: str, names: Sequence[str], bound: str | None = None) -> Route:
    """Where the request line `method target` leads, at an address that serves `names`.

    `target` is path and query as they were sent. An address that is `bound` to a model is as
    the child's own. Raises UnknownModel.
    """
    path, mark, query = target.partition("?")
    if bound is None and path.startswith(UPSTREAM):
        name, slash, rest = path.removeprefix(UPSTREAM).partition("/")
        if name not in names:
            raise UnknownModel(name)
        if not slash:
            return Route(Page.MOVED, f"{path}/{mark}{query}", name)
        target, path, bound = f"/{rest}{mark}{query}", f"/{rest}", name
    if path in _HEALTH:
        return Route(Page.HEALTH, target, bound)
    if path == SCREEN:
        return Route(Page.MOVED, f"{SCREEN.removeprefix('/')}/{mark}{query}", bound)
    if path.startswith(f"{SCREEN}/"):
        return Route(Page.SCREEN, target, bound)
    if bound is not None:
        return Route(Page.CHILD, target, bound)
    if method in ("GET", "HEAD") and (page := _PAGES.get(path)):
        return Route(page, target)
    if len(names) == 1:
        return Route(Page.CHILD, target, names[0])
    return _among(method, target, query, names)


def _among(method: str, target: str, query: str, names: Sequence[str]) -> Route:
    """The way to one of several models."""
    if method in ("GET", "HEAD") and target.partition("?")[0] == "/":
        return Route(Page.INDEX, target)
    asked = parse_qs(query).get("model")
    if asked:
        return Route(Page.CHILD, target, named(asked[0], names))
    by_body = method in _WITH_BODY
    return Route(Page.CHILD, target, None if by_body else names[0], by_body)


def named(asked: str | None, names: Sequence[str]) -> str:
    """The model that a body asks for: the first one where it names none. Raises UnknownModel."""
    if asked is None:
        return names[0]
    if asked not in names:
        raise UnknownModel(asked)
    return asked
