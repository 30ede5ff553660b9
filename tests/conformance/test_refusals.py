"""What can never work is refused with the right code and a text that helps; the daemon goes on."""

from __future__ import annotations

import pytest
from driver import Refused, values


def refused(driver, pipeline, **options):
    with pytest.raises(Refused) as caught:
        driver.open(pipeline, **options)
    return caught.value


@pytest.mark.parametrize(
    ("pipeline", "options", "code", "text"),
    [
        ("cropp", {}, "NOT_FOUND", "crop"),
        ("missing", {}, "NOT_FOUND", "no/such/folder"),
        ("outside", {}, "PERMISSION_DENIED", "link"),
        ("dots", {}, None, ".."),
        ("crop", {"rank": 2, "world_size": 2}, "INVALID_ARGUMENT", "rank"),
        ("crop", {"rank": -1, "world_size": 2}, "INVALID_ARGUMENT", "rank"),
        ("crop", {"rank": 0, "world_size": 0}, "INVALID_ARGUMENT", "world_size"),
        ("crop", {"batch_size": 0}, "INVALID_ARGUMENT", "batch_size"),
        ("crop", {"batch_size": -3}, "INVALID_ARGUMENT", "batch_size"),
        ("crop", {"batch_size": 43}, "INVALID_ARGUMENT", "43"),
        ("crop", {"slots": 65}, "INVALID_ARGUMENT", "slots"),
        ("crop", {"slots": 0}, "INVALID_ARGUMENT", "slots is 0; it must be 1 to 64"),
        ("partial", {"batch_size": 1 << 40}, None, ""),
        ("/no/such/file.yaml", {}, "NOT_FOUND", "file.yaml"),
    ],
)
def test_a_request_that_cannot_work_is_refused(daemon, start, pipeline, options, code, text):
    driver = start(daemon)
    error = refused(driver, pipeline, **options)
    either = ["INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "PERMISSION_DENIED"]
    assert error.code in ([code] if code else either)
    assert text in error.message
    assert len(error.message) > 20
    driver.open("crop")  # the daemon serves others, and this client too
    assert len(driver.batches()) == 10


def test_a_pipeline_text_with_an_error_is_refused_with_its_place(daemon, start, tmp_path):
    path = tmp_path / "mine.yaml"
    text = (daemon.pipelines / "crop.yaml").read_text()
    path.write_text(text.replace("center_crop", "centre_crop"))
    error = refused(start(daemon), str(path))
    assert error.code == "INVALID_ARGUMENT"
    assert "mine.yaml:6:" in error.message
    assert "center_crop" in error.message


def test_a_rank_can_be_had_only_once(daemon, start):
    first, second = start(daemon), start(daemon)
    first.open("crop", job="j", rank=0, world_size=2)
    error = refused(second, "crop", job="j", rank=0, world_size=2)
    assert error.code == "ALREADY_EXISTS"
    second.open("crop", job="j", rank=1, world_size=2)
    first.call("close")
    third = start(daemon)
    third.open("crop", job="j", rank=0, world_size=2)


@pytest.mark.parametrize(
    ("options", "name"),
    [({"world_size": 3}, "world"), ({"batch_size": 2}, "batch"), ({"seed": 6}, "seed")],
)
def test_ranks_that_disagree_are_refused_with_the_field_named(daemon, start, options, name):
    driver = start(daemon)
    driver.open("crop", job="agree", rank=0, world_size=2)
    terms = {"rank": 1, "world_size": 2, **options}
    error = refused(driver, "crop", loader="b", job="agree", **terms)
    assert error.code == "FAILED_PRECONDITION"
    assert name in error.message


def test_no_daemon_is_unavailable_with_the_path(daemon, start, tmp_path):
    error = refused(start(daemon), "crop", address=str(tmp_path))
    assert error.code == "UNAVAILABLE"
    assert str(tmp_path) in error.message and "feedwaterd" in error.message


def test_a_bad_sample_is_told_with_record_path_and_reason(daemon, start):
    driver = start(daemon)
    driver.open("fails")
    seen = values(driver.batches(count=4, values=["sample_id"]), "sample_id")
    assert seen == list(range(16))
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            driver.call("next")
        assert caught.value.more["record"] == 17
        assert "000017.png" in caught.value.more["path"]
        # Each thing is said once, in the message and in its parts.
        assert caught.value.more["reason"] and caught.value.more["reason"] in caught.value.message
        assert "record" not in caught.value.more["reason"]
        assert caught.value.message.count("record 17") == 1
        assert caught.value.message.count("000017.png") == 1
        assert "at epoch 0, step 4: " in caught.value.message
        assert caught.value.message.endswith(
            ". Mend or remove it, or let the pipeline say "
            "'on_bad_sample: substitute' or 'skip_with_count'"
        )
    state = driver.state()
    assert (state["epoch"], state["position"]) == (0, 16)


def test_a_substituted_sample_is_a_good_one_and_counted_the_same_on_every_run(daemon, start):
    runs = []
    for _ in range(2):
        driver = start(daemon)
        driver.open("substitutes")
        batches = driver.batches(values=["sample_id", "position", "is_real"])
        ids = values(batches, "sample_id")
        assert values(batches, "position") == list(range(40))
        assert 17 not in ids
        assert [i for i, x in enumerate(ids) if x != i] == [17]
        assert all(values(batches, "is_real"))
        assert [b["substituted"] for b in batches] == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
        assert driver.state()["substituted"] == 1
        assert driver.call("stats")["substituted"] == 1
        runs.append(ids)
    assert runs[0] == runs[1]


def test_what_a_driver_does_not_know_is_told(daemon, start):
    driver = start(daemon)
    with pytest.raises(Refused) as caught:
        driver.call("next", "nobody")
    assert caught.value.code == "NOT_FOUND"
