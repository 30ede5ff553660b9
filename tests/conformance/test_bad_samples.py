"""What every client is told of records that cannot be made into samples."""

from __future__ import annotations

import re

import pytest
from driver import Refused, digests, output, values

from feedwater import wire

BAD = 17
FIELDS = ["sample_id", "position", "is_real", "label"]


def test_a_skipped_sample_keeps_its_place_and_is_not_real(daemon, start):
    driver = start(daemon)
    driver.open("skips")
    batches = driver.batches(values=FIELDS)
    assert values(batches, "position") == list(range(40))
    assert values(batches, "sample_id") == list(range(40))
    assert [i for i, real in enumerate(values(batches, "is_real")) if not real] == [BAD]
    assert [b["samples"] for b in batches] == [4] * 10
    assert [b["real_samples"] for b in batches] == [4, 4, 4, 4, 3, 4, 4, 4, 4, 4]
    assert [b["substituted"] for b in batches] == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    assert [b["skipped"] for b in batches] == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    stats = driver.call("stats")
    assert (stats["samples"], stats["real_samples"]) == (40, 39)
    assert (stats["substituted"], stats["skipped"]) == (1, 1)
    # What stands there is the next good record, so that batch statistics see a proper sample.
    driver.open("substitutes", "b")
    others = driver.batches("b", values=FIELDS)
    assert [b["skipped"] for b in others] == [0] * 10
    for name in ("image", "label"):
        assert [output(b, name)["sha256"] for b in batches] == [
            output(b, name)["sha256"] for b in others
        ]


def test_skipping_keeps_the_ranks_equal_and_is_the_same_on_every_run(daemon, start):
    driver = start(daemon)
    runs = []
    for run in range(2):
        got = []
        for rank in range(2):
            loader = f"{run}-{rank}"
            driver.open("skips", loader, rank=rank, world_size=2, job=f"skips-{run}")
            got.append(driver.batches(loader))
        assert [len(batches) for batches in got] == [5, 5]
        assert all(b["samples"] == 4 for batches in got for b in batches)
        runs.append([digests(batches) for batches in got])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("record", [17, -1])
def test_a_traceback_does_not_end_its_line_in_an_error(fake, start, record):
    text = "ValueError: no\nTraceback (most recent call last):\n  at line 3\n"
    for reason, end in ((wire.BAD_RECORD, "'skip_with_count'"), (wire.TOO_MANY_BAD, "at line 3")):
        fake.faults.fail_at[0, 0] = wire.Failed(0, 3, 0, 0, 0, record, "", text, reason)
        driver = start(fake)
        driver.open("numbers")
        with pytest.raises(Refused, match="ValueError: no") as caught:
            driver.call("next")
        assert "\n." not in caught.value.message
        assert caught.value.message.endswith(end if record >= 0 else "at line 3")


def test_what_no_process_serves_any_more_is_told_apart_and_goes_on_once_one_does(fake, start):
    text = "no process serves source 'mine' any more"
    fake.faults.fail_at[0, 2] = wire.Failed(0, 14, 0, 2, 0, -1, "", text, wire.NOT_SERVED)
    driver = start(fake)
    driver.open("numbers")
    assert len(driver.batches(count=2)) == 2
    for _ in range(2):
        with pytest.raises(Refused, match="UNAVAILABLE: no process serves source 'mine'") as caught:
            driver.call("next")
        assert caught.value.more["not_served"]
        assert re.search("go(es)? on with this batch$", caught.value.message)
    fake.faults.fail_at.clear()
    driver.call("load", state=driver.state())
    assert [batch["step"] for batch in driver.batches(count=2)] == [2, 3]


def test_a_pipeline_whose_source_nobody_serves_is_told_apart_when_it_is_opened(fake, start):
    fake.faults.refuse_open = (14, "no process serves source 'mine'")
    driver = start(fake)
    for details in (b"", b"not-served"):
        fake.faults.refuse_details = details
        with pytest.raises(Refused, match="no process serves source 'mine'") as caught:
            driver.open("numbers", reconnect_timeout=0.1)
        assert caught.value.code == "UNAVAILABLE"
        assert ("not_served" in caught.value.more) == bool(details)


def test_a_first_batch_that_failed_is_tried_again_where_its_epoch_is_chosen(fake, start):
    fake.faults.fail_at[0, 0] = wire.Failed(0, 15, 0, 0, 0, 17, "a", "b")
    driver = start(fake)
    driver.open("numbers")
    for _ in range(2):
        with pytest.raises(Refused, match="record 17"):
            driver.call("next")
    fake.faults.fail_at.clear()
    driver.call("set_epoch", epoch=0)
    assert [batch["step"] for batch in driver.batches(count=2)] == [0, 1]


def test_more_bad_samples_than_allowed_fail_the_stream_with_the_cure(daemon, start):
    driver = start(daemon)
    driver.open("strict")
    assert len(driver.batches(count=4)) == 4
    for _ in range(2):
        with pytest.raises(Refused, match="max_bad_fraction") as caught:
            driver.call("next")
        error = caught.value.more
        assert error["record"] == BAD
        assert "000017.png" in error["path"]
        for part in ("1 of this rank's 40 samples", "allows (0)", "feedwater status --bad"):
            assert part in error["reason"]
        assert "on_bad_sample" not in error["message"]
    state = driver.state()
    assert (state["epoch"], state["position"]) == (0, 16)
    driver.call("load", state={**state})
    with pytest.raises(Refused, match="max_bad_fraction"):
        driver.call("next")
