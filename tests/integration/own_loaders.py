"""Loaders of a user's own datasets over one daemon. A test module says its `BATCH_SIZE`."""

from __future__ import annotations

import os

import own_datasets as own
import pytest
from own_processes import processes_of, wait_for

from feedwater import Loader


class Pairs(own.Pictures):
    """Encoded pictures and labels, without names."""

    def __getitem__(self, record: int):
        return tuple(super().__getitem__(record).values())


@pytest.fixture(name="daemon")
def daemon_fixture(make_daemon):
    daemon = make_daemon()
    daemon.start()
    return daemon


@pytest.fixture(name="open_loader")
def open_loader_fixture(daemon, request):
    """Open loaders, closed at the end; then no process is left."""
    loaders = []

    def open_one(dataset, **options) -> Loader:
        options = {
            "batch_size": request.module.BATCH_SIZE,
            "workers": 2,
            "address": daemon.address,
            **options,
        }
        loaders.append(Loader.from_dataset(dataset, output="numpy", **options))
        return loaders[-1]

    yield open_one
    for loader in loaders:
        loader.close()
    wait_for(lambda: processes_of(os.getpid()) in ([], [daemon.process.pid]), "no process is left")
