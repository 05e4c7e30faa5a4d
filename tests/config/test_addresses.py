"""Where models are reached: addresses that are taken, shared, counted on or refused."""

from __future__ import annotations

import pytest
from faulty import PATH, fault

from autospec.config.load import parse


def addresses(text: str) -> list[str]:
    return [str(address) for address in parse(text, path=PATH).addresses().values()]


def models(*lines: str) -> str:
    return "".join(f"[models.m{i}]\nhf = 'a/b'\n{line}\n" for i, line in enumerate(lines))


DOORLESS = "[server]\nfront_door = false\n"


def test_all_models_are_behind_one_address_and_may_have_one_of_their_own() -> None:
    text = models("", "", 'listen = "127.0.0.1:9000"')

    assert addresses(text) == ["127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1:9000"]
    doors = parse(text, path=PATH).doors()
    assert {str(address): model for address, model in doors.items()} == {
        "127.0.0.1:8080": None,
        "127.0.0.1:9000": "m2",
    }
    assert len(addresses(models("", "") + '[server]\nlisten = "unix:/run/a.sock"\n')) == 2


@pytest.mark.parametrize("listen", ["127.0.0.1:8080", "localhost:8080"])
def test_a_model_does_not_take_the_address_of_all(listen: str) -> None:
    found = fault(models(f'listen = "{listen}"'))

    assert (found.line, found.key) == (3, "models.m0.listen")
    assert "taken by server.listen" in found.message


def test_without_front_door_further_models_take_the_next_ports_that_nobody_names() -> None:
    text = models("", "", 'listen = "127.0.0.1:8082"', "enabled = false", "") + DOORLESS

    assert [one.rsplit(":")[1] for one in addresses(text)] == [
        "8080",
        "8081",
        "8082",
        "8083",
        "8084",
    ]


def test_without_front_door_the_first_model_that_has_no_address_takes_that_of_the_server() -> None:
    text = models('listen = "127.0.0.1:1"', "") + DOORLESS

    assert addresses(text) == ["127.0.0.1:1", "127.0.0.1:8080"]


@pytest.mark.parametrize("listen", ["127.0.0.1:8080", "localhost:8080"])
def test_two_models_do_not_share_an_address(listen: str) -> None:
    found = fault(models("", f'listen = "{listen}"') + DOORLESS)

    assert (found.line, found.key) == (6, "models.m1.listen")
    assert "taken by models.m0" in found.message


def test_ports_end_at_65535() -> None:
    found = fault(models("", "") + DOORLESS + 'listen = "127.0.0.1:65535"')

    assert (found.line, "no port is left" in found.message) == (4, True)


def test_without_front_door_a_socket_serves_one_model() -> None:
    server = DOORLESS + 'listen = "unix:/run/a.sock"\n'

    assert addresses(models("") + server) == ["unix:/run/a.sock"]
    assert "address of its own" in fault(models("", "") + server).message
    assert len(addresses(models("", 'listen = "unix:/run/b.sock"') + server)) == 2
