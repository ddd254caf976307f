"""Lines of a log: text and JSON, levels, uncaught exceptions, and lines that are seldom written."""

import json
import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest

from livegnn import log_lines
from livegnn.cli.logs import log_first_readiness
from livegnn.log_lines import AS_JSON, LEVEL, Seldom
from livegnn.readiness import Readiness
from logging_state import kept_logging
from waiting import wait_until

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    with kept_logging():
        yield


def own(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_line_has_time_level_logger_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.start()
    logger = logging.getLogger("livegnn.it")
    logger.debug("unseen")
    logger.info("the text of %s\nwith lines\r", 3, extra={"event": 4})
    (line,) = own(capsys)
    assert re.fullmatch(rf"{TIME} INFO livegnn\.it: the text of 3\\nwith lines\\r", line)
    try:
        raise ZeroDivisionError("no")
    except ZeroDivisionError:
        logger.exception("it failed")
    first, *trace = own(capsys)
    assert first.endswith("ERROR livegnn.it: it failed")
    assert (trace[0], trace[-1]) == ("Traceback (most recent call last):", "ZeroDivisionError: no")


def test_a_line_of_json_has_the_fields_of_its_record(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.start(as_json=True)
    logger = logging.getLogger("livegnn.it")
    fields = {"event": 4, "path": os.sep, "reasons": {"a": "b"}, "at": {1}}
    logger.info("text\nof %s", "two lines", extra=fields)
    (line,) = own(capsys)
    content = json.loads(line)
    assert re.fullmatch(TIME, content.pop("time"))
    assert content == {
        "level": "info",
        "logger": "livegnn.it",
        "message": "text\nof two lines",
        "event": 4,
        "path": os.sep,
        "reasons": {"a": "b"},
        "at": "{1}",
    }
    try:
        raise ZeroDivisionError("no")
    except ZeroDivisionError:
        logger.exception("it failed")
    (line,) = own(capsys)
    assert json.loads(line)["message"] == "it failed"
    assert json.loads(line)["traceback"].endswith("ZeroDivisionError: no")


@pytest.mark.parametrize(
    ("level", "ours", "others"),
    [
        ("debug", "DIWE", "DIWE"),
        ("info", "IWE", "WE"),
        ("warning", "WE", "WE"),
        ("error", "E", "E"),
    ],
)
def test_loggers_of_other_packages_keep_to_warnings(
    capsys: pytest.CaptureFixture[str], level: str, ours: str, others: str
) -> None:
    log_lines.start("debug")
    log_lines.start(level)  # replaces the first
    for name, expected in (("livegnn.it", ours), ("another.package", others)):
        for kind in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger(name), kind)("x")
        assert "".join(line.split()[1][0] for line in own(capsys)) == expected


def test_a_warning_of_python_is_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.start(as_json=True)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("it was never awaited", RuntimeWarning, stacklevel=1)
    (line,) = own(capsys)
    assert json.loads(line)["level"] == "warning"
    assert "RuntimeWarning: it was never awaited" in json.loads(line)["message"]


def test_processes_that_are_started_have_the_same_settings(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.start("warning", as_json=True)
    told = {LEVEL: os.environ[LEVEL], AS_JSON: os.environ[AS_JSON]}
    log_lines.start()
    log_lines.start_as_told({})
    log_lines.start_as_told({LEVEL: "nonsense"})
    logging.getLogger("livegnn.it").info("text")
    assert own(capsys)[0].endswith("INFO livegnn.it: text")
    log_lines.start_as_told(told)
    logging.getLogger("livegnn.it").info("unseen")
    logging.getLogger("livegnn.it").warning("seen")
    assert [json.loads(line)["message"] for line in own(capsys)] == ["seen"]


def test_why_a_command_ends_is_a_line_of_json_where_all_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert not log_lines.write_failure("it must be 3")
    log_lines.start()
    assert not log_lines.write_failure("it must be 3")
    assert own(capsys) == []
    log_lines.start("error", as_json=True)
    assert log_lines.write_failure("it must be 3")
    assert json.loads(own(capsys)[0])["message"] == "it must be 3"


UNCAUGHT = """
import sys, threading
import livegnn.log_lines as log_lines
log_lines.start(as_json=sys.argv[1] == "json")
def fail():
    raise ZeroDivisionError("in a thread")
def leave():
    sys.exit(3)
for work in (leave, fail):
    thread = threading.Thread(target=work, name="worker")
    thread.start()
    thread.join()
raise KeyError("secret")
"""


def test_an_uncaught_exception_is_one_record_with_its_traceback() -> None:
    command = [sys.executable, "-c", UNCAUGHT]
    ran = subprocess.run([*command, "json"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    records = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [(one["level"], one["message"]) for one in records] == [
        ("critical", "uncaught ZeroDivisionError in the thread worker: in a thread"),
        ("critical", "uncaught KeyError: 'secret'"),
    ]
    assert [one["traceback"].splitlines()[-1] for one in records] == [
        "ZeroDivisionError: in a thread",
        "KeyError: 'secret'",
    ]
    ran = subprocess.run([*command, "text"], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert len(re.findall(rf"^{TIME} CRITICAL livegnn: uncaught", ran.stderr, re.MULTILINE)) == 2
    assert ran.stderr.count("Traceback") == 2


def test_seldom_says_for_how_many_a_line_stands() -> None:
    now = 100.0
    line = Seldom(2.0, lambda: now)
    assert line.count() == 1
    assert [line.count() for _ in range(5)] == [0] * 5
    now = 101.9
    assert line.count() == 0
    now = 102.0
    assert line.count() == 7
    now = 200.0
    assert line.count() == 1


def test_the_first_readiness_is_logged_once(caplog: pytest.LogCaptureFixture, monkeypatch) -> None:
    monkeypatch.setattr("livegnn.cli.logs._LOOK_SECONDS", 0.001)
    states = [Readiness({"log": "it is read"}), Readiness({"log": "it is read"}), Readiness()]
    logger = logging.getLogger("livegnn.cli")
    with caplog.at_level(logging.INFO, "livegnn.cli"):
        log_first_readiness(logger, lambda: states.pop(0) if len(states) > 1 else states[0])
        wait_until(lambda: len(caplog.records) == 2, "the line of the readiness")
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "not ready yet: log: it is read",
        "ready",
    ]
    assert caplog.records[0].reasons == {"log": "it is read"}
