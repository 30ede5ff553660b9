"""Batches that are not what the daemon wrote, and pointers that are kept for too long."""

from __future__ import annotations

import signal

import pytest
from daemon_process import dying_by_signals
from driver import Refused, values

ALL = list(range(40))


def take(driver, count=0):
    return values(driver.batches(count=count, values=["position"]), "position")


def test_a_flipped_bit_is_found_and_the_batch_comes_whole_the_next_time(fake, start):
    driver = start(fake)
    driver.open("numbers", verify=True)
    fake.faults.flip_a_byte_at.add((1, 4))
    assert take(driver) == ALL
    assert take(driver, 4) == ALL[:16]
    with pytest.raises(Refused, match="epoch 1, step 4 does not fit its checksum") as caught:
        driver.call("next")
    assert caught.value.code == "DATA_LOSS"
    assert "record" not in caught.value.more, "it is not the sample that is bad"
    assert driver.state()["position"] == 16
    assert take(driver) == ALL[16:]


def test_a_flipped_bit_in_a_replayed_batch_is_found_too(fake, start):
    driver = start(fake)
    driver.open("numbers", verify=True)
    assert take(driver, 3) == ALL[:12]
    fake.faults.flip_a_byte_at.add((0, 1))
    with pytest.raises(Refused, match="step 1 does not fit its checksum"):
        driver.call("replay", step=1)
    assert values([driver.call("replay", step=1, values=["position"])["batch"]], "position") == [
        4,
        5,
        6,
        7,
    ]
    assert take(driver) == ALL[12:]


def test_who_does_not_verify_is_not_told(fake, start):
    fake.faults.flip_a_byte_at.add((0, 4))
    driver = start(fake)
    driver.open("numbers")
    assert take(driver) == ALL


def test_a_daemon_that_sends_no_checksum_is_not_believed(fake, start):
    fake.faults.no_crc = True
    driver = start(fake)
    driver.open("numbers", verify=True)
    with pytest.raises(Refused, match="sent no checksum") as caught:
        driver.call("next")
    assert caught.value.code == "INTERNAL"


def test_the_checksums_of_a_real_daemon_fit_whatever_the_last_batches_are(daemon, start):
    for name in ("partial", "pad", "augment"):
        driver = start(daemon)
        driver.open(name, verify=True, batch_size=11)
        assert len(driver.batches()) == {"partial": 4, "pad": 4, "augment": 3}[name]


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_a_pointer_that_is_kept_for_too_long_faults(daemon, start, how):
    environment = {"FEEDWATER_DEBUG_PROTECT": "1"} if how == "environment" else {}
    options = {"debug_protect": True} if how == "argument" else {}
    driver = start(daemon, **environment, **dying_by_signals())
    driver.open("augment", slots=3, **options)
    kept = driver.batches(count=2, hold="kept")
    assert driver.call("held", hold="kept")["batches"] == kept, "what is lent can be read"
    driver.send("stale", hold="kept")
    assert driver.process.wait(30) == -signal.SIGSEGV


def test_protected_slots_carry_the_same_batches(daemon, start):
    driver = start(daemon)
    driver.open("augment", slots=3, debug_protect=True, verify=True)
    driver.open("augment", "plain", debug_protect=False)
    for _ in range(2):
        assert driver.batches() == driver.batches("plain")
    driver.call("replay", step=2)
    driver.batches("plain", count=1, hold="kept")
    assert len(driver.call("stale", "plain", hold="kept")["bytes"]) == 5


@pytest.mark.parametrize("when", ["waiting", "before a seek"])
def test_the_daemons_last_word_is_heard(fake, start, when):
    """Where messages of the client were not read, the kernel reports a reset ahead of it."""
    driver = start(fake)
    driver.open("numbers")
    assert take(driver, 1) == ALL[:4]
    if when == "waiting":
        fake.paused.set()
        with pytest.raises(Refused, match="evicted") as caught:
            number = driver.send("next", count=0)
            for session in list(fake.sessions.values()):
                session.close(8, "evicted: memory is needed")
            driver.answer(number)
    else:
        for session in list(fake.sessions.values()):
            session.close(8, "evicted: memory is needed")
            session.ended.wait(5)
        with pytest.raises(Refused, match="evicted") as caught:
            driver.call("set_epoch", epoch=7)
            driver.call("next", count=0)
    assert caught.value.code == "RESOURCE_EXHAUSTED"


def test_a_forked_child_gives_nothing_back_and_ends_nothing(fake, start):
    """Its copies of batches and stream go with it; what is lent stays lent to the parent."""
    driver = start(fake)
    driver.open("numbers", slots=3)
    sessions = list(fake.sessions)
    kept = driver.batches(count=2, hold="kept", values=["position"])
    for _ in range(3):
        driver.call("forked", hold="kept")
    assert take(driver, 4) == ALL[8:24]
    assert driver.call("held", hold="kept", values=["position"])["batches"] == kept
    driver.call("release", hold="kept")
    assert take(driver) == ALL[24:]
    assert list(fake.sessions) == sessions, "nobody had to connect again"
