"""What the program sees when the daemon fails, refuses, goes away or speaks nonsense."""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_daemon import FakeDaemon, Packets
from reading import epoch_positions, positions

import feedwater
from feedwater import wire
from feedwater.session import Session

ALL = list(range(40))


# --- bad samples ----------------------------------------------------------------------------------


def test_a_bad_sample_is_an_error_with_record_path_and_reason(daemon, open_loader):
    daemon.faults.fail_at[0, 2] = wire.Failed(
        0, 3, 0, 2, 0, 17, "cats/17.jpg", "truncated at byte 5"
    )
    loader = open_loader(daemon)
    iterator = iter(loader)
    seen = positions(next(iterator)) + positions(next(iterator))
    for _ in range(2):  # it stays so within this iteration
        with pytest.raises(feedwater.BadSample, match=r"record 17 \(cats/17\.jpg\)") as caught:
            next(iterator)
    error = caught.value
    assert (error.record, error.path, error.reason) == (17, "cats/17.jpg", "truncated at byte 5")
    assert error.code == "INVALID_ARGUMENT"
    assert loader.state_dict()["position"] == 8
    assert seen == ALL[:8]


@pytest.mark.parametrize("path", ["cats/17.jpg", "deep/" * 60 + "17.jpg"])
def test_a_bad_sample_says_record_and_path_once(daemon, open_loader, path):
    """The daemon's message names neither; a path that is too long for its field arrives cut."""
    cut = path[:255]
    daemon.faults.fail_at[0, 0] = wire.Failed(
        0, 15, 0, 0, 0, 17, cut, "cut off (at byte 5): no end", wire.BAD_RECORD
    )
    with pytest.raises(feedwater.BadSample) as caught:
        next(iter(open_loader(daemon)))
    text = str(caught.value)
    assert text.startswith(f"record 17 ({cut}) at epoch 0, step 0: cut off (at byte 5): no end.")
    assert text.count("record 17") == 1 and text.count(cut) == 1
    assert (caught.value.path, caught.value.reason) == (cut, "cut off (at byte 5): no end")


@pytest.mark.parametrize("reason", [0, wire.TOO_MANY_BAD, 99])
def test_the_reason_and_not_the_text_decides_on_the_cure(daemon, open_loader, reason):
    daemon.faults.fail_at[0, 0] = wire.Failed(0, 15, 0, 0, 0, 17, "a", "max_bad_fraction", reason)
    with pytest.raises(feedwater.BadSample) as caught:
        next(iter(open_loader(daemon)))
    assert str(caught.value) == "record 17 (a) at epoch 0, step 0: max_bad_fraction"
    bad = wire.Failed(0, 15, 0, 0, 0, 17, "a", "max_bad_fraction", wire.BAD_RECORD)
    daemon.faults.fail_at[0, 0] = bad
    with pytest.raises(feedwater.BadSample, match="'on_bad_sample: substitute'"):
        next(iter(open_loader(daemon)))


def test_after_a_bad_sample_the_program_may_go_on_elsewhere(daemon, open_loader):
    daemon.faults.fail_at[0, 2] = wire.Failed(0, 15, 0, 2, 0, 17, "a", "b")
    loader = open_loader(daemon)
    with pytest.raises(feedwater.BadSample):
        epoch_positions(loader, 0)
    assert epoch_positions(loader, 1) == ALL
    loader.set_epoch(0)
    with pytest.raises(feedwater.BadSample):
        epoch_positions(loader, 0)
    state = loader.state_dict()
    daemon.faults.fail_at.clear()
    loader.load_state_dict(state)
    assert epoch_positions(loader, 0) == ALL[8:]


def test_a_first_batch_that_failed_is_tried_again_where_its_epoch_is_chosen(daemon, open_loader):
    daemon.faults.fail_at[0, 0] = wire.Failed(0, 15, 0, 0, 0, 17, "a", "b")
    loader = open_loader(daemon)
    iterator = iter(loader)
    for _ in range(2):
        with pytest.raises(feedwater.BadSample):
            next(iterator)
    daemon.faults.fail_at.clear()
    loader.set_epoch(0)
    assert positions(next(iterator)) == ALL[:4]


def test_a_bad_first_sample_of_the_next_epoch_does_not_spoil_this_one(daemon, open_loader):
    daemon.faults.fail_at[1, 0] = wire.Failed(0, 15, 1, 0, 0, 3, "a", "b")
    loader = open_loader(daemon)
    assert epoch_positions(loader, 0) == ALL
    state = loader.state_dict()
    with pytest.raises(feedwater.BadSample):
        next(iter(loader))
    at_end = open_loader(daemon)
    at_end.load_state_dict({**state})
    with pytest.raises(feedwater.BadSample):
        next(iter(at_end))


def test_a_failure_that_is_not_about_a_record_has_its_own_class(daemon, open_loader):
    daemon.faults.fail_at[0, 1] = wire.Failed(0, 8, 0, 1, 0, -1, "", "no memory for a batch")
    with pytest.raises(feedwater.ResourceExhausted, match="no memory for a batch"):
        epoch_positions(open_loader(daemon), 0)


# --- the daemon goes away -------------------------------------------------------------------------


def start_process(directory, *options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    script = Path(__file__).with_name("fake_daemon.py")
    process = subprocess.Popen(
        [sys.executable, script, directory, *options], stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.fixture
def kill_at_end():
    processes = []
    yield processes.append
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_daemon_killed_during_a_wait_is_noticed_within_50_ms(folder, kill_at_end):
    """The time from the kill to DaemonLost, with reconnect_timeout=0. The best of some rounds: the
    machine may be busy.
    """
    delays = []
    for number in range(5):
        process = start_process(folder / str(number), "--delay", "30")
        kill_at_end(process)
        loader = feedwater.Loader(
            "numbers", address=str(folder / str(number)), output="numpy", reconnect_timeout=0
        )
        killed = []

        def kill(process=process, killed=killed):
            time.sleep(0.2)
            killed.append(time.monotonic())
            process.send_signal(signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        with pytest.raises(feedwater.DaemonLost) as caught:
            next(iter(loader))
        delays.append(time.monotonic() - killed[0])
        thread.join()
        assert caught.value.state == loader.state_dict()
        loader.close()
    assert min(delays) < 0.05


def test_a_daemon_that_stays_away_is_daemon_lost_with_the_state(start, open_loader):
    daemon = start()
    loader = open_loader(daemon, reconnect_timeout=0.4)
    iterator = iter(loader)
    seen = []
    for _ in range(3):
        seen += positions(next(iterator))
    daemon.stop()
    began = time.monotonic()
    with pytest.raises(feedwater.DaemonLost, match=r"0\.4 s") as caught:
        while True:  # what was sent before it went may still be delivered
            seen += positions(next(iterator))
    assert 0.3 < time.monotonic() - began < 5
    assert isinstance(caught.value, ConnectionError)
    state = caught.value.state
    assert state == loader.state_dict() and state["position"] == len(seen)

    again = FakeDaemon(daemon.directory)
    try:
        other = open_loader(again)
        other.load_state_dict(state)
        assert seen + epoch_positions(other, 0) == ALL
        # The old loader also goes on, since its daemon is there again.
        assert [p for batch in iterator for p in positions(batch)] == ALL[len(seen) :]
    finally:
        again.stop()


def test_a_reconnect_waits_for_its_old_rank_to_be_forgotten(daemon, open_loader):
    loader = open_loader(daemon, job="j")
    iterator = iter(loader)
    seen = positions(next(iterator))
    daemon.faults.refuse_open = (6, "the rank is attached")
    daemon.faults.refuse_opens = 3
    for session in list(daemon.sessions.values()):
        session.close()
    seen += [p for batch in iterator for p in positions(batch)]
    assert seen == ALL
    assert daemon.faults.refuse_opens == 0


def test_a_daemon_that_comes_back_with_other_data_is_refused(daemon, open_loader, monkeypatch):
    loader = open_loader(daemon)
    iterator = iter(loader)
    next(iterator)
    monkeypatch.setattr("fake_daemon.DATASET_DIGEST", "e" * 32)
    for session in list(daemon.sessions.values()):
        session.close()
    with pytest.raises(feedwater.FailedPrecondition, match="another dataset"):
        while True:
            next(iterator)


def test_a_daemon_that_drains_is_a_pause_and_its_other_last_words_are_errors(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    seen = positions(next(iterator))
    for session in list(daemon.sessions.values()):
        session.close(14, "the daemon is stopping")
    seen += [p for batch in iterator for p in positions(batch)]
    assert seen == ALL
    for session in list(daemon.sessions.values()):
        session.close(8, "evicted: memory is needed")
    with pytest.raises(feedwater.ResourceExhausted, match="evicted"):
        epoch_positions(loader, 1)


def test_a_wait_for_the_daemon_is_told_once_and_so_is_its_end(start, open_loader, caplog):
    daemon = start()
    loader = open_loader(daemon)
    iterator = iter(loader)
    seen = positions(next(iterator))
    # An old session that is slow to go, so that the daemon greets and refuses for a while.
    daemon.faults.refuse_open = (6, "the rank is attached")
    daemon.faults.refuse_opens = 1_000_000
    for session in list(daemon.sessions.values()):
        session.close()

    def come_back():
        while not caplog.records:
            time.sleep(0.01)
        daemon.faults.refuse_opens = 0

    thread = threading.Thread(target=come_back)
    with caplog.at_level("WARNING", logger="feedwater"):
        thread.start()
        seen += [p for batch in iterator for p in positions(batch)]
    thread.join()
    assert seen == ALL
    away, back = (record.getMessage() for record in caplog.records)
    assert str(daemon.directory) in away and "up to 60 s (reconnect_timeout)" in away
    assert str(daemon.directory) in back and "serves again after" in back


def test_a_short_pause_is_not_told(daemon, open_loader, caplog):
    loader = open_loader(daemon)
    iterator = iter(loader)
    seen = positions(next(iterator))
    for session in list(daemon.sessions.values()):
        session.close()
    seen += [p for batch in iterator for p in positions(batch)]
    assert seen == ALL and not caplog.records


def test_a_daemon_that_says_to_come_again_is_asked_again(daemon, open_loader):
    """Its welcome could not be sent, or it is stopping: it is there, and its word says so."""
    daemon.faults.closing_instead_of_welcome = (14, "sending to the client: try again")
    threading.Timer(0.2, lambda: setattr(daemon.faults, "closing_instead_of_welcome", None)).start()
    assert epoch_positions(open_loader(daemon), 0) == ALL


# --- the daemon refuses, or speaks nonsense -------------------------------------------------------


def test_another_major_version_is_refused_with_both_versions(daemon, open_loader):
    daemon.faults.version = (2, 3)
    with pytest.raises(feedwater.FailedPrecondition, match=r"2\.3.*1\.2"):
        open_loader(daemon)


def test_a_later_minor_version_is_welcome(daemon, open_loader):
    daemon.faults.version = (1, 9)
    assert epoch_positions(open_loader(daemon), 0) == ALL


def test_the_daemons_refusal_to_greet_is_told(daemon, open_loader):
    daemon.faults.closing_instead_of_welcome = (7, "user 5 may not connect")
    with pytest.raises(feedwater.PermissionDenied, match="user 5 may not connect"):
        open_loader(daemon)


@pytest.mark.parametrize("hung_up", ["before HELLO", "after HELLO"])
def test_the_last_word_of_a_daemon_that_hangs_up_without_reading_is_told(monkeypatch, hung_up):
    """A daemon that has no room for a client says so and closes, and reads no HELLO: then sending
    fails with EPIPE, or reading with ECONNRESET, though the reason lies in the socket.
    """
    ours, daemons = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)

    def hang_up():
        text = b"64 clients are connected: stop one"
        daemons.send(Packets.pack(wire.CLOSING, Packets.closing, 8, 0, text))
        daemons.close()

    send = Session._send

    def send_and_lose_the_daemon(session, packet):
        send(session, packet)
        hang_up()

    if hung_up == "before HELLO":
        hang_up()
    else:
        monkeypatch.setattr(Session, "_send", send_and_lose_the_daemon)
    monkeypatch.setattr("feedwater.session._connect", lambda *_: ours)
    with pytest.raises(feedwater.ResourceExhausted, match="64 clients are connected"):
        feedwater.Loader("numbers", address="/nowhere", output="numpy")


def test_the_last_word_is_told_when_it_comes_before_a_seek(daemon, open_loader):
    """The seek to another epoch fails with EPIPE: that must not look like a daemon that is gone."""
    loader = open_loader(daemon)
    next(iter(loader))
    for session in list(daemon.sessions.values()):
        session.close(8, "evicted: memory is needed")
        session.ended.wait(5)
    with pytest.raises(feedwater.ResourceExhausted, match="evicted"):
        loader.set_epoch(7)
        next(iter(loader))


def test_a_starting_daemon_is_waited_for(daemon, open_loader):
    daemon.faults.refuse_open = (14, "starting")
    daemon.faults.refuse_opens = 3
    assert len(open_loader(daemon)) == 10


def test_a_daemon_that_does_not_serve_is_daemon_lost(daemon, open_loader):
    daemon.faults.refuse_open = (14, "draining")
    with pytest.raises(feedwater.DaemonLost, match="draining") as caught:
        open_loader(daemon, reconnect_timeout=0.2)
    assert caught.value.state is None


def test_an_arena_that_is_not_sealed_or_of_another_size_is_not_mapped(daemon, open_loader):
    daemon.faults.seals = 2 | 4
    with pytest.raises(feedwater.Error, match="not sealed"):
        open_loader(daemon)
    daemon.faults.seals = 1 | 2 | 4 | 16
    daemon.faults.announce_bytes = 4096
    with pytest.raises(feedwater.Error, match="an arena of"):
        open_loader(daemon)
    daemon.faults.announce_bytes = 0
    daemon.faults.arena_instead = struct.pack("<HHI", 3, 8, 0)
    with pytest.raises(feedwater.Error, match="ARENA has 8 bytes"):
        open_loader(daemon)
    daemon.faults.arena_instead = struct.pack("<HHI", 99, 8, 0)
    with pytest.raises(feedwater.Error, match="broke the protocol"):
        open_loader(daemon)
    daemon.stop()  # in this process, with descriptors of its own
    for session in list(daemon.sessions.values()):
        session.ended.wait(5)
    assert not any("memfd:fake" in target for target in open_files())


def open_files():
    targets = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
    return targets


def test_nonsense_from_the_daemon_is_an_error_and_not_a_crash(daemon, open_loader):
    for packet in (b"x", struct.pack("<HHI", wire.READY, 8, 0), os.urandom(80)):
        daemon.paused.clear()
        loader = open_loader(daemon)
        daemon.paused.set()
        time.sleep(0.05)
        session = next(iter(daemon.sessions.values()))
        session.sock.send(packet)
        with pytest.raises(feedwater.Error, match="broke the protocol"):
            for _ in loader:
                pass
        loader.close()


def test_a_slot_that_does_not_exist_is_not_read(daemon, open_loader):
    daemon.paused.set()
    loader = open_loader(daemon)
    session = next(iter(daemon.sessions.values()))
    values = (999, 0, 1, 0, 0, 4, 4, 4, 0, 0, 0, 0, 0)
    session.sock.send(struct.pack("<HHIIIQQqqIIIIIIq", wire.READY, 80, 0, *values))
    with pytest.raises(feedwater.Error, match="slot 999"):
        next(iter(loader))


def test_more_samples_than_fit_are_not_read(daemon, open_loader):
    daemon.paused.set()
    loader = open_loader(daemon)
    session = next(iter(daemon.sessions.values()))
    session.lent[0] = 1
    session.free.remove(0)
    values = (0, 0, 1, 0, 0, 4, 5000, 4, 0, 0, 0, 0, 0)
    session.sock.send(struct.pack("<HHIIIQQqqIIIIIIq", wire.READY, 80, 0, *values))
    with pytest.raises(feedwater.Error, match="5000 samples"):
        next(iter(loader))


def test_unknown_messages_are_passed_over(daemon, open_loader):
    daemon.paused.set()
    loader = open_loader(daemon)
    session = next(iter(daemon.sessions.values()))
    session.sock.send(struct.pack("<HHIQ", 77, 16, 0, 5))
    daemon.paused.clear()
    assert epoch_positions(loader, 0) == ALL


# --- the errors themselves ------------------------------------------------------------------------


def test_the_errors_have_their_codes_and_their_other_bases():
    for cls, code in [
        (feedwater.InvalidArgument, "INVALID_ARGUMENT"),
        (feedwater.NotFound, "NOT_FOUND"),
        (feedwater.PermissionDenied, "PERMISSION_DENIED"),
        (feedwater.AlreadyExists, "ALREADY_EXISTS"),
        (feedwater.FailedPrecondition, "FAILED_PRECONDITION"),
        (feedwater.DaemonLost, "UNAVAILABLE"),
        (feedwater.ResourceExhausted, "RESOURCE_EXHAUSTED"),
        (feedwater.Stalled, "DEADLINE_EXCEEDED"),
        (feedwater.BadSample, "DATA_LOSS"),
    ]:
        error = cls("what, where, cure")
        assert isinstance(error, feedwater.Error) and isinstance(error, RuntimeError)
        assert (error.code, str(error)) == (code, "what, where, cure")
    assert issubclass(feedwater.InvalidArgument, ValueError)
    assert issubclass(feedwater.DaemonLost, ConnectionError)


def test_errors_survive_pickling_with_what_they_carry():
    import pickle

    lost = feedwater.DaemonLost("gone", state={"epoch": 3})
    bad = feedwater.BadSample("bad", code="DATA_LOSS", record=5, path="a.jpg", reason="r")
    for error in (lost, bad, feedwater.Error("x", code="INTERNAL")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), again.__dict__) == (str(error), error.__dict__)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"output": "tensorflow"}, "output is 'tensorflow'"),
        ({"device": "cuda"}, "works with output='torch'"),
        ({"reconnect_timeout": -1}, "reconnect_timeout is -1"),
        ({"reconnect_timeout": "soon"}, "reconnect_timeout is 'soon'"),
        ({"batch_size": "8"}, "batch_size is '8'"),
        ({"batch_size": 0}, "out of range"),
        ({"rank": 2, "world_size": 2}, "out of range"),
        ({"rank": 1}, "world_size is not"),
    ],
)
def test_arguments_that_can_never_work_are_invalid(daemon, open_loader, options, text):
    with pytest.raises(feedwater.InvalidArgument, match=text) as caught:
        open_loader(daemon, **options)
    assert isinstance(caught.value, ValueError)
