"""A small Debian that really boots: systemd as its process 1, in a folder of ours.

    python tests/systemd/machine.py     makes the kept image (a few minutes, once)

The image lies in the user's cache and is never written to: each boot writes into a layer of its
own, which is gone afterwards, as are its processes, its mounts and its network (which has only
loopback). The programs under test are lent to it, read-only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import psutil

from autospec import paths

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd",
    "gcc", "libc6-dev", "libgomp1", "libstdc++6", "libssl3",
    "libexpat1", "libffi8", "zlib1g", "libsqlite3-0", "libbz2-1.0", "liblzma5",
)  # fmt: skip
"""systemd; what the engine needs; what Python needs. The live library is compiled there."""

RELEASE = "bookworm"
_KEY = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:8]
IMAGE = paths.cache() / f"test-machine/{RELEASE}-{_KEY}"
"""Resolved at import, before tests are given caches of their own."""

TOOLS = ("debootstrap", "systemd-nspawn", "unshare", "nsenter", "mount")
PATIENCE = 120.0
"""Seconds. With version 1 of control groups systemd is not always told that a group has become
empty, and then waits for TimeoutStopSec, twice at worst."""

AUTOSPEC = "/opt/autospec/bin/autospec"
PYTHON = Path(sys.base_prefix)
DEPENDENCIES = Path(sysconfig.get_path("purelib"))
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_BOOT = """\
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root" || exit 1
chmod 711 "$2/root/root"
mkdir -p /run/systemd/nspawn && mount -t tmpfs tmpfs /run/systemd/nspawn || exit 1
folder=$2
shift 2
exec systemd-nspawn --directory "$folder/root" --boot --register=no --keep-unit \\
  --private-network --console=pipe --quiet "$@"
"""


def cannot_boot() -> str | None:
    """What this system lacks to boot a machine, None if nothing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "booting a machine in a folder takes root on Linux"
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"{', '.join(lacking)} missing: apt-get install systemd-container debootstrap"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "this kernel has no overlay file system"
    return None


def why_not() -> str | None:
    """Why no machine is booted in this run, None if one can be."""
    if (reason := cannot_boot()) is None and not IMAGE.exists():
        return "the test machine is not made yet: `make systemd-test` makes it"
    return reason


def make_image() -> None:
    if IMAGE.exists():
        return
    IMAGE.parent.mkdir(parents=True, exist_ok=True)
    incoming = Path(tempfile.mkdtemp(prefix="incoming-", dir=IMAGE.parent))
    try:
        packages = f"--include={','.join(PACKAGES)}"
        subprocess.run(
            ["debootstrap", "--variant=minbase", packages, RELEASE, str(incoming)], check=True
        )
        incoming.chmod(0o755)
        incoming.rename(IMAGE)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


class Machine:
    """A booted machine; `lend` maps files and folders of ours to where it sees them."""

    def __init__(self, lend: Mapping[Path, str]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="autospec-machine-"))
        for name in ("upper", "work", "root"):
            (self._folder / name).mkdir(mode=0o755)
        binds = [f"--bind-ro={ours}:{theirs}" for ours, theirs in {**_python(), **lend}.items()]
        self._arguments = [
            "unshare", "--mount", "--propagation", "private",
            "sh", "-c", _BOOT, "boot", str(IMAGE), str(self._folder), *binds,
        ]  # fmt: skip
        self._init: psutil.Process | None = None
        self._boot()

    def _boot(self) -> None:
        with (self._folder / "console").open("ab") as console:
            self._nspawn = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env={"PATH": _PATH, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": _hierarchy()},
            )
        try:
            self.until(self._has_booted)
        except BaseException:
            self.close()
            raise

    @property
    def console(self) -> str:
        return (self._folder / "console").read_text(errors="replace")

    def _has_booted(self) -> bool:
        assert self._nspawn.poll() is None, self.console
        children = psutil.Process(self._nspawn.pid).children()
        if not children:
            return False
        self._init = children[0]
        state = self.run("systemctl", "is-system-running", check=False)
        return state in ("running", "degraded")

    def run(
        self, *command: str, check: bool = True, within: float = PATIENCE, text: str | None = None
    ) -> str:
        """What `command` prints inside, both streams together; `text` goes to its stdin."""
        assert self._init is not None
        ran = subprocess.run(
            ["nsenter", "--target", str(self._init.pid), "--all", "--", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=within,
            check=False,
            env={"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8"},
            **({"stdin": subprocess.DEVNULL} if text is None else {"input": text}),
        )
        assert not check or ran.returncode == 0, f"{command}: {ran.returncode}\n{ran.stdout}"
        return ran.stdout.strip()

    def write(self, path: str, text: str) -> None:
        self.run("sh", "-c", 'mkdir -p "$(dirname "$0")" && cat > "$0"', path, text=text)

    def until(self, reached: Callable[[], object], told: Callable[[], str] | None = None) -> None:
        deadline = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < deadline, (told or (lambda: self.console))()
            time.sleep(0.2)

    def reboot(self) -> None:
        """Down, and up again; nspawn ends with the machine when it keeps no unit of its own."""
        self.run("systemctl", "reboot", check=False)
        self._nspawn.wait(PATIENCE)
        self._boot()

    def close(self) -> None:
        if self._nspawn.poll() is None:
            self._nspawn.kill()
            self._nspawn.wait()
        if self._init is not None:
            # Process 1 of the machine outlives nspawn; all that is in the machine dies with it.
            with contextlib.suppress(psutil.NoSuchProcess):
                self._init.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _hierarchy() -> str:
    """Whether this system has version 2 of control groups alone, as nspawn wants to be told."""
    return "1" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "0"


def _python() -> dict[Path, str]:
    """This Python, where it thinks that it is, and what is installed for it."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = (
        [PYTHON] if Path("/usr") != PYTHON else [PYTHON / "bin" / version, PYTHON / "lib" / version]
    )
    return {path: str(path) for path in own} | {DEPENDENCIES: "/opt/dependencies"}


if __name__ == "__main__":
    reason = cannot_boot()
    if reason is not None:
        sys.exit(f"error: {reason}")
    make_image()
