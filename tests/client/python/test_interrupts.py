"""A KeyboardInterrupt may come between any two instructions: nothing is lost, wrong or stuck."""

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time

import pytest
from reading import check, epoch_positions, positions

import feedwater
from feedwater import wire

ALL = list(range(40))


@contextlib.contextmanager
def interrupted(owner, name, *, after=False):
    """Let the next call of a method be interrupted, before it does its work or after."""
    method = getattr(owner, name)

    def interrupt(*arguments, **named):
        setattr(owner, name, method)
        if after:
            method(*arguments, **named)
        raise KeyboardInterrupt

    setattr(owner, name, interrupt)
    with pytest.raises(KeyboardInterrupt):
        yield
    setattr(owner, name, method)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("way", ["load", "set_epoch", "iter", "next"])
def test_a_seek_that_was_interrupted_is_done_again(daemon, open_loader, way, after):
    loader = open_loader(daemon)
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    state = loader.state_dict()
    for _ in range(4):
        next(iterator)
    epoch, expected = 0, ALL[8:]
    with interrupted(loader._feed.stream._session, "seek", after=after):
        if way == "load":
            loader.load_state_dict(state)
        elif way == "set_epoch":
            loader.set_epoch(3)
        elif way == "iter":
            iter(loader)
        else:
            loader._feed.stream.forget_place()
            next(iterator)
    if way == "next":
        expected = ALL[24:]
        got = [p for batch in iterator for p in positions(batch)]
    else:
        epoch, expected = {"load": (0, ALL[8:]), "set_epoch": (3, ALL), "iter": (1, ALL)}[way]
        got = []
        for batch in loader:
            check(batch, epoch)
            got += positions(batch)
    assert got == expected
    assert loader.state_dict()["epoch"] == epoch + 1


def test_the_last_batch_of_an_epoch_comes_again(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    seen = [p for _ in range(9) for p in positions(next(iterator))]
    with interrupted(loader._feed.statistics, "delivered"):
        next(iterator)
    assert loader.state_dict()["position"] == 36
    assert seen + [p for batch in iterator for p in positions(batch)] == ALL


@pytest.mark.parametrize("way", ["next", "iter"])
def test_an_iteration_that_is_over_does_not_run_into_the_next_epoch(daemon, open_loader, way):
    loader = open_loader(daemon)
    iterator = iter(loader)
    seen = [p for _ in range(10) for p in positions(next(iterator))]
    with interrupted(loader._feed.position, "begin_epoch", after=True):
        next(iterator) if way == "next" else iter(loader)
    with pytest.raises(feedwater.FailedPrecondition, match="this iteration is over"):
        next(iterator)
    assert seen == ALL
    assert [p for batch in loader for p in positions(batch)] == ALL
    assert loader.state_dict()["epoch"] == 2


def test_a_close_that_was_interrupted_leaves_the_rank_to_others(daemon, open_loader):
    loader = open_loader(daemon, job="j")
    with interrupted(loader._feed.stream._session, "_close_stream"):
        loader.close()
    assert not loader.is_open
    assert positions(next(iter(open_loader(daemon, job="j", reconnect_timeout=10)))) == ALL[:4]


def test_a_forked_child_is_refused_whatever_the_parents_threads_were_doing(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    daemon.paused.set()
    waiting = threading.Thread(target=lambda: list(loader))
    waiting.start()
    while not loader._lock.locked():
        pass
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        uses = (
            lambda: iter(loader),
            lambda: next(iterator),
            lambda: loader.set_epoch(1),
            lambda: loader.load_state_dict(loader.state_dict()),
            lambda: loader.skip(0, 1),
            lambda: loader.replay(0),
        )
        refused = 0
        for use in uses:
            with contextlib.suppress(feedwater.FailedPrecondition):
                use()
                continue
            refused += 1
        os._exit(refused)
    daemon.paused.clear()
    waiting.join(60)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6


def test_what_ended_an_iteration_keeps_none_of_its_batches(daemon, open_loader):
    daemon.faults.fail_at[0, 2] = wire.Failed(0, 15, 0, 2, 0, 17, "a", "b")
    loader = open_loader(daemon)

    def run():
        kept = []
        try:
            for batch in loader:
                kept.append(batch)
        except feedwater.BadSample:
            pass

    gc.disable()
    try:
        run()
        assert loader.stats()["held"] == 0
    finally:
        gc.enable()


def test_an_interrupt_ends_the_wait_at_once_and_loses_nothing(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    seen = positions(next(iterator))
    daemon.paused.set()
    for _ in range(4):  # what was on its way
        if loader._feed.stream._session._poll.poll(50):
            seen += positions(next(iterator))
    began = time.monotonic()
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert time.monotonic() - began < 2
    daemon.paused.clear()
    seen += [p for batch in iterator for p in positions(batch)]
    assert seen == ALL


def test_interrupts_at_any_moment_lose_and_repeat_nothing(start, open_loader, monkeypatch):
    """An alarm goes off at random moments; whatever next() returned must be the epoch, each batch
    once.
    """
    # pytest would keep an alarm that went off in a finaliser, and with its frames their batches.
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)

    class Alarm(Exception):
        pass

    def ring(*unused):
        raise Alarm

    def disarm():
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Alarm:  # it went off at the last moment, and does so once
            signal.setitimer(signal.ITIMER_REAL, 0)

    daemon = start(records=1600)
    loader = open_loader(daemon)
    rng = random.Random(5)
    previous = signal.signal(signal.SIGALRM, ring)
    alarms, seen = 0, []
    try:
        iterator = iter(loader)
        while True:
            position = loader.state_dict()["position"]
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(2e-5, 2e-3))
                batch = next(iterator)
                signal.setitimer(signal.ITIMER_REAL, 0)
                seen += positions(batch)
            except StopIteration:
                break
            except feedwater.FailedPrecondition:  # the alarm hit when the epoch was over
                assert loader.state_dict()["epoch"] == 1
                break
            except Alarm:
                alarms += 1
                if (
                    loader.state_dict()["position"] != position
                ):  # it hit between the return and the assignment
                    seen += range(position, loader.state_dict()["position"])
            finally:
                disarm()
            batch = None
    finally:
        disarm()
        signal.signal(signal.SIGALRM, previous)
    assert seen == list(range(1600))
    assert alarms > 0


def test_another_epoch_after_all_this_is_whole(daemon, open_loader):
    loader = open_loader(daemon)
    assert epoch_positions(loader, 0) == ALL
