"""feedwater bench: through a daemon, and without one."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest
from command_line import PROGRAM, environment, run, run_on_terminal
from daemon_process import DaemonProcess
from pictures import write_folder

import feedwater

GRAPH = "  - decode: {in: data, out: image}\n  - resize: {size: [8, 8]}\n"
QUICK = ("--seconds", "0.3", "--warm-up", "0.1")
STAGES = {"read_wait", "read", "parse", "graph", "batch"}


@pytest.fixture
def measured(project):
    """A project with a pipeline to measure: epochs of 24 batches."""
    project.pictures("pictures", 48)
    project.pipeline("some", GRAPH, batch="{size: 2}")
    return project


def check(document: dict) -> None:
    """The figures that programs rely on are there and hold together."""
    assert document["samples"] > 0 and document["batches"] > 0
    assert document["samples_per_s"] == pytest.approx(document["samples"] / document["seconds"])
    assert document["cpu_s_per_1000"] > 0
    assert set(document["stages"]) == STAGES
    assert sum(document["stages"].values()) == pytest.approx(1)
    assert document["stages"]["graph"] > 0
    assert document["waits_for"].startswith(("It waits for", "Too few batches to judge"))


def test_without_a_daemon_it_measures_in_its_own_process(measured):
    result = run("bench", "some", "--config", measured.config, *QUICK, "--json")
    assert result.status == 0, result.err
    check(result.document)
    assert result.document["pipeline"] == "some"
    assert "in this process" in result.document["mode"]
    assert result.document["workers"] == 2
    assert not list(measured.folder.glob("run*")), "the configuration's runtime_dir stays untouched"


def test_a_file_ranks_batch_size_epochs_and_cpus_may_be_given(measured):
    file = measured.pipelines / "some.yaml"
    result = run(
        "bench",
        file,
        "--config",
        measured.config,
        "--epochs",
        "50",
        "--ranks",
        "3",
        "--batch-size",
        "4",
        "--cpus",
        "1",
        "--json",
    )
    assert result.status == 0, result.err
    check(result.document)
    assert result.document["samples"] == 50 * 48
    assert result.document["batches"] == 50 * 48 // 4
    assert (result.document["ranks"], result.document["workers"]) == (3, 1)


def test_the_first_epoch_may_be_measured_and_shows_the_cache_filling(measured):
    measured.pipeline("kept", GRAPH, batch="{size: 8}", cache="{kind: bytes}")
    cold = ("bench", "kept", "--config", measured.config, "--epochs", "1", "--json")
    first = run(*cold, "--warm-up-epochs", "0")
    assert first.status == 0, first.err
    check(first.document)
    assert first.document["samples"] == 48
    assert first.document["kept"]["misses"] >= 48
    later = run(*cold).document["kept"]
    assert later["memory_hits"] > 0 and later["memory_records"] == 48


def test_through_a_running_daemon(folder):
    with DaemonProcess(folder / "d") as daemon:
        write_folder(daemon.data / "pictures", 48)
        daemon.add_pipeline(
            "some",
            "version: 1\ndataset: {format: image_folder, root: data, path: pictures}\n"
            f"graph:\n{GRAPH}batch: {{size: 8}}\noutputs: [image, label]\n",
        )
        daemon.kill()
        daemon.start()
        result = run("--address", daemon.address, "bench", "some", *QUICK, "--json")
        assert result.status == 0, result.err
        check(result.document)
        assert daemon.address in result.document["mode"]
        refused = run("--address", daemon.address, "bench", "some", "--cpus", "1")
        assert refused.status == 2 and "--config" in refused.err
        assert run("--address", daemon.address, "status", "--json").document["jobs"] == []


def test_reads_of_other_jobs_and_of_those_before_are_not_counted(make_daemon):
    """The daemon counts those of all jobs: a job's own are told where there was no other."""
    daemon = make_daemon(config="cpus: 2\nmemory: 1GiB\ncache: {ram: 0B}\n")
    write_folder(daemon.data / "pictures", 48)
    daemon.add_pipeline(
        "some",
        "version: 1\ndataset: {format: image_folder, root: data, path: pictures}\n"
        f"graph:\n{GRAPH}batch: {{size: 8}}\noutputs: [image, label]\n",
    )
    daemon.start()
    first_epoch = ("--epochs", "1", "--warm-up-epochs", "0")
    ask = ("--address", daemon.address, "bench", "some")
    for _ in range(3):
        result = run(*ask, *first_epoch, "--json")
        assert result.status == 0, result.err
        storage = result.document["storage"]
        assert storage["of_all_jobs"] is False
        assert 1000 <= storage["reads_per_1000"] < 4000, "each record, and what is read ahead"
    with feedwater.Loader("some", address=daemon.address, output="numpy") as other:
        next(iter(other))
        for more in (first_epoch, QUICK):
            storage = run(*ask, *more, "--json").document["storage"]
            assert storage["of_all_jobs"] is True and storage["reads_per_1000"] is None
            assert "reads    not told" in run(*ask, *more).out
    alone = run(*ask, *QUICK, "--json").document["storage"]
    assert alone["of_all_jobs"] is False and alone["reads_per_1000"] > 0


def test_text_says_rate_stages_cache_and_bottleneck(measured):
    result = run("bench", "some", "--config", measured.config, *QUICK)
    assert result.status == 0, result.err
    for words in ("samples/s", "CPU s per 1,000 samples", "graph", "cache"):
        assert words in result.out
    assert result.err == ""


def test_few_batches_are_no_reason_to_blame_anybody(measured):
    """What it waits for is told of 32 batches and more, however short the epochs are."""
    command = ("bench", "some", "--config", measured.config, "--json")
    for more, cure in [
        (("--epochs", "3"), None),
        (("--epochs", "20", "--batch-size", "8"), None),  # epochs of 6
        (("--epochs", "40", "--batch-size", "48"), None),  # epochs of 1
        (("--epochs", "1"), "or more --epochs."),  # 24 batches
        (("--epochs", "2", "--batch-size", "48"), "or more --epochs."),
    ]:
        said = run(*command, *more).document["waits_for"]
        assert said.startswith("Too few batches" if cure else "It waits for"), (more, said)
        assert "--seconds" not in said
        assert cure is None or ("--batch-size" in said and said.endswith(cure))


def test_a_pipeline_that_fails_is_a_failure_with_its_cure(measured):
    measured.pictures("spoilt", 8, bad=(5,))
    measured.pipeline(
        "spoilt",
        GRAPH,
        batch="{size: 2}",
        dataset="{format: image_folder, root: data, path: spoilt}",
    )
    for more in (("--epochs", "2"), QUICK, ("--epochs", "1", "--warm-up-epochs", "0")):
        result = run("bench", "spoilt", "--config", measured.config, *more)
        assert (result.status, result.out) == (1, ""), more
        for words in ("record 5", "000005.png", "feedwater verify", "on_bad_sample"):
            assert words in result.err, words
    document = run("bench", "spoilt", "--config", measured.config, *QUICK, "--json").document
    assert document["error"]["code"] == "DATA_LOSS"


def test_a_daemons_broken_pipeline_is_told_without_a_configuration_of_ours(make_daemon):
    """The daemon has it: there is none to be named, and none is."""
    daemon = make_daemon()
    write_folder(daemon.data / "spoilt", 8, bad=(5,))
    head = "version: 1\ndataset: {format: image_folder, root: data, path: spoilt}\ngraph:\n"
    tail = "batch: {size: 2}\noutputs: [image]\n"
    daemon.add_pipeline("never", head + "  - decode: {in: dota, out: image}\n" + tail)
    daemon.add_pipeline("spoilt", head + GRAPH + tail)
    daemon.start()
    ask = ("--address", daemon.address, "bench")
    never = run(*ask, "never", *QUICK)
    assert (never.status, never.out) == (2, "")
    assert "never.yaml:4:18:" in never.err and "did you mean 'data'" in never.err
    assert "config" not in never.err.replace(str(daemon.folder), "")
    spoilt = run(*ask, "spoilt", *QUICK)
    assert (spoilt.status, spoilt.out) == (1, "")
    assert "`feedwater verify spoilt` lists all bad records" in spoilt.err


def test_a_terminal_sees_progress(measured):
    seen = run_on_terminal("bench", "some", "--config", measured.config, *QUICK)
    assert "samples" in seen and "warm-up" in seen


def test_beside_a_running_daemon_it_leaves_that_daemons_notes_alone(measured, make_daemon):
    daemon = make_daemon()
    daemon.start()
    measured.pipeline("other", GRAPH, batch="{size: 2}")
    config = measured.folder / "beside.yaml"
    text = measured.config.read_text()
    config.write_text(text.replace("state_dir: state", f"state_dir: {daemon.folder / 'state'}"))
    result = run("bench", "other", "--config", config, *QUICK)
    assert (result.status, result.err) == (0, "")


def test_ctrl_c_ends_it_with_the_figures_so_far(measured):
    process = subprocess.Popen(
        [PROGRAM, "bench", "some", "--config", measured.config]
        + ["--seconds", "600", "--warm-up", "0.2", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "figures so far" in err
    check(json.loads(out))


def test_errors_name_the_cure(measured):
    nobody = run("--address", measured.folder / "no", "bench", "some")
    assert nobody.status == 1 and "no feedwaterd at" in nobody.err and "--config" in nobody.err
    unknown = run("bench", "sone", "--config", measured.config)
    assert unknown.status == 2 and "some" in unknown.err
    nothing = run("bench", "some", env=environment(FEEDWATER_ADDRESS=str(measured.folder / "no")))
    assert nothing.status == 2 and "--config" in nothing.err
    assert run("bench").status == 2
    assert run("bench", "some", "--seconds", "0").status == 2
