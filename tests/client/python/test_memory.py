"""A lent batch: it lives as long as any view of it, it goes back once, and nothing is ever
overwritten under a view.
"""

import gc
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from reading import check, positions

import feedwater
from feedwater import spill
from feedwater.arena import Arena
from feedwater.spill import Spill

ALL = list(range(40))
UNAVAILABLE = 14  # as gRPC numbers it


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.002)


def test_every_kind_of_view_keeps_the_batch_and_the_last_one_gives_it_back(daemon, open_loader):
    loader = open_loader(daemon)
    makers = [
        lambda a: a,
        lambda a: a[1:],
        lambda a: a.reshape(-1)[::3],
        lambda a: a.view(np.uint8),
        lambda a: a.T,
        lambda a: memoryview(a),
        lambda a: np.asarray(memoryview(a)),
        lambda a: np.ndarray(a.shape, a.dtype, buffer=a),
        lambda a: a[np.newaxis],
        lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, axis=0),
        lambda a: iter(a),
        lambda a: a.flat,
    ]
    for make in makers:
        held = make(next(iter(loader))["image"])
        gc.collect()
        assert loader.stats()["held"] == 1
        time.sleep(0.01)
        del held
        wait_until(lambda: loader.stats()["held"] == 0)


def test_one_output_keeps_all_of_its_batch(daemon, open_loader):
    loader = open_loader(daemon)
    label = next(iter(loader))["label"]
    assert loader.stats()["held"] == 1
    del label
    assert loader.stats()["held"] == 0


def test_held_batches_are_never_overwritten(start, open_loader):
    """Keep batches for random times: what is held must show its own bytes to the end."""
    daemon = start(records=400)
    loader = open_loader(daemon, slots=8)
    rng = random.Random(17)
    held = []
    for epoch in range(3):
        for batch in loader:
            check(batch, epoch, 400)
            held.append(batch)
            del batch
            while len(held) > rng.randrange(7):
                check(held.pop(rng.randrange(len(held))), epoch, 400)
        for batch in held:
            check(batch, epoch, 400)
        held.clear()
    assert daemon.counts["released"] >= 290  # the last ones may be on their way


def test_keeping_all_batches_is_stalled_with_the_cure_and_hurts_nothing(
    daemon, open_loader, monkeypatch
):
    monkeypatch.setenv("FEEDWATER_STALL_TIMEOUT", "0.5")
    monkeypatch.setenv("FEEDWATER_SPILL_BYTES", "0")
    loader = open_loader(daemon, slots=3)
    kept = []
    began = time.monotonic()
    with pytest.raises(feedwater.Stalled, match=r"holds 3 batches.*slots=N") as caught:
        for batch in loader:
            kept.append(batch)
            del batch
    assert 0.5 <= time.monotonic() - began < 5
    assert caught.value.code == "DEADLINE_EXCEEDED"
    assert [p for batch in kept for p in positions(batch)] == ALL[:12]
    for batch in kept:
        check(batch, 0)
    assert loader.state_dict()["position"] == 12
    # The cure: copy what is kept. The same iteration cannot go on (a for ends with an error), the
    # position can.
    state = loader.state_dict()
    kept.clear()
    loader.load_state_dict(state)
    copies = [{name: x.copy() for name, x in batch.items()} for batch in loader]
    assert [p for batch in copies for p in positions(batch)] == ALL[12:]


@pytest.mark.parametrize("writable", [False, True])
def test_a_program_that_keeps_all_its_batches_gets_copies(daemon, open_loader, caplog, writable):
    loader = open_loader(daemon, slots=3, writable=writable)
    batches = list(loader)
    for batch in batches:
        check(batch, 0)
        assert batch["image"].flags.writeable == writable
    assert [p for batch in batches for p in positions(batch)] == ALL
    stats = loader.stats()
    assert (stats["held"], stats["spilled"]) == (2, 8)
    told = [record.getMessage() for record in caplog.records if "slots=N" in record.getMessage()]
    assert len(told) == 1
    assert "holds 2 batches" in told[0]
    # The next epoch fills the slots again: what was kept is not of them.
    del batch
    views = batches[:2]
    for batch in loader:
        check(batch, 1)
    for batch in batches:
        check(batch, 0)
    del views, batch, batches
    assert loader.stats()["held"] == 0


def test_copies_end_at_their_limit_and_count_only_while_they_live(daemon, open_loader, monkeypatch):
    monkeypatch.setenv("FEEDWATER_STALL_TIMEOUT", "0.5")
    size = sum(x.nbytes for x in next(iter(open_loader(daemon, slots=3))).values())
    monkeypatch.setenv("FEEDWATER_SPILL_BYTES", str(2 * size))
    loader = open_loader(daemon, slots=3, job="limited")
    iterator = iter(loader)
    kept = [next(iterator) for _ in range(4)]
    assert loader.stats()["spilled"] == 2
    kept.pop()  # a copy's end makes room for another one
    kept.append(next(iterator))
    assert loader.stats()["spilled"] == 3
    kept.append(next(iterator))  # the last slot
    assert loader.stats()["held"] == 3
    with pytest.raises(feedwater.Stalled, match="holds 3 batches"):
        next(iterator)
    for batch in kept:
        check(batch, 0)


def test_cycles_are_collected_ever_more_rarely_where_nothing_may_be_copied(
    daemon, open_loader, monkeypatch
):
    monkeypatch.setenv("FEEDWATER_SPILL_BYTES", "0")
    loader = open_loader(daemon, slots=3)
    collections = []
    monkeypatch.setattr(gc, "collect", lambda: collections.append(1))
    held = []
    for _ in range(10):
        for batch in loader:
            held = [*held[-1:], batch]
    assert len(collections) <= 8
    assert loader.stats()["spilled"] == 0


def test_the_limit_of_copies_is_a_share_of_the_memory(monkeypatch):
    monkeypatch.delenv("FEEDWATER_SPILL_BYTES", raising=False)
    monkeypatch.setattr(spill, "usable_memory", lambda: 1 << 30)
    assert Spill().has_room(128 << 20)
    assert not Spill().has_room((128 << 20) + 1)
    monkeypatch.setattr(spill, "usable_memory", lambda: 1 << 40)
    assert Spill().has_room(2 << 30)
    assert not Spill().has_room((2 << 30) + 1)


def test_a_wait_without_an_end_is_one(daemon, open_loader, monkeypatch):
    monkeypatch.setenv("FEEDWATER_STALL_TIMEOUT", "inf")
    assert [p for batch in open_loader(daemon) for p in positions(batch)] == ALL


def test_a_loop_that_holds_one_batch_gets_no_copies(daemon, open_loader):
    loader = open_loader(daemon, slots=3)
    for batch in loader:
        check(batch, 0)
    assert loader.stats()["spilled"] == 0


def test_kept_small_outputs_keep_no_slot(daemon, open_loader, monkeypatch, small_copies):
    monkeypatch.setenv("FEEDWATER_STALL_TIMEOUT", "0.5")
    loader = open_loader(daemon, slots=2)
    labels = [batch["label"] for batch in loader]
    assert loader.stats()["held"] == 0
    assert len(labels) == 10
    assert not labels[0].flags.writeable
    assert [int(x) for label in labels for x in label] == [
        int(x) for batch in open_loader(daemon, job="again") for x in batch["label"]
    ]


def test_a_waiting_loader_whose_program_holds_less_than_all_is_not_stalled(
    start, open_loader, monkeypatch
):
    monkeypatch.setenv("FEEDWATER_STALL_TIMEOUT", "0.2")
    daemon = start(delay=0.4)
    iterator = iter(open_loader(daemon, slots=2))
    first = next(iterator)
    check(next(iterator), 0)
    check(first, 0)


def test_batches_in_a_reference_cycle_are_found_before_the_loader_stalls(
    daemon, open_loader, monkeypatch
):
    monkeypatch.setenv("FEEDWATER_STALL_TIMEOUT", "5")
    loader = open_loader(daemon, slots=2)
    gc.disable()
    try:
        for batch in loader:
            cycle = [batch]
            cycle.append(cycle)
            del batch, cycle
    finally:
        gc.enable()
    assert loader.stats()["batches"] == 10


def test_batches_may_die_in_other_threads(start, open_loader):
    daemon = start(records=4000)
    loader = open_loader(daemon, slots=16)
    handed = []
    stop = threading.Event()

    def drop():
        while not stop.is_set() or handed:
            try:
                batch = handed.pop()
            except IndexError:
                time.sleep(0)
                continue
            check(batch, 0, 4000)

    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for batch in loader:
        handed.append(batch)
        del batch
    stop.set()
    for thread in threads:
        thread.join()
    wait_until(lambda: loader.stats()["held"] == 0)
    assert loader.stats()["batches"] == 1000


def test_numpy_arrays_are_read_only_unless_asked_for(daemon, open_loader):
    loader = open_loader(daemon)
    batch = next(iter(loader))
    with pytest.raises(ValueError, match="read-only"):
        batch["image"] += 1
    writable = open_loader(daemon, writable=True)
    batch = next(iter(writable))
    batch["image"] *= 2
    assert batch["image"].max() > 2


def test_a_slot_that_was_written_shows_the_next_batch_and_not_the_programs_writes(
    daemon, open_loader
):
    loader = open_loader(daemon, writable=True, slots=2)
    for epoch in range(3):
        for step, batch in enumerate(loader):
            check(batch, epoch)
            if step % 3 != 2:
                batch["image"][:] = -1
                batch["pixels"][1:3] += 1
            del batch
    assert loader.stats()["batches"] == 30


def test_batches_outlive_the_loader_and_the_daemon(daemon, open_loader):
    loader = open_loader(daemon)
    batch = next(iter(loader))
    loader.close()
    daemon.stop()
    del loader
    gc.collect()
    check(batch, 0)


def test_a_loader_that_is_dropped_ends_its_stream(daemon):
    loader = feedwater.Loader("numbers", address=str(daemon.directory), output="numpy")
    iterator = iter(loader)
    next(iterator)
    assert daemon.ranks
    del loader, iterator
    gc.collect()
    wait_until(lambda: not daemon.ranks)


def test_opening_and_closing_leaves_no_descriptor_and_no_mapping(daemon):
    def count():
        with open("/proc/self/maps") as maps:
            mapped = sum("memfd:fake" in line for line in maps)
        return len(os.listdir("/proc/self/fd")), mapped

    def one_round(writable):
        options = {"address": str(daemon.directory), "output": "numpy", "writable": writable}
        with feedwater.Loader("numbers", **options) as loader:
            next(iter(loader))

    one_round(True)
    gc.collect()
    wait_until(lambda: not daemon.sessions)
    before = count()
    for i in range(20):
        one_round(bool(i % 2))
    gc.collect()
    wait_until(lambda: not daemon.sessions)
    wait_until(lambda: count()[0] <= before[0] + 2)  # gRPC keeps some descriptors of its own
    assert count()[1] <= before[1]


def test_the_memory_of_an_ended_session_goes_without_the_collector(daemon, open_loader):
    """A trainer whose daemon was restarted some times holds one arena, not one for each."""

    def arenas():
        return sum(isinstance(thing, Arena) for thing in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = arenas()
        loader = open_loader(daemon)
        next(iter(loader))
        assert arenas() == before + 1
        for _ in range(3):
            iterator = iter(loader)
            next(iterator)
            for session in list(daemon.sessions.values()):
                session.close()
            wait_until(lambda: not daemon.sessions)
            next(iterator)
            assert arenas() == before + 1
    finally:
        gc.enable()


def test_a_control_call_that_failed_keeps_no_batch(daemon, open_loader):
    """A daemon that greets and cannot serve yet answers the first call of a reconnect so."""
    gc.collect()
    gc.disable()
    try:
        loader = open_loader(daemon)
        for outages in range(3):
            iterator = iter(loader)
            next(iterator)
            daemon.faults.refuse_open = (UNAVAILABLE, "not yet")
            for session in list(daemon.sessions.values()):
                session.close()
            threading.Timer(0.3, setattr, (daemon.faults, "refuse_open", None)).start()
            while loader.stats()["reconnects"] == outages:  # to the first batch of the new one
                next(iterator)
            assert loader.stats()["held"] == 0
    finally:
        gc.enable()


def test_a_refused_reconnect_leaves_no_arena_mapped(daemon, open_loader):
    """Neither the old one nor the new one, without the collector, and while the error lives."""
    gc.collect()
    gc.disable()
    try:
        loader = open_loader(daemon)
        iterator = iter(loader)
        next(iterator)
        before = arenas_mapped()

        def other_offset(answer):
            answer.fields[1].offset += 64

        daemon.faults.edit_answer = other_offset
        for session in list(daemon.sessions.values()):
            session.close()
        with pytest.raises(feedwater.FailedPrecondition, match="another offset") as caught:
            for _ in range(10):
                next(iterator)
        assert arenas_mapped() == before - 1, caught
        with pytest.raises(feedwater.FailedPrecondition, match="another offset"):
            next(iterator)  # and it stays so
        assert arenas_mapped() == before - 1
    finally:
        gc.enable()


def arenas_mapped() -> int:
    """Count this process's mappings of clients' arenas; the fake daemon's own are not counted."""
    return sum(isinstance(thing, Arena) for thing in gc.get_objects())


def in_child(action):
    """Run `action` in a forked child and return what it raised."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            action()
            result = "nothing"
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"
        os.write(write, result.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


def test_a_forked_child_is_told_to_open_its_own_and_disturbs_nothing(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    batch = next(iterator)

    def use():
        next(iterator)

    def drop():
        nonlocal batch
        batch = None  # the child's view dies; the parent's must stay lent
        gc.collect()
        loader.close()

    assert "FailedPrecondition: this loader belongs to process" in in_child(use)
    assert in_child(drop) == "nothing"
    time.sleep(0.05)
    assert daemon.counts["released"] == 0
    check(batch, 0)
    assert [p for b in iterator for p in positions(b)] == ALL[4:]


def test_a_forked_child_that_closes_its_copy_keeps_no_connection_and_no_memory(daemon, open_loader):
    gc.collect()
    loader, before = open_loader(daemon), arenas_mapped()
    socket = loader._feed.stream._session._socket

    def close():
        gc.disable()
        loader.close()
        assert socket.fileno() == -1 and arenas_mapped() == before - 1

    assert in_child(close) == "nothing"


def _child(address, queue):
    with feedwater.Loader("numbers", address=address, output="numpy", as_dict=True) as loader:
        queue.put([p for batch in loader for p in positions(batch)])


def test_a_spawned_process_opens_its_own(daemon, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, __import__("sys").path)))
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_child, args=(str(daemon.directory), queue))
    process.start()
    assert queue.get(timeout=60) == ALL
    process.join()


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("ending", ["raise ValueError('mine')", "sys.exit(0)", "pass"])
def test_a_program_that_ends_with_batches_says_nothing_but_its_own_error(daemon, ending, writable):
    program = (
        "import sys, feedwater\n"
        f"loader = feedwater.Loader('numbers', address={str(daemon.directory)!r}, output='numpy', "
        f"writable={writable})\n"
        "batches = iter(loader)\n"
        "first, second = next(batches), [next(batches)]\n"
        f"{ending}\n"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=60,
    )
    lines = done.stderr.splitlines()
    if "raise" in ending:
        assert lines[0].startswith("Traceback") and lines[-1] == "ValueError: mine", done.stderr
        assert len(lines) <= 4, done.stderr
    else:
        assert done.stderr == ""
    assert done.returncode == ("raise" in ending)
