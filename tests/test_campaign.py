"""The command of the long runs: it resumes, counts, replays, and ends with 1 after a failure."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "scripts" / "campaigns"
PAGE = (ROOT / "docs" / "reliability.md").read_text()

CAMPAIGN = '''
"""What it shows."""
import json, os, pathlib
DONE = pathlib.Path(os.environ["DONE"])

def case(seed, number):
    with DONE.open("a") as file:
        file.write(json.dumps([seed, number]) + "\\n")
    if number == int(os.environ.get("DIES", "-1")):
        os._exit(9)
    if number == 5:
        raise ValueError("five is wrong")
    return {"units": 10, "others": number}
'''

COMMAND = """
import pathlib, sys
folder, kept = sys.argv[1:3]
sys.path[:0] = [folder, str(kept)]
import table
table.CAMPAIGNS["small"] = "small_campaign"
import command
command.KEPT = pathlib.Path(kept) / "states"
command.command(sys.argv[3:])
"""


class Campaign:
    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "small_campaign.py").write_text(CAMPAIGN)

    def run(
        self, *words: str, name: str = "small", dies: int = -1
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", COMMAND, str(FOLDER), str(self.home), name, *words],
            env={"DONE": str(self.home / "done"), "DIES": str(dies), "COLUMNS": "400",
                 "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def done(self) -> list[list[int]]:
        return [json.loads(line) for line in (self.home / "done").read_text().splitlines()]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return Campaign(tmp_path)


def test_a_run_goes_on_where_the_last_one_stopped(campaign: Campaign) -> None:
    assert campaign.run("--seed", "7", "--cases", "2").returncode == 0
    told = campaign.run("--seed", "7", "--cases", "1")
    assert campaign.done() == [[7, 0], [7, 1], [7, 2]]
    assert "3 cases" in told.stderr
    assert "30 units, 3 others" in told.stderr
    campaign.run("--seed", "8", "--cases", "1")
    assert campaign.done()[-1] == [8, 0]


def test_a_failure_ends_the_run_with_its_replay(campaign: Campaign) -> None:
    told = campaign.run("--seed", "7", "--cases", "50")
    assert told.returncode == 1
    assert "five is wrong" in told.stderr
    assert "scripts/campaign small --seed 7 --case 5" in told.stderr
    assert len(campaign.done()) == 6
    assert campaign.run("--seed", "7", "--cases", "2").returncode == 1  # it is not forgotten
    assert campaign.done()[6:] == [[7, 6], [7, 7]]
    assert campaign.run("--seed", "7", "--cases", "1", "--fresh").returncode == 0


def test_a_case_alone_shows_its_traceback(campaign: Campaign) -> None:
    told = campaign.run("--seed", "7", "--case", "5")
    assert told.returncode == 1
    assert "ValueError: five is wrong" in told.stderr
    assert campaign.run("--seed", "7", "--case", "6").returncode == 0
    assert not (campaign.home / "states").exists()


def test_a_case_that_takes_the_process_down_is_a_failure_after_some_tries(
    campaign: Campaign,
) -> None:
    for _ in range(4):
        assert campaign.run("--cases", "9", dies=2).returncode == 9
    told = campaign.run("--cases", "1", dies=2)
    assert told.returncode == 1
    assert "--case 2" in told.stderr
    assert campaign.done()[-1][1] == 3


def names() -> list[str]:
    spec = importlib.util.spec_from_file_location("campaign_table", FOLDER / "table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for file in module.CAMPAIGNS.values():
        assert (FOLDER / f"{file}.py").exists()
    return list(module.CAMPAIGNS)


def test_every_campaign_is_on_the_page_with_its_figures() -> None:
    for name in names():
        assert f"`{name}`" in PAGE


def test_a_campaign_that_starts_itself_as_a_program_finds_what_it_imports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    import speculation

    told = subprocess.run(
        [sys.executable, speculation.__file__], env=speculation.environment(),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "IndexError" in told.stderr  # it has no arguments, and comes as far as those
