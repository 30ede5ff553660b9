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
    driver.open(
        "crop", slots=2
    )  # of three or more the Python client copies what is in the last one
    kept = driver.batches(count=2, hold="all", values=["position"])
    began = time.monotonic()
    with pytest.raises(Refused, match="slots") as caught:
        driver.call("next")
    assert caught.value.code == "DEADLINE_EXCEEDED"
    assert 0.9 < time.monotonic() - began < 20
    assert digests(driver.call("held", hold="all")["batches"]) == digests(kept)
    assert driver.state()["position"] == 8
    driver.call("release", hold="all")
    rest = driver.batches(values=["position"])
    assert values(kept + rest, "position") == list(range(40))


def test_one_slot_is_enough_for_a_program_that_gives_each_batch_back(daemon, start):
    driver = start(daemon, FEEDWATER_STALL_TIMEOUT="1")
    driver.open("crop", slots=1)
    taken = [batch for _ in range(10) for batch in driver.batches(count=1, values=["position"])]
    assert values(taken, "position") == list(range(40))
    driver.call("set_epoch", epoch=1)
    driver.batches(count=1, hold="all")
    with pytest.raises(Refused, match="slots"):
        driver.call("next")


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


def test_a_daemon_that_comes_back_refuses_files_that_changed_meanwhile(own_daemon, start):
    driver = start(own_daemon)
    driver.open("crop", slots=1)
    driver.batches(count=1)
    own_daemon.kill()
    time.sleep(0.05)  # file times move in ticks
    picture = sorted((own_daemon.data / "good").rglob("*.png"))[-1]
    picture.write_bytes(picture.read_bytes())  # its contents alone would be the same dataset
    time.sleep(0.05)
    own_daemon.start()
    with pytest.raises(Refused, match=rf"{picture.name}.*has changed since") as caught:
        driver.batches()
    assert caught.value.code == "FAILED_PRECONDITION"


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


# --- a made-up daemon that does what a real one does only at bad moments --------------------------


def take(driver, count=0):
    return values(driver.batches(count=count, values=["position"]), "position")


def hang_up(fake):
    for session in list(fake.sessions.values()):
        session.close()


def test_a_daemon_that_is_starting_is_waited_for(fake, start):
    fake.faults.refuse_open = (14, "starting")
    fake.faults.refuse_opens = 3
    driver = start(fake)
    driver.open("numbers")
    assert take(driver) == list(range(40))
    assert fake.faults.refuse_opens == 0


@pytest.mark.parametrize(
    "refusal",
    [(6, "the rank is attached"), (8, "no memory for another arena"), (14, "draining")],
)
def test_a_reconnect_outlasts_what_passes(fake, start, refusal):
    driver = start(fake)
    driver.open("numbers", job="j")
    seen = take(driver, 1)
    fake.faults.refuse_open = refusal
    fake.faults.refuse_opens = 3
    hang_up(fake)
    seen += take(driver)
    assert seen == list(range(40))
    assert fake.faults.refuse_opens == 0


@pytest.mark.parametrize("refusal", [(7, "access was taken away"), (3, "the graph is wrong now")])
def test_a_reconnect_does_not_outlast_what_stays(fake, start, refusal):
    driver = start(fake)
    driver.open("numbers")
    take(driver, 1)
    fake.faults.refuse_open = refusal
    hang_up(fake)
    began = time.monotonic()
    with pytest.raises(Refused, match=refusal[1]):
        take(driver)
    assert time.monotonic() - began < 30  # half of reconnect_timeout


def test_a_daemon_that_comes_back_with_other_data_is_refused(fake, start, monkeypatch):
    driver = start(fake)
    driver.open("numbers")
    take(driver, 1)
    monkeypatch.setattr("fake_daemon.DATASET_DIGEST", "e" * 32)
    hang_up(fake)
    with pytest.raises(Refused, match="another dataset") as caught:
        take(driver)
    assert caught.value.code == "FAILED_PRECONDITION"


def swap_outputs(answer):
    """The same outputs, of the same types, each in the other's place."""
    label, sample_id = answer.fields[1], answer.fields[2]
    label.offset, sample_id.offset = sample_id.offset, label.offset


def turn_image(answer):
    answer.fields[0].shape[:] = [5, 4, 3]


def change(field, **parts):
    def edit(answer):
        target = answer if field is None else answer.fields[field]
        for name, value in parts.items():
            setattr(target, name, value)

    return edit


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (swap_outputs, "another offset of output 'label'"),
        (turn_image, "another shape of output 'image': [5, 4, 3] instead of [3, 4, 5]"),
        (change(1, dtype=11), "another dtype of output 'label': float64 instead of int64"),
        (change(0, layout="HWC"), "another layout of output 'image'"),
        (change(1, name="target"), "another output 1: 'target' instead of 'label'"),
        (lambda answer: answer.fields.pop(), "another output 6"),
        (lambda answer: answer.fields.add(name="more", dtype=1), "another output 7"),
        (lambda answer: answer.classes.reverse(), "another class 0: 'class9' instead of 'class0'"),
        (lambda answer: answer.classes.append("x"), "another class 10"),
        (change(None, records=41), "another records: 41 instead of 40"),
        (change(None, steps_per_epoch=9), "another steps_per_epoch"),
        (change(None, samples_per_epoch=39), "another samples_per_epoch"),
        (change(None, batch_size=5), "another batch_size: 5 instead of 4"),
        (change(None, world_size=2), "another world_size"),
        (change(None, seed=43), "another seed: 43 instead of 42"),
        (change(None, pipeline_digest="q"), "another pipeline_digest"),
        (change(None, pipeline="letters"), "another pipeline: letters instead of numbers"),
        (change(None, slot_bytes=1 << 20), "another slot_bytes: 1048576 instead of"),
    ],
)
def test_a_daemon_that_comes_back_with_another_layout_is_refused(fake, start, edit, named):
    """Whatever a batch's bytes mean is compared, before a byte of the new arena is looked at."""
    driver = start(fake)
    driver.open("numbers")
    seen = take(driver, 1)
    fake.faults.edit_answer = edit
    hang_up(fake)
    with pytest.raises(Refused) as caught:
        take(driver)
    assert caught.value.code == "FAILED_PRECONDITION"
    assert f"came back with {named}" in caught.value.message
    fake.faults.edit_answer = bool  # as it was: the loader goes on
    driver.call("set_epoch", epoch=0)
    driver.call("load", state=driver.state())
    assert take(driver)[:4] == seen


def test_a_daemon_that_comes_back_with_another_programs_data_is_refused(fake, start):
    """Digests do not tell them apart; a daemon that tells no identity is taken in between."""
    driver = start(fake)
    fake.faults.edit_answer = change(None, own_identity="pickle a")
    driver.open("numbers")
    seen = take(driver, 1)
    for edit in (bool, change(None, own_identity="pickle a"), bool):
        fake.faults.edit_answer = edit
        hang_up(fake)
        seen += take(driver, 1)
    fake.faults.edit_answer = change(None, own_identity="pickle b")
    hang_up(fake)
    with pytest.raises(Refused, match="own_identity: pickle b instead of pickle a") as caught:
        take(driver)
    assert caught.value.code == "FAILED_PRECONDITION"
    assert seen == list(range(16))


def test_a_state_of_an_iterable_dataset_fits_its_world_size_alone(fake, start):
    fake.faults.edit_answer = change(None, own_workers=2)
    driver = start(fake)
    driver.open("numbers")
    take(driver, 1)
    state = driver.state()
    driver.open("numbers", "same")
    driver.call("load", "same", state=state)
    driver.open("numbers", "other", rank=0, world_size=2)
    with pytest.raises(Refused, match=r"saved with world size 1, and this .* is 2") as caught:
        driver.call("load", "other", state=state)
    assert caught.value.code == "FAILED_PRECONDITION"
    fake.faults.edit_answer = bool  # of files any world size goes on
    driver.open("numbers", "files", rank=0, world_size=2)
    driver.call("load", "files", state=state)


def test_a_stream_is_opened_again_with_the_text_that_it_was_opened_with(fake, start):
    """An edit of the pipeline's file, while the daemon is away, reaches new streams alone."""
    text = "version: 1\n# as it was\n"

    def add_text(answer):
        answer.pipeline_text.file_name = "numbers.yaml"
        answer.pipeline_text.yaml = text

    fake.faults.edit_answer = add_text
    driver = start(fake)
    driver.open("numbers")
    take(driver, 1)
    assert fake.requests[-1].pipeline.name == "numbers"
    fake.faults.edit_answer = bool  # by its text, nothing has to come back
    for _ in range(2):
        hang_up(fake)
        take(driver)
        assert fake.requests[-1].pipeline.text.file_name == "numbers.yaml"
        assert fake.requests[-1].pipeline.text.yaml == text
    driver.open("numbers")
    assert fake.requests[-1].pipeline.name == "numbers"


def test_a_daemon_that_does_not_answer_is_lost_in_time_and_with_the_state(fake, start):
    driver = start(fake)
    driver.open("numbers", reconnect_timeout=0.5, slots=2)
    seen = take(driver, 3)
    fake.silent.set()
    hang_up(fake)
    with pytest.raises(Refused) as caught:
        while True:
            seen += take(driver, 1)
    assert caught.value.code == "UNAVAILABLE"
    assert caught.value.more["state"] == driver.state()
    assert driver.state()["position"] == len(seen)
    fake.silent.clear()


@pytest.mark.parametrize("moved", ["skip", "epoch end", "replay"])
def test_a_connection_that_breaks_goes_on_where_the_program_is(fake, start, moved):
    driver = start(fake)
    driver.open("numbers")
    seen = take(driver, 3)
    expected = list(range(40))
    if moved == "skip":
        driver.call("skip", first=3, last=4)
        del expected[12:20]
    elif moved == "replay":
        driver.call("replay", step=7)
    else:
        seen += take(driver, 7)
    hang_up(fake)
    assert seen + take(driver) == expected
    assert take(driver) == list(range(40))
    hang_up(fake)
    assert {b["epoch"] for b in driver.batches()} == {2}
