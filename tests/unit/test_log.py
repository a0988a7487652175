"""Events appear once, in the host's own logging, and nothing global is touched."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from kunhook.log import get_logger

NAME = "kunhook.test"


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    yield
    logging.getLogger(NAME).setLevel(logging.NOTSET)


def test_an_event_is_one_record_of_the_host(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, NAME)
    get_logger(NAME).info("hooks active", device="kunlun", active=3)
    (record,) = caplog.records
    assert (record.name, record.levelname) == (NAME, "INFO")
    assert record.getMessage() == "hooks active device=kunlun active=3"


def test_the_default_name() -> None:
    assert get_logger()._logger.name == "kunhook"


def test_positional_arguments(caplog: pytest.LogCaptureFixture) -> None:
    get_logger(NAME).warning("%d of %s", 2, "3")
    assert caplog.records[0].getMessage() == "2 of 3"


def test_the_level_of_the_host_counts_at_every_event(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger(NAME)
    for level in (logging.ERROR, logging.WARNING, logging.ERROR):
        logging.getLogger(NAME).setLevel(level)
        logger.warning("event")
    assert len(caplog.records) == 1


def test_an_exception_is_in_the_text(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("no table")
    except ValueError:
        get_logger(NAME).exception("failed")
    assert "ValueError: no table" in caplog.records[0].getMessage()


def test_nothing_global_is_touched() -> None:
    def state() -> tuple[object, ...]:
        root = logging.getLogger()
        levels = [handler.level for handler in root.handlers]
        return root.level, list(root.handlers), levels, logging.getLogger("kunhook").handlers, structlog.is_configured()

    before = state()
    get_logger(NAME).warning("event")
    assert state() == before
    assert logging.getLogger(NAME).handlers == []
    assert logging.getLogger(NAME).propagate
