"""Errors keep no frame of their callers, and so no batch, dataset or loader, once they are handled.

CPython counts references: an error that a frame of its own traceback holds, or that something
longer-lived keeps, holds that frame and all callers' until a garbage collection, or for ever.
"""

from __future__ import annotations

import functools
import gc
import logging
import socket
import threading
import weakref
from types import SimpleNamespace

import own_datasets as own
import pytest

import feedwater
from feedwater import (
    agreement,
    descriptors,
    errors,
    own_stream,
    pickled,
    private_folder,
    serving_process,
)
from feedwater.device_copies import DeviceCopies
from feedwater.offer import Offer
from feedwater.own_stream import Share, Stream
from feedwater.placement import RankPlacement
from feedwater.provider import Supervisor
from feedwater.provider_process import Lost, Server, Service
from feedwater.sample_values import SampleError
from feedwater.samples import plan_of
from feedwater.served import Served


@pytest.fixture(autouse=True)
def uncollected():
    """Let nothing go by a collection."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Local:
    """What a caller holds."""


def kept_of_caller(call, error=None, match="") -> Local | None:
    """Call, where an error is handled if one is named; return what is left of the caller."""

    def caller():
        local = Local()
        if error is None:
            call()
        else:
            with pytest.raises(error, match=match):
                call()
        return weakref.ref(local)

    return caller()()


def traceback_of(call) -> list[str]:
    """Return the names of the functions through which an error came."""
    try:
        call()
    except errors.Error as error:
        names, at = [], error.__traceback__
        while at is not None:
            names.append(at.tb_frame.f_code.co_name)
            at = at.tb_next
        return names
    raise AssertionError("nothing was raised")


def unstarted() -> Supervisor:
    offer = Offer("mine", "", False, 1, 60.0)
    return Supervisor(offer, SimpleNamespace(fd=-1), "/nowhere", bool)


def test_why_nothing_is_provided_is_told_again_and_again_and_keeps_nobody():
    class Refused(errors.DaemonLost):
        pass

    supervisor = unstarted()
    try:
        raise Refused("it ended", code="ABORTED", state={"epoch": 3})
    except errors.Error as error:
        supervisor._give_up(error)
    served = Served(supervisor, own.Numbers())
    first = traceback_of(served.check)
    assert kept_of_caller(served.check, errors.DaemonLost, "it ended") is None
    assert traceback_of(served.check) == first
    assert not served.is_open
    with pytest.raises(Refused) as caught:
        served.check()
    assert (caught.value.code, caught.value.state) == ("ABORTED", {"epoch": 3})
    bad = errors.BadSample("it is bad", code="NOT_FOUND", record=7, path="a.jpg", reason="torn")
    supervisor._give_up(bad)
    told = supervisor.error
    assert (str(told), told.code, told.record, told.path, told.reason) == (
        "it is bad", "NOT_FOUND", 7, "a.jpg", "torn"
    )  # fmt: skip
    supervisor.close()


def test_a_dataset_that_is_refused_keeps_nobody(daemon):
    def serve():
        feedwater.serve_source("mine", own.Unlisted(), workers=1, address=str(daemon.directory))

    assert kept_of_caller(serve, errors.InvalidArgument, "the disk is gone") is None


class ByValue(pickled._Reducers):
    """Does for lambdas what cloudpickle does, which need not be here."""

    def reducer_override(self, obj):
        if callable(obj) and getattr(obj, "__name__", "") == "<lambda>":
            return functools.partial, (int,)
        return super().reducer_override(obj)


def test_what_is_pickled_by_value_keeps_nobody(monkeypatch):
    monkeypatch.setattr(pickled, "_cloudpickle", lambda: ByValue)

    def pickle():
        descriptors.close(pickled.pickled({"of": [lambda record: record]}, "dataset").fd)

    assert kept_of_caller(pickle) is None


@pytest.mark.parametrize("by_value", [None, ByValue])
def test_what_cannot_be_pickled_keeps_nobody(monkeypatch, by_value):
    monkeypatch.setattr(pickled, "_cloudpickle", lambda: by_value)

    def pickle():
        pickled.pickled({"of": [threading.Lock()]}, "dataset")

    text = r"dataset\['of'\]\[0\] \(_thread.lock\) .*TypeError: cannot pickle"
    assert kept_of_caller(pickle, errors.InvalidArgument, text) is None


@pytest.mark.parametrize("others", ["", "base"])
def test_a_folder_that_may_not_be_used_keeps_nobody(monkeypatch, tmp_path, others):
    """Whether there is another one to fall back to or not."""
    base = tmp_path / "feedwater"
    base.mkdir()
    base.chmod(0o777)
    bases = [str(base), str(tmp_path / others)] if others else [str(base)]
    monkeypatch.setattr(private_folder, "_runtime_bases", lambda: bases)

    def look():
        with private_folder.StartLock() as lock:
            assert lock.private == str(tmp_path / others / "private")

    if others:
        assert kept_of_caller(look) is None
    else:
        assert kept_of_caller(look, errors.PermissionDenied, "chmod 700") is None


def test_a_folder_that_cannot_be_made_keeps_nobody(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(private_folder, "_runtime_bases", lambda: [str(tmp_path / "file" / "x")])
    look = private_folder.StartLock().__enter__
    assert kept_of_caller(look, errors.Error, "x: Not a directory") is None


@pytest.fixture
def no_worker(monkeypatch):
    """Let a stream in the test's own process not make it a worker, also for torch."""
    monkeypatch.setattr(own_stream, "_info", None)
    monkeypatch.setattr(own_stream, "importing", SimpleNamespace(call=lambda *unused: None))


class Torn(own.Stream):
    """Raises for each of its samples."""

    def __iter__(self):
        return map(self.fail, range(self.records))

    def fail(self, number: int):
        raise ValueError(f"sample {number} is torn")


def test_a_sample_that_cannot_be_made_keeps_no_stream(no_worker):
    """A process has a stream for each connection, and maps a window of memory with it."""
    plan = plan_of([(0, next(iter(own.Stream())))], None)

    def streams():
        stream = Stream(Torn, plan, Share(0, 1, 40), False, int, str, lambda: True)

        def make():
            stream.make(3, 1, 2, [])

        for _ in range(2):  # made, and kept
            assert kept_of_caller(make, SampleError, "sample 3 is torn") is None
        return weakref.ref(stream)

    assert streams()() is None


def test_an_epoch_that_has_ended_keeps_no_dataset(no_worker):
    made = []

    def fresh():
        dataset = own.Stream(3)
        made.append(weakref.ref(dataset))
        return dataset

    plan = plan_of([(0, next(iter(own.Stream())))], None)
    stream = Stream(fresh, plan, Share(0, 1, 4), False, int, str, lambda: True)
    stream.make(2, 1, 2, [])
    assert made[0]() is feedwater.get_worker_info().dataset
    with pytest.raises(SampleError, match="ended in worker 0 of 1 after 3 samples"):
        stream.make(3, 1, 2, [])
    assert len(made) == 1 and made[0]() is None
    assert feedwater.get_worker_info().num_workers == 1


def test_a_connection_that_is_lost_leaves_no_stream():
    plan = plan_of([(0, next(iter(own.Stream())))], None)

    def served():
        sock, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        service = Service(plan, 60.0, False, Share(0, 1, 40))
        server = Server(sock, None, own.Stream, service, None)
        other.close()
        with pytest.raises(Lost, match="the daemon closed the connection"):
            server.run()
        return weakref.ref(server)

    assert served()() is None


def test_a_fork_server_that_is_started_again_keeps_nobody(monkeypatch):
    monkeypatch.setattr(serving_process, "_PAUSE_S", 0.001)
    supervisor = unstarted()
    supervisor._serves.set()
    failures = [errors.FailedPrecondition("it did not start"), OSError("no room")]

    def begin() -> bool:
        if failures:
            raise failures.pop()
        return True

    monkeypatch.setattr(supervisor, "_begin", begin)
    monkeypatch.setattr(supervisor, "_check_code", bool)
    assert kept_of_caller(supervisor._renew) is None
    supervisor.close()


# --- what was logged, whose records a handler may keep --------------------------------------------


def fails(*unused):
    raise OSError("it is not supported")


def test_a_warning_of_memory_that_cannot_be_pinned_keeps_nobody(caplog):
    arena = Local()
    arena.address, arena.size = 1 << 20, 1 << 20
    copies = DeviceCopies(SimpleNamespace(pin=fails, unpin=fails))
    assert kept_of_caller(lambda: copies._pin(arena)) is None
    assert "cannot be pinned for the device (it is not supported)" in caplog.text


def test_a_note_of_a_store_that_fails_keeps_nobody(caplog, monkeypatch):
    place = RankPlacement(0, 2, 0, None, None)
    monkeypatch.setattr(agreement, "process_group", lambda: place)
    monkeypatch.setattr(agreement, "_torch_store", lambda: fails)
    facts = SimpleNamespace(pipeline="ours", **dict.fromkeys([*agreement._TERMS], ""))
    facts.pipeline_digest = ""
    made = agreement.Agreement(False, 2)
    with caplog.at_level(logging.DEBUG, "feedwater"):
        assert kept_of_caller(lambda: made.check(place, facts)) is None
    made.withdraw()
    assert "is not compared: it is not supported" in caplog.text


def test_a_warning_of_a_daemon_that_refuses_a_process_keeps_nobody(caplog, monkeypatch):
    supervisor = unstarted()
    supervisor._serves.set()
    monkeypatch.setattr(supervisor, "_ensure", fails)
    process = SimpleNamespace(number=0, attempts=5, pause=int)
    assert kept_of_caller(lambda: supervisor._connect(process)) is None
    assert "is not served at the moment" in caplog.text and "it is not supported" in caplog.text
    supervisor.close()
