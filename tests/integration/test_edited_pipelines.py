"""A loader gets what stands in its pipeline's file when it is opened."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
from daemon_process import BUILD

import feedwater

PIPELINE = (
    "version: 1\ndataset: {{format: image_folder, root: data, path: images}}\n"
    "outputs: [sample_id]\nbatch: {{size: {size}}}\ncache: {{kind: none}}\n"
)


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon()
    for i in range(12):
        path = daemon.data / f"images/a/{i:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not looked into")
    daemon.add_pipeline("ids", PIPELINE.format(size=4))
    daemon.start()
    return daemon


def open_ids(daemon, name="ids", **options):
    return feedwater.Loader(name, address=daemon.address, output="numpy", **options)


def pipeline_file(daemon, name="ids"):
    return daemon.pipelines / f"{name}.yaml"


def command(daemon, *arguments):
    return subprocess.run(
        [BUILD / "bin/feedwater", "--address", daemon.address, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("by_rename", [False, True])
def test_the_next_loader_has_the_edit_and_a_running_one_keeps_its_own(daemon, by_rename):
    file = pipeline_file(daemon)
    running = open_ids(daemon)
    batches = iter(running)
    next(batches)
    for size in (3, 6, 2):
        text = PIPELINE.format(size=size)
        if by_rename:
            (file.parent / "new").write_text(text)
            os.rename(file.parent / "new", file)
        else:
            file.write_text(text)  # as large as before, and at once
        with open_ids(daemon) as loader:
            assert loader.batch_size == size
    assert [len(batch[0]) for batch in batches] == [4, 4]
    assert running.batch_size == 4
    running.close()


def test_a_running_loader_keeps_its_pipeline_across_an_edit_and_a_restart(daemon):
    running = open_ids(daemon, slots=2)
    batches = iter(running)
    next(batches)
    daemon.kill()
    pipeline_file(daemon).write_text(PIPELINE.format(size=3) + "sampler: {shuffle: full}\n")
    daemon.start()
    assert [list(batch[0]) for batch in batches] == [[4, 5, 6, 7], [8, 9, 10, 11]]
    assert [len(batch[0]) for batch in running] == [4, 4, 4]
    assert running.stats()["reconnects"] == 1
    daemon.kill()
    pipeline_file(daemon).unlink()
    daemon.start()
    for _ in range(2):  # the first was ready before the restart
        assert [len(batch[0]) for batch in running] == [4, 4, 4]
    assert running.stats()["reconnects"] == 2
    running.close()
    with pytest.raises(feedwater.NotFound):
        open_ids(daemon)


def test_edits_without_a_pause_are_all_seen(daemon):
    file = pipeline_file(daemon)
    for turn in range(60):
        size = 1 + turn % 9
        file.write_text(PIPELINE.format(size=size))
        with open_ids(daemon, job=f"job{turn}") as loader:
            assert loader.batch_size == size


def test_loaders_that_are_opened_beside_edits_get_one_version_or_the_other(daemon):
    file = pipeline_file(daemon)
    stop = threading.Event()

    def edit():
        turn = 0
        while not stop.is_set():
            turn += 1
            (file.parent / "new").write_text(PIPELINE.format(size=3 if turn % 2 else 4))
            os.rename(file.parent / "new", file)

    thread = threading.Thread(target=edit)
    thread.start()
    try:
        for turn in range(30):
            with open_ids(daemon, job=f"job{turn}") as loader:
                ids = np.concatenate([np.array(batch[0]) for batch in loader])
                assert loader.batch_size in (3, 4)
                assert ids.tolist() == list(range(12))
    finally:
        stop.set()
        thread.join()


def test_a_broken_edit_keeps_the_version_before_and_says_so(daemon, caplog):
    file = pipeline_file(daemon)
    good = PIPELINE.format(size=4)
    file.write_text(good + "batsh: 3\n")
    for _ in range(2):
        caplog.clear()
        with open_ids(daemon) as loader:
            assert loader.batch_size == 4
        (record,) = [r for r in caplog.records if r.name == "feedwater"]
        assert "'ids' is used as it was before its file was broken" in record.getMessage()
        assert "ids.yaml:6:1" in record.getMessage()
        assert "batsh" in record.getMessage()
    assert daemon.tail().count("is used as it was before its file was broken") == 1
    described = command(daemon, "describe", "ids")
    assert described.returncode == 0
    assert "batsh" in described.stderr
    daemon.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while "reloaded" not in daemon.tail() and time.monotonic() < deadline:
        time.sleep(0.01)
    with open_ids(daemon) as loader:
        assert loader.batch_size == 4

    file.write_text(good.replace("4", "5"))
    caplog.clear()
    with open_ids(daemon) as loader:
        assert loader.batch_size == 5
    assert not [r for r in caplog.records if r.name == "feedwater"]


def test_files_come_and_go(daemon):
    with pytest.raises(feedwater.NotFound, match=r"unknown pipeline 'new'.*new\.yaml is looked"):
        open_ids(daemon, "new")
    daemon.add_pipeline("new", PIPELINE.format(size=2))
    with open_ids(daemon, "new") as loader:
        assert loader.batch_size == 2
    assert command(daemon, "describe").stdout.count("\n  new") == 1
    pipeline_file(daemon, "new").unlink()
    with pytest.raises(feedwater.NotFound, match="unknown pipeline 'new'"):
        open_ids(daemon, "new")
    assert "\n  new" not in command(daemon, "describe").stdout

    daemon.add_pipeline("bad", "version: 1\n")
    with pytest.raises(feedwater.Error, match=r"bad\.yaml:1"):
        open_ids(daemon, "bad")


def test_a_file_that_came_back_broken_has_its_version_before(daemon, caplog):
    file = pipeline_file(daemon)
    file.unlink()
    with pytest.raises(feedwater.NotFound, match="unknown pipeline 'ids'"):
        open_ids(daemon)
    file.write_text("version: 1\n")
    with open_ids(daemon) as loader:
        assert loader.batch_size == 4
    assert "before its file was broken" in caplog.text


def test_a_file_that_is_being_written_is_awaited(daemon):
    """Its first half is a pipeline, too."""
    half, rest = PIPELINE.format(size=5).split("batch:")
    in_time = 0
    for turn in range(50):
        with open(pipeline_file(daemon), "w", buffering=1) as file:
            file.write(half)
            began = time.monotonic()
            wrote = []

            def write_the_rest(file=file, wrote=wrote):
                time.sleep(0.003)
                file.write("batch:" + rest)
                wrote.append(time.monotonic())

            writer = threading.Thread(target=write_the_rest)
            writer.start()
            size = None
            with contextlib.suppress(feedwater.Error):  # half of it gives no batch size
                with open_ids(daemon, job=f"job{turn}") as loader:
                    size = loader.batch_size
            writer.join()
            if wrote[0] - began > 0.015:
                continue  # by a busy machine
            assert size == 5
            in_time += 1
            if in_time == 5:
                break


@pytest.mark.parametrize("name", ["../pipelines/ids", "a/../ids", ".ids", "", "x" * 300])
def test_names_lead_nowhere_else(daemon, name):
    with pytest.raises(feedwater.Error, match="pipeline"):
        open_ids(daemon, name, job="j")


def test_status_and_ledger_are_where_the_trainer_is(daemon):
    with open_ids(daemon, job="j", slots=4) as loader:

        def rank():
            (job,) = json.loads(command(daemon, "status", "--json").stdout)["jobs"]
            return job["ranks"][0]

        deadline = time.monotonic() + 10
        while rank()["slots_ready"] < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (rank()["epoch"], rank()["step"]) == (0, -1), "four are ready, none is taken"
        batches = iter(loader)
        for step in range(3):
            batch = next(batches)
            assert (rank()["epoch"], rank()["step"]) == (0, step)
        ledger = command(daemon, "ledger", "j", "--batch", "2", "--json").stdout
        assert '"epoch": 0' in ledger, "the daemon is an epoch ahead"
        del batch
        loader.set_epoch(5)
        assert rank()["epoch"] in (0, 5)
        next(iter(loader))
        assert (rank()["epoch"], rank()["step"]) == (5, 0)


def test_whoever_opens_it_learns_what_is_probably_not_meant(daemon, caplog):
    daemon.add_pipeline(
        "unit",
        """version: 1
dataset: {format: image_folder, root: data, path: images}
graph:
  - decode: {in: data, out: image}
  - resize: {size: [8, 8]}
  - normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}
batch: {size: 4}
outputs: [image]
""",
    )
    meant = "unit.yaml:6:5: normalize: mean and std look like those of pixels from 0 to 1"
    open_ids(daemon, "unit").close()
    assert meant in caplog.text
    assert meant in daemon.tail()
    checked = subprocess.run(
        [BUILD / "bin/feedwaterd", "--check", "--config", daemon.config],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert f"warning: {daemon.pipelines}/{meant}" in checked.stdout


@pytest.mark.parametrize("config_name", ["feedwater.yaml", "my.yaml"])
def test_the_configuration_among_the_pipelines_is_none_of_them(make_daemon, config_name):
    """It is told by what it is and not by its name: a pipeline elsewhere may have that name."""
    daemon = make_daemon()
    name = config_name.removesuffix(".yaml")
    text = daemon.config.read_text()
    old = f"pipelines: [{daemon.pipelines}]"
    assert old in text
    daemon.config.unlink()
    daemon.config = daemon.folder / config_name
    daemon.config.write_text(text.replace(old, "pipelines: [., pipelines]"))
    (daemon.data / "images/a").mkdir(parents=True)
    (daemon.data / "images/a/1.jpg").write_bytes(b"not looked into")
    daemon.add_pipeline(name, PIPELINE.format(size=1))  # below pipelines/
    (daemon.folder / "beside.yaml").write_text(PIPELINE.format(size=1))
    daemon.start()
    with open_ids(daemon, name) as loader, open_ids(daemon, "beside") as beside:
        assert len(loader.dataset) == len(beside.dataset) == 1
    # Editors put a new file in its place, which is another one by its number.
    replacement = daemon.folder / "new"
    replacement.write_text(daemon.config.read_text())
    replacement.replace(daemon.config)
    (daemon.pipelines / config_name).unlink()
    with pytest.raises(feedwater.NotFound, match=f"unknown pipeline '{name}'"):
        open_ids(daemon, name)
    log = daemon.log.read_text()
    assert f"pipelines: beside, {name}" in log
    assert "[error]" not in log and "hidden" not in log, log
    for command in (("feedwaterd", "--check"), ("feedwater", "describe", "pipeline")):
        program, *arguments = command
        if program == "feedwaterd":
            arguments += ["--config", daemon.config]
        else:
            arguments = ["--address", daemon.address, *arguments]
        done = subprocess.run(
            [BUILD / "bin" / program, *arguments], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert "beside" in done.stdout and "pipeline my" not in done.stdout
