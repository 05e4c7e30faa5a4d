"""What a child is started with, and what an owner needs to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autospec.daemon.ladder import Step, lowered
from autospec.daemon.setting import Setting, plain
from autospec.engine.find import Engine
from autospec.engine.launch import Endpoint, Launch


@dataclass(frozen=True)
class Charge:
    """What a supervisor is given to look after. Times in seconds.

    `endpoint` is where clients reach the model, and the child's own where no gate stands before
    it. `context` is the server's in tokens with the model's own put in for 0, `draft_bytes` the
    size of the draft's file. `on_gpu`: the engine has a GPU, or may have one. `drain`: how long
    a stop waits for requests. `idle_unload`: unload after so long without a request; None never.
    """

    engine: Engine
    launch: Launch
    endpoint: Endpoint
    env: Mapping[str, str]
    load_seconds: float
    context: int = 0
    draft_bytes: int = 0
    on_gpu: bool = False
    drain: float = 30.0
    idle_unload: float | None = None


@dataclass(frozen=True)
class Terms:
    """`steps` are what is done without since memory ran out (see `ladder`)."""

    charge: Charge
    setting: Setting
    steps: tuple[Step, ...] = ()

    @property
    def launch(self) -> Launch:
        """The charge's launch as far as memory allows it."""
        charge = self.charge
        able = charge.engine.capabilities
        return lowered(charge.launch, able, context=charge.context, taken=self.steps)

    def without(self, *steps: Step) -> Terms:
        """The same with so much less."""
        setting = self.setting
        if Step.NO_SPECULATION in steps:
            setting = plain("memory ran out with a draft beside the model", plan=setting.plan)
        return replace(self, setting=setting, steps=(*self.steps, *steps))

    def allows(self, setting: Setting) -> bool:
        return not (setting.speculation.on and Step.NO_SPECULATION in self.steps)
