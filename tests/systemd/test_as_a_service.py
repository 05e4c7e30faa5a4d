"""autospec as a service of a real systemd, from the wheel to the last trace.

The tests are one life of one machine, in this order: installed, ready, serving, re-tuned, reloaded,
frozen and recovered, drained, booted anew, removed.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from machine import AUTOSPEC, Machine

pytestmark = [pytest.mark.systemd, pytest.mark.real]

CONFIG = """\
[server]
api_key_file = "credential:api-keys"

[engine]
path = "/opt/engine"
live_policy = "auto"

[calibration]
budget = "10s"
rehearse = false

[models.small]
path = "/opt/models/SmolLM2-135M-Instruct.Q4_1.gguf"
draft = "/opt/models/draft-one-block-dropped.gguf"
context = 512
type = "draft-simple"
n_max = 3
extra = ["--threads", "1"]
"""

FASTER = """\
[Service]
WatchdogSec=6s
RestartSec=1s
"""

ASK = """\
import json, sys, urllib.request
request = urllib.request.Request(
    "http://127.0.0.1:8080/completion",
    json.dumps({"prompt": "The sun is", "n_predict": int(sys.argv[1]), "temperature": 0,
                "ignore_eos": True}).encode(),
    {"Content-Type": "application/json", "Authorization": "Bearer sesame"},
)
print(urllib.request.urlopen(request, timeout=60).read().decode())
"""


KEEP_ASKING = """\
import subprocess, sys
while True:
    ask = [sys.executable, "/tmp/ask.py", "16"]
    ran = subprocess.run(ask, capture_output=True, text=True)
    if "Connection refused" in ran.stderr or "503" in ran.stderr:
        print("refused")
        break
    print(ran.stderr or ran.stdout.partition('"predicted_n":')[2].partition(",")[0], flush=True)
"""


class Service:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def show(self, name: str) -> str:
        return self.machine.run("systemctl", "show", "-P", name, "autospec")

    @property
    def pid(self) -> int:
        return int(self.show("MainPID"))

    def journal(self, *words: str) -> str:
        return self.machine.run("journalctl", "-u", "autospec", "--no-pager", *words)

    def entries(self) -> list[dict[str, Any]]:
        lines = self.journal("-o", "json").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def until_ready(self) -> None:
        self.machine.until(lambda: self.show("StatusText") == "small ready", self.journal)

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.machine.run(AUTOSPEC, "status", "--json"))
        return document

    def answer(self, tokens: int = 12) -> dict[str, Any]:
        said = self.machine.run("/opt/autospec/bin/python", "-c", ASK, str(tokens))
        body: dict[str, Any] = json.loads(said)
        return body

    def processes(self) -> list[str]:
        """What runs in the service's control group: process ids."""
        group = "/system.slice/autospec.service/cgroup.procs"
        command = f"cat /sys/fs/cgroup/systemd{group} /sys/fs/cgroup{group} 2>/dev/null"
        return self.machine.run("sh", "-c", command, check=False).split()


@pytest.fixture(scope="module")
def service(machine: Machine) -> Service:
    machine.write("/etc/autospec/autospec.toml", CONFIG)
    machine.write("/etc/credstore/api-keys", "sesame\n")
    machine.run("chmod", "-R", "go=", "/etc/credstore")
    machine.write("/etc/systemd/system/autospec.service.d/faster.conf", FASTER)
    service = Service(machine)
    shown = machine.run(AUTOSPEC, "service", "install", check=False)
    assert "write /etc/systemd/system/autospec.service" in shown
    assert service.show("ActiveState") == "active", f"{shown}\n{service.journal()}"
    return service


def test_installed_from_the_wheel_it_is_ready_and_says_what_it_does(service: Service) -> None:
    assert service.show("ActiveState") == "active"
    service.until_ready()
    assert "is as it should be" in service.machine.run(AUTOSPEC, "service", "install")
    assert service.machine.run("systemd-analyze", "verify", "autospec.service") == ""


def test_behind_its_walls_it_compiles_its_library_and_serves_those_who_have_a_key(
    service: Service,
) -> None:
    walls = service.machine.run("cat", f"/proc/{service.pid}/status").splitlines()
    told = dict(line.split(":\t", 1) for line in walls if ":\t" in line)
    assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2")
    assert int(told["CapEff"], 16) == 0
    assert int(told["Uid"].split()[0]) > 0
    assert service.answer()["timings"]["predicted_n"] == 12
    # Each start proves the library by drafts of its own; this request may well do without any.
    (model,) = service.status()["models"]
    assert (model["setting"]["live"], model["not_live"], model["fault"]) == (True, None, None)
    refused = service.machine.run(
        "/opt/autospec/bin/python", "-c", ASK.replace("sesame", "guess"), "1", check=False
    )
    assert "401" in refused


def test_it_is_tuned_again_to_its_traffic_while_the_same_child_serves(service: Service) -> None:
    child = service.status()["models"][0]["pid"]

    def explained() -> dict[str, Any]:
        document = json.loads(service.machine.run(AUTOSPEC, "explain", "--json"))
        model: dict[str, Any] = document["models"][0]
        return model

    def tuned_again() -> bool:
        service.answer(32)
        reasons = [one["reason"] for one in explained()["decisions"]]
        return any("in place of" in one or "does not pay" in one for one in reasons)

    service.machine.until(tuned_again, lambda: f"{explained()}\n{service.journal('-n', '30')}")
    assert service.status()["models"][0]["pid"] == child


def test_the_journal_has_levels(service: Service) -> None:
    ours = [entry for entry in service.entries() if entry.get("_PID") == str(service.pid)]
    assert {entry["PRIORITY"] for entry in ours} >= {"6"}
    assert not any(entry["MESSAGE"].startswith("<") for entry in ours)


def test_a_reload_takes_up_what_is_new_and_refuses_what_is_faulty(service: Service) -> None:
    machine, daemon = service.machine, service.pid
    machine.write("/etc/autospec/autospec.toml", CONFIG.replace("n_max = 3", "n_max = 2"))
    machine.run("systemctl", "reload", "autospec")
    machine.until(lambda: service.status()["models"][0]["setting"]["n_max"] == 2, service.journal)
    service.until_ready()
    assert service.answer()["timings"]["predicted_n"] == 12
    machine.write("/etc/autospec/autospec.toml", CONFIG.replace("context", "contxt"))
    machine.run("systemctl", "reload", "autospec")
    machine.until(lambda: "not reloaded" in service.journal("-o", "cat"), service.journal)
    assert service.answer()["timings"]["predicted_n"] == 12
    assert (service.show("ActiveState"), service.pid) == ("active", daemon)
    machine.write("/etc/autospec/autospec.toml", CONFIG)


def test_frozen_it_is_killed_by_the_watchdog_and_serves_again(service: Service) -> None:
    frozen, before = service.pid, service.processes()
    assert str(frozen) in before
    assert len(before) > 1
    service.machine.run("systemctl", "kill", "--kill-whom=main", "--signal=STOP", "autospec")
    service.machine.until(lambda: service.show("NRestarts") == "1", service.journal)
    service.until_ready()
    assert service.pid != frozen
    assert not set(before) & set(service.processes())
    said = service.journal("-o", "cat")
    assert "Watchdog timeout" in said
    assert "Fatal Python error: Aborted" in said
    assert service.answer()["timings"]["predicted_n"] == 12


def test_a_stop_lets_the_request_under_way_finish_and_leaves_no_process(service: Service) -> None:
    machine = service.machine
    machine.write("/tmp/ask.py", ASK)
    machine.write("/tmp/keep_asking.py", KEEP_ASKING)
    machine.run("sh", "-c", "/opt/autospec/bin/python /tmp/keep_asking.py > /tmp/answers 2>&1 &")

    def busy() -> bool:
        return bool(service.status()["models"][0]["live"]["busy"])

    machine.until(busy, lambda: machine.run("cat", "/tmp/answers"))
    machine.run("systemctl", "stop", "autospec")
    assert (service.show("Result"), service.show("ExecMainStatus")) == ("success", "0")
    machine.until(lambda: "refused" in machine.run("cat", "/tmp/answers"))
    *answers, last = machine.run("cat", "/tmp/answers").split()
    assert set(answers) == {"16"}
    assert last == "refused"
    assert service.processes() == []
    assert "draining" in service.journal("-o", "cat")


def test_it_starts_at_boot(service: Service) -> None:
    began = time.monotonic()
    service.machine.reboot()
    assert time.monotonic() > began
    service.until_ready()
    assert service.answer()["timings"]["predicted_n"] == 12


def test_a_fault_in_the_configuration_ends_the_start_once_and_is_named(service: Service) -> None:
    machine = service.machine
    machine.write("/etc/autospec/autospec.toml", CONFIG.replace("context", "contxt"))
    machine.run("systemctl", "restart", "autospec", check=False)
    assert service.show("ActiveState") == "failed"
    assert service.show("ExecMainStatus") == "2"
    assert service.show("NRestarts") == "0"
    assert "autospec.toml:15: models.small.contxt" in service.journal("-o", "cat")
    machine.write("/etc/autospec/autospec.toml", CONFIG)
    machine.run("systemctl", "start", "autospec")
    service.until_ready()


def test_one_user_has_a_service_of_their_own(service: Service) -> None:
    machine = service.machine
    machine.run("useradd", "--create-home", "alice")
    uid = machine.run("id", "-u", "alice")
    machine.run("loginctl", "enable-linger", "alice")
    machine.until(lambda: machine.run("ls", f"/run/user/{uid}/bus", check=False).endswith("bus"))
    alice = ("setpriv", "--reuid=alice", "--regid=alice", "--init-groups", "env")
    alice += (f"XDG_RUNTIME_DIR=/run/user/{uid}", "HOME=/home/alice")
    config = '[server]\nlisten = "127.0.0.1:8090"\n' + CONFIG.partition("\n\n")[2]
    machine.write(
        "/home/alice/.config/autospec/autospec.toml", config.replace("draft-simple", "off")
    )
    machine.run("chown", "-R", "alice:", "/home/alice")

    def told() -> str:
        return machine.run(*alice, "systemctl", "--user", "show", "-P", "StatusText", "autospec")

    shown = machine.run(*alice, AUTOSPEC, "service", "install", "--user")
    assert "start it now and at boot" in shown
    machine.until(
        lambda: told() == "small ready", lambda: service.machine.run("journalctl", "-n50")
    )
    status = json.loads(machine.run(*alice, AUTOSPEC, "status", "--json"))
    assert status["daemon"]["pid"] != service.pid
    machine.run(*alice, AUTOSPEC, "service", "uninstall", "--user", "--purge")
    assert machine.run("ls", "/home/alice/.config/systemd/user", check=False) == ""
    machine.run("loginctl", "disable-linger", "alice")
    machine.run("rm", "-r", "/home/alice")


def test_removed_it_leaves_nothing_but_the_configuration(service: Service) -> None:
    machine = service.machine
    machine.run("rm", "/etc/systemd/system/autospec.service.d/faster.conf")
    machine.run(AUTOSPEC, "service", "uninstall", "--purge")
    assert service.show("LoadState") == "not-found"
    running = machine.run("sh", "-c", "cat /proc/[0-9]*/comm").splitlines()
    assert [name for name in running if name.startswith(("autospec", "llama"))] == []
    assert "systemd" in running
    left = machine.run(
        "find", "/", "-xdev", "(", "-path", "/proc", "-o", "-path", "/opt", ")", "-prune", "-o",
        "-iname", "*autospec*", "-print",
    )  # fmt: skip
    assert left.splitlines() == ["/etc/autospec", "/etc/autospec/autospec.toml"]
