"""Batches that are kept, programs that stall, daemons and programs that are killed."""

from __future__ import annotations

import time

import pytest
from driver import Refused, digests, values


def test_kept_batches_are_never_overwritten(daemon, start):
    driver = start(daemon)
    driver.open("augment", slots=6)
    expected = digests(driver.batches())
    driver.call("set_epoch", epoch=0)
    kept = digests(driver.batches(count=3, hold="first"))
    assert kept == expected[:3]
    driver.batches()
    driver.batches()
    assert digests(driver.call("held", hold="first")["batches"]) == expected[:3]
    driver.call("close")
    assert digests(driver.call("held", hold="first")["batches"]) == expected[:3]


def test_keeping_all_slots_is_stalled_and_giving_back_is_the_cure(daemon, start):
    driver = start(daemon, FEEDWATER_STALL_TIMEOUT="1")
    driver.open("crop", slots=3)
    kept = driver.batches(count=3, hold="all", values=["position"])
    began = time.monotonic()
    with pytest.raises(Refused, match="slots") as caught:
        driver.call("next")
    assert caught.value.code == "DEADLINE_EXCEEDED"
    assert 0.9 < time.monotonic() - began < 20
    assert digests(driver.call("held", hold="all")["batches"]) == digests(kept)
    assert driver.state()["position"] == 12
    driver.call("release", hold="all")
    rest = driver.batches(values=["position"])
    assert values(kept + rest, "position") == list(range(40))


def test_a_killed_daemon_that_comes_back_is_a_pause(own_daemon, start):
    driver = start(own_daemon)
    driver.open("augment")
    expected = [digests(driver.batches()) for _ in range(2)]
    driver.call("set_epoch", epoch=0)
    got = digests(driver.batches(count=2, hold="kept"))
    for count in (3, 1, 2):
        own_daemon.kill()
        assert digests(driver.call("held", hold="kept")["batches"]) == expected[0][:2]
        own_daemon.start()
        got += digests(driver.batches(count=count))
    got += digests(driver.batches())
    assert got == expected[0]
    assert digests(driver.batches()) == expected[1]


def test_a_wait_that_the_daemons_death_interrupts_goes_on_when_it_is_back(own_daemon, start):
    driver = start(own_daemon)
    driver.open("crop")
    number = driver.send("next", count=0, values=["position"])
    own_daemon.restart()
    assert values(driver.answer(number)["batches"], "position") == list(range(40))


def test_a_daemon_that_stays_away_is_unavailable_with_the_state(own_daemon, start):
    driver = start(own_daemon)
    driver.open("crop", reconnect_timeout=0.5, slots=3)
    seen = values(driver.batches(count=3, values=["position"]), "position")
    own_daemon.kill()
    with pytest.raises(Refused) as caught:
        while True:  # what had been sent before is still delivered
            seen += values(driver.batches(count=1, values=["position"]), "position")
    assert caught.value.code == "UNAVAILABLE"
    state = caught.value.more["state"]
    assert state == driver.state()
    assert state["position"] == len(seen)

    own_daemon.start()
    again = start(own_daemon)
    again.open("crop")
    again.call("load", state=state)
    seen += values(again.batches(values=["position"]), "position")
    assert seen == list(range(40))


def test_a_drained_daemon_that_comes_back_is_a_pause(own_daemon, start):
    driver = start(own_daemon)
    driver.open("crop")
    seen = values(driver.batches(count=3, values=["position"]), "position")
    assert own_daemon.stop() == 0
    own_daemon.start()
    seen += values(driver.batches(values=["position"]), "position")
    assert seen == list(range(40))


def test_a_killed_programs_rank_is_free_at_once(daemon, start):
    for _ in range(5):
        driver = start(daemon)
        driver.open("crop", job="again", rank=0, world_size=1)
        driver.batches(count=2, hold="kept")
        driver.kill()
    driver = start(daemon)
    driver.open("crop", job="again", rank=0, world_size=1)
    assert len(driver.batches()) == 10
