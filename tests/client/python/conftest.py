"""Fixtures of the Python client's unit tests: a fake daemon in the test's own process."""

from __future__ import annotations

import gc
import os

import pytest
from fake_daemon import FakeDaemon
from own_processes import processes_of

import feedwater
from feedwater import outputs
from feedwater.ordinals import Ordinal


@pytest.fixture(autouse=True)
def all_outputs_are_views(monkeypatch):
    """Let the tests' small records be lent like large ones. `small_copies` undoes it."""
    monkeypatch.setattr(outputs, "SMALL_BYTES", 0)


@pytest.fixture
def small_copies(monkeypatch, all_outputs_are_views):
    """Hand out small outputs as copies, as programs get them."""
    monkeypatch.setattr(outputs, "SMALL_BYTES", 16 << 10)


@pytest.fixture
def start(folder):
    """Start fake daemons. At the end no client may have broken the protocol."""
    daemons = []

    def start_one(**options) -> FakeDaemon:
        daemon = FakeDaemon(folder / f"d{len(daemons)}", **options)
        daemons.append(daemon)
        return daemon

    yield start_one
    for daemon in daemons:
        daemon.stop()
        assert daemon.problems == []


@pytest.fixture
def daemon(start) -> FakeDaemon:
    """A fake daemon with 40 records and batches of 4: ten steps an epoch."""
    return start()


@pytest.fixture
def open_loader():
    """Open loaders of `numbers` that are closed at the end."""
    loaders = []

    def open_one(daemon, **options) -> feedwater.Loader:
        options = {"address": str(daemon.directory), "output": "numpy", "as_dict": True, **options}
        loader = feedwater.Loader("numbers", **options)
        loaders.append(loader)
        return loader

    yield open_one
    for loader in loaders:
        loader.close()
    loaders.clear()
    gc.collect()


@pytest.fixture
def another_process(monkeypatch):
    """Count loaders anew, as in a process of its own."""

    def begin() -> None:
        monkeypatch.setattr(Ordinal, "_next", {})
        monkeypatch.setattr(Ordinal, "_free", {})

    return begin


@pytest.fixture
def serve(daemon):
    """Serve datasets and ops at the fake daemon; return the first process's asker. None is left."""
    served = []

    def start(what, name="mine", **options):
        is_op = callable(what) and not isinstance(what, type)
        kind = feedwater.serve_op if is_op else feedwater.serve_source
        options = {"workers": 1, "address": str(daemon.directory), **options}
        before = len(daemon.askers)
        served.append(kind(name, what, **options))
        return daemon.askers[before]

    start.served = served
    yield start
    for one in served:
        one.close()
    assert processes_of(os.getpid()) == []
