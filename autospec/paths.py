"""Where autospec keeps things: the XDG folders of the user, or those systemd names.

systemd sets STATE_DIRECTORY, CACHE_DIRECTORY, RUNTIME_DIRECTORY, CONFIGURATION_DIRECTORY and
CREDENTIALS_DIRECTORY for a unit (systemd.exec(5)); they win over the user's folders.
"""

from __future__ import annotations

import os
from pathlib import Path


def _folder(systemd_name: str, xdg_name: str, fallback: Path) -> Path:
    if named := os.environ.get(systemd_name):
        return Path(named.split(":", 1)[0])
    if named := os.environ.get(xdg_name):
        return Path(named) / "autospec"
    return fallback


def state() -> Path:
    return _folder("STATE_DIRECTORY", "XDG_STATE_HOME", Path.home() / ".local/state/autospec")


def cache() -> Path:
    return _folder("CACHE_DIRECTORY", "XDG_CACHE_HOME", Path.home() / ".cache/autospec")


def runtime() -> Path:
    """Sockets live here; without XDG_RUNTIME_DIR the state folder serves (both are private)."""
    return _folder("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR", state() / "run")


def user_config() -> Path:
    """The folder of this user's configurations, of all programs."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def config_files() -> list[Path]:
    """Where `autospec.toml` is looked for, in order: where systemd says, the user's folder, the
    system's."""
    named = os.environ.get("CONFIGURATION_DIRECTORY", "").split(":", 1)[0]
    folders = [user_config() / "autospec", Path("/etc/autospec")]
    return [folder / "autospec.toml" for folder in ([Path(named)] if named else folders)]


def credential(name: str) -> Path:
    """Where systemd puts a secret that the unit loads (LoadCredential=); outside of the service
    the place where root sees those of the running one."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY") or "/run/credentials/autospec.service"
    return Path(folder) / name


def private(folder: Path) -> Path:
    """Make `folder` if needed, readable by its owner alone (0700), and return it.

    A folder of ours that it lies in becomes private too.
    """
    for ours in (state(), cache(), runtime()):
        if folder.is_relative_to(ours) and folder != ours:
            private(ours)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid == os.getuid() and folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder
