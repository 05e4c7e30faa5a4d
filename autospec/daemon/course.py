"""What is to be run next: what is asked for, what has proved itself, what memory allows. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from autospec.daemon.ladder import Step, next_step
from autospec.daemon.setting import Setting
from autospec.daemon.terms import Terms
from autospec.daemon.treatment import TREATMENTS, Treatment
from autospec.engine.failures import ExitCause
from autospec.engine.launch import Speculation


@dataclass
class Wish:
    """A planned restart. `not_before` (monotonic) and `pause` (s) are for the next try."""

    terms: Terms
    reason: str
    not_before: float = 0.0
    pause: float = 0.0

    def put_off(self, now: float, shortest: float, longest: float) -> None:
        """Try again after a pause that doubles each time."""
        self.pause = min(max(shortest, 2 * self.pause), longest)
        self.not_before = now + self.pause


class Course:
    """`terms` are in force, or are being tried; `wish` is what shall follow them."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.wish: Wish | None = None
        self._proven: Terms | None = None
        self._unfit: set[Speculation] = set()

    def ask(self, terms: Terms, reason: str) -> None:
        self.wish = Wish(terms, reason)

    def forgive(self) -> None:
        """The user has changed something: what did not work before may work now."""
        self._unfit.clear()

    def begin(self) -> Terms:
        """What to start now, where nothing runs."""
        if self.wish is not None:
            self.terms, self.wish = self.wish.terms, None
        return self.terms

    def trying(self, terms: Terms) -> None:
        """A child is being started under `terms`. On an updated engine nothing has proved itself,
        and what did not work on the old one may work."""
        if terms.charge.engine is not self.terms.charge.engine:
            self._proven = None
            self._unfit.clear()
        self.terms = terms

    def proved(self, terms: Terms) -> None:
        """A child under `terms` takes requests."""
        self.terms = self._proven = terms

    def done(self, wish: Wish | None) -> None:
        """`wish` has been carried out, or given up; a later one stays."""
        if self.wish is wish:
            self.wish = None

    def accepts(self, setting: Setting) -> bool:
        """Whether `setting` may be put in force: it has not failed, and memory allows it."""
        return setting.speculation not in self._unfit and self.terms.allows(setting)

    def forsake(self, terms: Terms) -> str:
        """Give up `terms`, which did not come up; returns the sentence that says so."""
        proven = self._proven
        if proven is None or terms.setting != proven.setting:
            self._unfit.add(terms.setting.speculation)
        what = "setting" if proven and proven.charge is terms.charge else "configuration"
        return f"the new {what} did not come up: back to the one before"

    def treat(self, cause: ExitCause) -> tuple[Treatment, Step | None, str | None]:
        """After a death: what follows, the step down that is taken, and the sentence on it.

        What was tried anew gives way to what has worked; only that is run with less memory.
        """
        if self._proven is not None and self._proven is not self.terms:
            said = self.forsake(self.terms)
            self.terms = self._proven
            return Treatment.RETRY, None, said
        treatment = TREATMENTS[cause.kind]
        if treatment is not Treatment.STEP_DOWN:
            return treatment, None, None
        step = self._step_down()
        if step is None:
            return Treatment.FINAL, None, None
        return Treatment.RETRY, step, f"memory ran out; from now on: {step}"

    def _step_down(self) -> Step | None:
        terms, charge = self.terms, self.terms.charge
        step = next_step(
            charge.launch,
            terms.setting,
            charge.engine.capabilities,
            context=charge.context,
            on_gpu=charge.on_gpu,
            taken=terms.steps,
        )
        if step is not None:
            self.terms = terms.without(step)
            self._proven = self.terms if self._proven is not None else None
        return step
