"""Processor seconds of tests, by file: ``python -m pytest -p tests.times``. Unlike a clock's they say little
of what else the machine does. ``--times=FILE`` writes those of each test."""

from __future__ import annotations

import json
import os
import resource
from collections import defaultdict
from pathlib import Path

import pytest

_at: list[float] = []  # processor seconds at the last report, of this process
_spent: dict[str, float] = defaultdict(float)  # by test


def spent() -> float:
    """Seconds of processors that this process and its ended children have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", help="write the processor seconds of each test there")


def pytest_runtest_logstart() -> None:
    _at[:] = [spent()]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> object:
    report = yield
    now = spent()
    report.user_properties.append(("processor", now - _at[0]))  # travels to the process that tells of it
    _at[:] = [now]
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _spent[report.nodeid] += sum(value for name, value in report.user_properties if name == "processor")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    of_files: dict[str, list[float]] = defaultdict(list)
    for test, seconds in _spent.items():
        of_files[test.partition("::")[0]].append(seconds)
    terminalreporter.section("processor seconds")
    for file, seconds in sorted(of_files.items(), key=lambda one: -sum(one[1])):
        terminalreporter.line(f"{sum(seconds):8.1f} {len(seconds):5d} {file}")
    terminalreporter.line(f"{sum(_spent.values()):8.1f} {len(_spent):5d} in all")
    terminalreporter.line(f"{spent():8.1f}       with what starts them")
    if config.getoption("--times") and "PYTEST_XDIST_WORKER" not in os.environ:
        Path(config.getoption("--times")).write_text(json.dumps(_spent, indent=1))
