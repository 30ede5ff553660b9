"""feedwater ledger: what it says of a pipeline and of a running job is what a client gets."""

from __future__ import annotations

import os

import pytest
from command_line import run
from daemon_process import DaemonProcess
from pictures import label, pixels, png, write_folder

import feedwater

RECORDS = 42
PIPELINE = """version: 1
dataset: {{format: image_folder, root: data, path: photos}}
sampler: {{shuffle: full, seed: 5, last: {last}}}
graph:
  - decode: {{in: data, out: image}}
  - center_crop: {{in: image, size: [8, 8]}}
batch: {{size: 4}}
outputs: [label, sample_id, position, is_real]
"""
NOT_UTF_8 = b"\xff" * 90  # each byte is sent as three


def write_picture(folder):
    folder.mkdir(parents=True)
    (folder / "0.png").write_bytes(png(pixels(0)))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    import shutil
    import tempfile
    from pathlib import Path

    folder = Path(tempfile.mkdtemp(prefix="fw-"))
    made = DaemonProcess(folder)
    if not made.command[0].exists():
        pytest.skip("the daemon is not built")
    write_folder(made.data / "photos", RECORDS)
    for last in ("drop", "pad", "partial"):
        made.add_pipeline(last, PIPELINE.format(last=last))
    write_picture(Path(os.fsdecode(os.fsencode(made.data) + b"/bytes/" + NOT_UTF_8)))
    made.add_pipeline("bytes", PIPELINE.format(last="pad").replace("photos", "bytes"))
    with made:
        yield made
    shutil.rmtree(folder)


def ledger(daemon, *arguments):
    done = run("--address", daemon.address, "ledger", *arguments, "--json")
    assert done.status == 0, done.out + done.err
    return done.document


def local(daemon, *arguments):
    done = run("ledger", *arguments, "--config", daemon.config, "--json")
    assert done.status == 0, done.out + done.err
    return done.document


def open_ranks(daemon, pipeline, job, world, **options):
    return [
        feedwater.Loader(
            pipeline, address=daemon.address, job=job, rank=rank, world_size=world,
            output="numpy", as_dict=True, **options,
        )
        for rank in range(world)
    ]  # fmt: skip


def columns(entries, rank):
    mine = [e for e in entries if e["rank"] == rank]
    assert [e["place"] for e in mine] == list(range(len(mine)))
    return [[e[name] for e in mine] for name in ("record", "position", "is_real", "label")]


@pytest.mark.parametrize("last", ["drop", "pad", "partial"])
def test_every_batch_is_made_of_the_records_that_the_ledger_names(daemon, last):
    loaders = open_ranks(daemon, last, f"job-{last}", 3)
    terms = ["--world-size", 3]
    for epoch in range(2):
        epochs = [iter(loader) for loader in loaders]
        for step in range(len(loaders[0])):
            asked = ledger(daemon, f"job-{last}", "--batch", step, "--epoch", epoch)
            assert asked.pop("job") == f"job-{last}"
            assert asked == local(daemon, last, "--batch", step, "--epoch", epoch, *terms)
            for rank, iterator in enumerate(epochs):
                batch = next(iterator)
                got = [batch[n].tolist() for n in ("sample_id", "position", "is_real", "label")]
                assert got == columns(asked["entries"], rank)
        for iterator in epochs:
            assert next(iterator, None) is None
    for loader in loaders:
        loader.close()


def test_find_is_the_inverse(daemon):
    steps = {
        (e["step"], e["rank"], e["place"]): e["record"]
        for step in range(4)
        for e in local(daemon, "pad", "--batch", step, "--epoch", 3, "--world-size", 3)["entries"]
    }
    assert len(steps) == 48
    for record in range(0, RECORDS, 5):
        found = local(daemon, "pad", "--find", record, "--epoch", 3, "--world-size", 3)["entries"]
        places = {(e["step"], e["rank"], e["place"]) for e in found}
        assert places == {place for place, of in steps.items() if of == record}
        by_path = local(daemon, "pad", "--find", found[0]["path"], "--epoch", 3, "--world-size", 3)[
            "entries"
        ]
        name = found[0]["path"].rsplit("/", 1)[1]
        assert by_path == found
        assert (
            found
            == local(daemon, "pad", "--find", name, "--epoch", 3, "--world-size", 3)["entries"]
        )
        assert found[0]["label"] == label(record, RECORDS)


def test_a_record_that_is_dropped_is_not_used(daemon):
    used = [
        bool(local(daemon, "drop", "--find", record, "--batch-size", 8)["entries"])
        for record in range(RECORDS)
    ]
    assert used.count(False) == 2
    done = run("ledger", "drop", "--config", daemon.config, "--find", used.index(False),
               "--batch-size", 8)  # fmt: skip
    assert done.status == 0 and "not used in this epoch" in done.out


def test_a_job_that_was_resumed_in_another_world_counts_its_own_steps(daemon):
    (one,) = open_ranks(daemon, "drop", "first", 1)
    iterator = iter(one)
    for _ in range(3):
        next(iterator)
    state = one.state_dict()
    one.close()
    (loader,) = open_ranks(daemon, "drop", "second", 1, batch_size=8)
    loader.load_state_dict(state)  # at position 12, in batches of 8
    for step, batch in zip((1, 2, 3), loader):
        entries = ledger(daemon, "second", "--batch", step, "--epoch", 0)["entries"]
        assert batch["sample_id"].tolist() == [e["record"] for e in entries]
        assert batch["position"].tolist() == [e["position"] for e in entries]
    loader.close()


def test_a_step_for_people(daemon):
    (loader,) = open_ranks(daemon, "drop", "shown", 1)
    next(iter(loader))
    done = run("--address", daemon.address, "ledger", "shown", "--batch", 2)
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("shown, drop: epoch 0 of 10 steps, 1 rank, batches of 4, seed 5")
    assert lines[1] == "step 2:" and len(lines) == 6
    assert all("record" in line and "photos/" in line for line in lines[2:])
    assert len(ledger(daemon, "shown", "--batch", 2, "--rank", 0)["entries"]) == 4
    loader.close()


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["drop"], 2, "give --batch STEP"),
        (["drop", "--batch", 1, "--find", 2], 2, "give --batch STEP"),
        (["drop", "--batch", 10], 2, "no step 10"),
        (["drop", "--batch", -1], 2, ""),
        (["drop", "--batch", 1, "--rank", 1], 2, "no rank 1"),
        (["drop", "--find", 42], 2, "no record 42"),
        (["drop", "--find", "nothing.png"], 2, "no record lies in 'nothing.png'"),
        (["dropp", "--batch", 1], 2, "drop"),
        (["drop", "--batch", 0, "--world-size", 0], 2, "world_size is 0"),
        (["partial", "--batch", 0, "--batch-size", 1 << 40], 2, "it must be 1 to 1048576"),
        (
            ["partial", "--batch", 0, "--batch-size", 1 << 20, "--world-size", 8],
            2,
            "ask for one rank",
        ),
    ],
)
def test_what_does_not_exist_is_invalid_input(daemon, arguments, status, text):
    done = run("ledger", *arguments, "--config", daemon.config)
    assert done.status == status
    assert text in done.err


def test_an_unknown_job_is_told_with_those_that_run(daemon):
    (loader,) = open_ranks(daemon, "drop", "running", 1)
    done = run("--address", daemon.address, "ledger", "runing", "--batch", 0)
    assert done.status == 1
    assert "no job 'runing' is running" in done.err and "running" in done.err
    done = run("--address", daemon.address, "ledger", "running", "--batch", 0, "--seed", 3)
    assert done.status == 2 and "--seed is the job's own" in done.err
    loader.close()


def test_a_name_that_no_job_has_is_a_pipelines(daemon):
    step = ("--batch", 1, "--world-size", 2)
    done = run("--address", daemon.address, "ledger", "pad", *step, "--json")
    assert done.status == 0, done.err
    assert "no job 'pad' is running" in done.err
    assert done.document == local(daemon, "pad", *step)


@pytest.mark.parametrize("policy", ["substitute", "skip_with_count", "fail"])
def test_what_stands_in_for_bad_records_is_named_for_every_epoch(make_daemon, policy):
    bad = {3, 4, 17}
    daemon = make_daemon()
    write_folder(daemon.data / "photos", RECORDS, bad=tuple(bad))
    daemon.add_pipeline(
        "some",
        PIPELINE.format(last="pad").replace("label,", "image, label,")
        + f"on_bad_sample: {policy}\n",
    )
    daemon.start()
    (loader,) = open_ranks(daemon, "some", "a-job", 1)
    with loader:
        if policy == "fail":
            with pytest.raises(feedwater.BadSample) as caught:
                list(map(len, loader))
            found = ledger(daemon, "a-job", "--find", caught.value.record, "--epoch", 0)["entries"]
            assert [e["bad"]["stood_in"] for e in found] == [None] and found[0]["bad"]["reason"]
            return
        for _ in loader:
            pass  # now they are known
        for epoch in (1, 2):
            seen = set()
            for step, batch in enumerate(loader):
                entries = ledger(daemon, "a-job", "--batch", step, "--epoch", epoch)["entries"]
                assert {e["record"] for e in entries if e["bad"]} == bad & {
                    e["record"] for e in entries
                }
                stands = [e["bad"]["stood_in"] if e["bad"] else e["record"] for e in entries]
                seen |= bad & {e["record"] for e in entries}
                if policy == "substitute":
                    assert batch["sample_id"].tolist() == stands
                assert batch["label"].tolist() == [label(record, RECORDS) for record in stands]
                assert not bad & set(stands)
            assert seen == bad
        text = run("--address", daemon.address, "ledger", "a-job", "--find", 17)
        assert "BAD: record" in text.out and "stands in" in text.out


def test_an_answer_has_a_limit_that_counts_texts_as_they_are_sent(daemon):
    """A gRPC client takes 4 MiB."""
    for places, is_answered in ((5000, True), (10000, False)):  # of some 340 bytes each
        job = f"bytes-{places}"
        (loader,) = open_ranks(daemon, "bytes", job, 1, batch_size=places, slots=1)
        with loader:
            done = run("--address", daemon.address, "ledger", job, "--batch", 0, "--json")
        if is_answered:
            assert done.status == 0, done.err
            assert done.document["entries"][0]["path"].startswith("bytes/\N{REPLACEMENT CHARACTER}")
        else:
            assert done.status != 0 and "one answer holds 3.0 MiB" in done.out, done.out
