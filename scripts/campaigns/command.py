"""The command behind scripts/campaign."""

from __future__ import annotations

import faulthandler
import importlib
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType

import click
import run_state
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from run_state import RunState
from table import CAMPAIGNS

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT = ROOT / ".campaigns"
SEED = 20261121
SAVE_EVERY_SECONDS = 1.0
TELL_EVERY_SECONDS = 60.0
MOST_TRIES = 3
console = Console(stderr=True, highlight=False)


class Stop(BaseException):
    """The run is to end now; the case under way counts for nothing."""


def module_of(name: str) -> ModuleType:
    for folder in (ROOT / "tests" / "model", ROOT / "scripts" / "campaigns"):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return importlib.import_module(CAMPAIGNS[name])


def first_line(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().splitlines()[0]


def figures(state: RunState) -> str:
    """What was reached, in one line."""
    done = ", ".join(f"{count:,} {what}" for what, count in state.counts.items())
    rates = ", ".join(
        f"{count / state.seconds:,.0f} {what}/s" for what, count in list(state.counts.items())[:1]
    ) if state.seconds else ""  # fmt: skip
    return (
        f"{state.name}: {state.cases:,} cases in {state.seconds / 60:.1f} min "
        f"({state.rate:,.2f} cases/s); {done} ({rates}); {state.failed} failures"
    )


def tell_failure(state: RunState, number: int, error: str) -> None:
    console.print(f"[red]case {number} failed[/red]", error.strip()[-1500:], sep="\n", markup=True)
    console.print(f"  replay: {state.replay(number)}", soft_wrap=True, markup=False)


class Run:
    """One sitting of a campaign."""

    def __init__(self, module: ModuleType, state: RunState, folder: Path) -> None:
        self.case: Callable[[int, int], dict[str, int]] = module.case
        self.case_seconds = float(getattr(module, "CASE_SECONDS", 600))
        self.state = state
        self.folder = folder
        self.saved = 0.0
        self.careful = state.tries > 0
        """Save before every case: the last run ended in one, by a hang or a signal."""

    def one(self) -> str:
        """Do the next case; what was wrong, or nothing."""
        state = self.state
        state.begun = state.cases
        now = time.monotonic()
        if self.careful or now - self.saved > SAVE_EVERY_SECONDS:
            run_state.save(self.folder, state)
            self.saved = now
        error = ""
        # A case that hangs is past interrupting: say where it is, and end.
        faulthandler.dump_traceback_later(self.case_seconds, exit=True)
        try:
            state.add(self.case(state.seed, state.cases))
        except (KeyboardInterrupt, Stop):
            state.begun = None
            raise
        except BaseException:  # noqa: BLE001 (a simulated crash that got out is one)
            error = traceback.format_exc()
            state.fail(state.cases, error)
        finally:
            faulthandler.cancel_dump_traceback_later()
        state.seconds += time.monotonic() - now
        state.begun, state.tries = None, 0
        state.cases += 1
        return error

    def until(self, seconds: float | None, most_cases: int | None, *, keep_going: bool) -> None:
        start = told = time.monotonic()
        first = self.state.cases
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            bar = progress.add_task(self.state.name, total=seconds)
            while True:
                now = time.monotonic()
                if seconds is not None and now - start >= seconds:
                    return
                if most_cases is not None and self.state.cases - first >= most_cases:
                    return
                error = self.one()
                progress.update(bar, completed=now - start, description=figures(self.state))
                if not console.is_terminal and now - told > TELL_EVERY_SECONDS:
                    console.print(figures(self.state), soft_wrap=True, markup=False)
                    told = now
                if error:
                    tell_failure(self.state, self.state.cases - 1, error)
                    if not keep_going:
                        return


def listed() -> None:
    table = Table("campaign", "what it shows", "reached", box=None)
    for name in CAMPAIGNS:
        reached = [
            f"seed {state.seed}: {state.cases:,} cases, "
            + ", ".join(f"{count:,} {what}" for what, count in state.counts.items())
            + f", {state.failed} failures"
            for state in run_state.known(KEPT, name)
        ]
        table.add_row(name, first_line(module_of(name)), "\n".join(reached) or "not begun")
    Console().print(table)


def look_back(state: RunState) -> None:
    """A case that was under way when the last run ended gets another chance, or is a failure."""
    if state.begun is None:
        return
    state.tries += 1
    if state.tries < MOST_TRIES:
        console.print(f"the last run ended within case {state.begun}; going on from there")
        return
    error = f"the process ended {state.tries} times in this case"
    state.fail(state.begun, error)
    tell_failure(state, state.begun, error)
    state.cases, state.begun, state.tries = state.begun + 1, None, 0


def stopped(number: int, frame: FrameType | None) -> None:
    raise Stop


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", required=False, type=click.Choice(list(CAMPAIGNS)))
@click.option("--minutes", type=float, help="How long to go on; without it, until Ctrl-C.")
@click.option("--cases", type=click.IntRange(1), help="How many cases to do at most.")
@click.option("--seed", type=int, default=SEED, show_default=True, help="Which run of it.")
@click.option("--case", "number", type=click.IntRange(0), help="Do this case alone.")
@click.option("--fresh", is_flag=True, help="Forget how far it had come.")
@click.option("--keep-going", is_flag=True, help="Do not end with the first failure.")
@click.option("--list", "lists", is_flag=True, help="The campaigns, and how far they have come.")
def command(
    name: str | None,
    minutes: float | None,
    cases: int | None,
    seed: int,
    number: int | None,
    fresh: bool,
    keep_going: bool,
    lists: bool,
) -> None:
    """Run a campaign NAME, from where it stopped."""
    if lists:
        listed()
        return
    if name is None:
        raise click.UsageError("say which campaign, or --list")
    module = module_of(name)
    if number is not None:
        done = module.case(seed, number)
        console.print(f"{name}: case {number} of seed {seed} is well: {done}", markup=False)
        return
    state = RunState(name, seed) if fresh else run_state.load(KEPT, name, seed)
    before = state.failed
    look_back(state)
    run = Run(module, state, KEPT)
    signal.signal(signal.SIGTERM, stopped)
    try:
        seconds = None if minutes is None else minutes * 60
        run.until(seconds, cases, keep_going=keep_going)
    except (KeyboardInterrupt, Stop):
        console.print("stopped; the same command goes on from here")
    finally:
        run_state.save(KEPT, state)
    console.print(figures(state), soft_wrap=True, markup=False)
    for failure in state.failures[before:]:
        console.print(f"  {state.replay(int(str(failure['case'])))}", soft_wrap=True, markup=False)
    sys.exit(1 if state.failed else 0)


if __name__ == "__main__":
    command()
