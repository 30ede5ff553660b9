"""feedwater doctor: what it finds on this host, and on made-up ones."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from command_line import PROGRAM, environment, run


@pytest.fixture
def host(tmp_path, project):
    """A copy of another host's /proc and /sys, to be filled."""

    def write(path: str, text: str) -> None:
        file = tmp_path / "host" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    write.root = tmp_path / "host"
    write("/proc/sys/kernel/osrelease", "6.12.1")
    return write


def checks(*arguments, **options) -> dict[str, dict]:
    result = run("doctor", *arguments, "--json", **options)
    assert result.status in (0, 1), result.err
    document = result.document
    states = [check["state"] for check in document["checks"]]
    assert document["warnings"] == states.count("warning")
    assert document["failures"] == states.count("failure")
    assert result.status == (1 if document["failures"] else 0)
    for check in document["checks"]:
        assert (check["cure"] == "") == (check["state"] == "good"), check
    return {check["check"]: check for check in document["checks"]}


def test_every_check_says_what_it_found(project):
    found = checks("--config", project.config)
    for name in (
        "kernel",
        "io_uring",
        "shared memory",
        "CPUs",
        "governor",
        "NUMA",
        "memory",
        "huge pages",
        "clock",
        "open files",
        "locked memory",
        "configuration",
        "root data",
        "state_dir",
        "daemon",
    ):
        assert found[name]["found"], name


def test_what_is_for_tests_alone_is_not_listed(project):
    assert "--root" not in run("doctor", "--help").out
    assert "--root" not in run("complete", "--", "doctor", "--").out


@pytest.mark.parametrize(
    "path, text, check, words",
    [
        ("/proc/sys/kernel/osrelease", "5.10.0-8-amd64", "kernel", "SO_PEERPIDFD"),
        ("/proc/sys/kernel/io_uring_disabled", "2", "io_uring", "sysctl"),
        (
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "powersave",
            "governor",
            "cpupower",
        ),
        (
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet",
            "clock",
            "tsc",
        ),
    ],
)
def test_a_host_that_is_not_right_gets_a_warning_with_the_cure(host, path, text, check, words):
    assert checks("--root", host.root)[check]["state"] == "good" or check == "io_uring"
    host(path, text)
    found = checks("--root", host.root)[check]
    assert found["state"] == "warning"
    assert words in found["cure"]


def test_without_a_configuration_nothing_of_it_is_called_good(project):
    no_daemon = environment(FEEDWATER_ADDRESS=str(project.folder))
    found = checks(env=no_daemon)["configuration"]
    if "/etc/feedwater" in found["found"]:
        pytest.skip("a configuration is installed here")
    assert found["state"] == "skipped" and "--config" in found["cure"]
    assert "skip  configuration" in run("doctor").out


def test_one_of_a_thing_is_not_several(host):
    for line in (run("doctor", "--root", host.root).out, run("doctor").out):
        *_, last = line.splitlines()
        for count, thing in re.findall(r"(\d+) (\w+)", last):
            assert thing.endswith("s") == (count != "1"), last


def test_two_nodes_want_two_daemons(host):
    for node in (0, 1):
        host(f"/sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal: 1048576 kB")
    found = checks("--root", host.root)["NUMA"]
    assert found["state"] == "warning" and "1.0 GiB" in found["found"]
    assert "--numa-node" in found["cure"] and "systemctl" not in found["cure"]
    host("/usr/lib/systemd/system/feedwaterd@.service", "[Unit]")
    assert "feedwaterd@1" in checks("--root", host.root)["NUMA"]["cure"]


def test_few_open_files_are_a_warning(project):
    done = subprocess.run(  # no preexec_fn: gRPC aborts in such a child now and then
        ["prlimit", "--nofile=512:512", PROGRAM, "doctor"],
        env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert "512 open files" in done.stdout and "LimitNOFILE" in done.stdout


def test_a_state_folder_that_is_not_there_is_looked_at_where_it_will_be(project):
    config = project.folder / "later.yaml"
    text = project.config.read_text()
    config.write_text(text.replace("state_dir: state", f"state_dir: {project.folder / 'a/b/c'}"))
    found = checks("--config", config)["state_dir"]["found"]
    assert "a/b/c: made at the first start, on " in found and " free" in found


def test_systemd_is_offered_where_the_unit_is_installed(host, project):
    alone = environment(FEEDWATER_ADDRESS=str(project.folder / "nobody"))
    cure = checks("--root", host.root, env=alone)["daemon"]["cure"]
    assert "systemctl" not in cure and "feedwaterd --config" in cure
    host("/lib/systemd/system/feedwaterd@.service", "[Unit]")
    assert "systemctl start" in checks("--root", host.root, env=alone)["daemon"]["cure"]


def test_a_bad_configuration_and_a_missing_root_fail(project):
    config = project.folder / "bad.yaml"
    config.write_text("version: 1\npipelines: [x]\nroots: {a: /nowhere/at/all}\nnonsense: 1\n")
    result = run("doctor", "--config", config)
    assert result.status == 1
    assert "FAIL" in result.out and "nonsense" in result.out and "cure" in result.out


# --- a dataset

TINY = b"P6 2 2 255\n" + bytes(12)


def write_shards(folder, shards: int = 4, records: int = 50, size: int = 20_000) -> None:
    """Write tar shards of records of one size."""
    folder.mkdir()
    for shard in range(shards):
        with tarfile.open(folder / f"part-{shard}.tar", "w") as archive:
            for number in range(records):
                member = tarfile.TarInfo(f"{shard}-{number:04}.bin")
                member.size = size
                archive.addfile(member, io.BytesIO(b"\7" * size))


def shard_pipeline(project, sampler: str) -> Path:
    path = project.pipelines / "shards.yaml"
    path.write_text(
        "version: 1\ndataset: {format: webdataset, root: data, path: shards, fields: {data: bin}}\n"
        f"sampler: {sampler}\nbatch: {{size: 10}}\noutputs: [sample_id]\n"
    )
    return path


def kind_of_storage(project, kind: str) -> Path:
    config = project.folder / f"{kind}.yaml"
    config.write_text(project.config.read_text() + f"storage: {{kind: {kind}}}\n")
    return config


def test_a_dataset_is_described_where_it_lies(project):
    write_shards(project.data / "shards")
    pipeline = shard_pipeline(project, "{shuffle: full}")
    found = checks(pipeline, "--config", project.config)
    assert list(found) == ["records", "index", "storage", "page cache", "reads", "samples"]
    assert "200 records in 4 files" in found["records"]["found"]
    assert "20.5 KiB in the middle and at most 20.5 KiB" in found["records"]["found"]
    assert "bytes a record" in found["index"]["found"]
    assert "since" in found["storage"]["found"]
    assert "%" in found["page cache"]["found"] or "nothing is known" in found["page cache"]["found"]
    assert "1,000 samples" in found["reads"]["found"]
    # The graph has no op, and so nothing is decoded.
    text = "64 of 200 records read and run through the graph, which decodes no image: none of these"
    assert found["samples"]["found"].startswith(text)


@pytest.mark.parametrize("kind", ["rotational", "network"])
def test_a_full_shuffle_where_reads_are_dear_should_be_one_of_blocks(project, kind):
    write_shards(project.data / "shards", records=300)
    config = kind_of_storage(project, kind)
    full = checks(shard_pipeline(project, "{shuffle: full}"), "--config", config)["reads"]
    assert full["state"] == "warning" and "1000 seeks" in full["found"]
    assert "shuffle: block, block_records: " in full["cure"] and "large pieces" in full["cure"]
    sampler = full["cure"].partition("sampler: ")[2].partition("}")[0] + "}"
    block = checks(shard_pipeline(project, sampler), "--config", config)["reads"]
    assert block["state"] == "good", block
    assert "reads of 1.0 MiB" in block["found"] or "KiB" in block["found"]


def test_a_full_shuffle_on_a_drive_is_good(project):
    write_shards(project.data / "shards")
    pipeline = shard_pipeline(project, "{shuffle: full}")
    config = kind_of_storage(project, "flash")
    assert checks(pipeline, "--config", config)["reads"]["state"] == "good"


def test_small_windows_on_a_disk_should_be_larger(project):
    write_shards(project.data / "shards", records=300)
    pipeline = shard_pipeline(project, "{shuffle: block, block_records: 16}")
    found = checks(pipeline, "--config", kind_of_storage(project, "rotational"))["reads"]
    assert found["state"] == "warning" and "block_records: 1200" in found["cure"]


def test_blocks_of_a_single_shard_mix_nothing(project):
    write_shards(project.data / "shards", shards=1)
    pipeline = shard_pipeline(project, "{shuffle: block, block_records: 20}")
    found = checks(pipeline, "--config", project.config)["reads"]
    assert found["state"] == "warning"
    assert "one shard" in found["cure"] and "convert" in found["cure"]


def test_many_small_files_on_a_disk_should_become_shards(project):
    for number in range(1000):
        file = project.data / "pictures" / f"class-{number % 2}" / f"{number}.ppm"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(TINY)
    pipeline = project.pipeline("train", "  - decode: {in: data, out: image}\n", outputs="[label]")
    found = checks(pipeline, "--config", kind_of_storage(project, "rotational"))
    assert found["records"]["state"] == "warning"
    assert "feedwater convert" in found["records"]["cure"] and "seek" in found["records"]["cure"]
    found = checks(pipeline, "--config", kind_of_storage(project, "flash"))
    assert found["records"]["state"] == "good"


def test_progressive_images_should_become_baseline_ones(project):
    image = pytest.importorskip("PIL.Image").new("RGB", (64, 64), (9, 99, 199))
    (project.data / "pictures" / "a").mkdir(parents=True)
    for number in range(4):
        image.save(project.data / f"pictures/a/{number}.jpg", progressive=number < 3)
    pipeline = project.pipeline("train", "  - decode: {in: data, out: image}\n", outputs="[label]")
    found = checks(pipeline, "--config", project.config)["images"]
    assert found["state"] == "warning" and found["found"].startswith("3 of 4")
    assert "--jpeg baseline" in found["cure"]


def test_data_of_which_nothing_is_known_is_looked_at_too(project):
    write_shards(project.data / "shards")
    found = checks(project.data / "shards", env=environment(FEEDWATER_ADDRESS="/nonexistent"))
    assert "webdataset" in found["records"]["found"]
    assert found["reads"]["found"].startswith("a full shuffle: ")


def test_what_cannot_be_opened_or_read_fails(project):
    result = run("doctor", project.folder / "nowhere", "--config", project.config)
    assert result.status == 1 and "FAIL  dataset" in result.out and "cure: " in result.out
    rows = project.data / "rows.jsonl"
    rows.write_text('{"a": 1}\n' * 20)
    pipeline = project.pipelines / "rows.yaml"
    pipeline.write_text(
        "version: 1\ndataset: {format: jsonl, root: data, path: rows.jsonl}\noutputs: [a]\n"
    )
    assert checks(pipeline, "--config", project.config)["samples"]["state"] == "good"


# --- samples


def test_samples_are_decoded_and_not_only_read(project):
    project.pictures("pictures", 100, bad=(25,))
    graph = "  - decode: {in: data, out: image}\n  - resize: {in: image, size: [8, 8]}\n"
    pipeline = project.pipeline("train", graph)
    # Record 25 is among the 64 that are looked at.
    found = checks(pipeline, "--config", project.config)["samples"]
    assert found["state"] == "failure"
    assert found["found"].startswith("64 of 100 records read and decoded: 1 of these is bad, ")
    assert "record 25: " in found["found"]
    assert "feedwater verify" in found["cure"]


@pytest.mark.parametrize("isolation", ["process", "none"])
def test_data_without_a_pipeline_is_decoded_too(project, isolation):
    project.pictures("pictures", 10, bad=(3,))
    project.config.write_text(project.config.read_text() + f"isolation: {isolation}\n")
    found = checks(project.data / "pictures", "--config", project.config)["samples"]
    assert found["state"] == "failure", found
    assert found["found"].startswith("10 of 10 records read and decoded: 1 of these is bad, ")
    alone = environment(FEEDWATER_ADDRESS="/nonexistent")
    assert checks(project.data / "pictures", env=alone)["samples"] == found


def test_what_was_not_decoded_is_told(project):
    write_shards(project.data / "shards", records=3)
    found = checks(project.data / "shards", "--config", project.config)["samples"]["found"]
    assert found == (
        "12 of 12 records read and parsed (nothing in them seems an image): none of these is bad"
    )
    project.pictures("pictures", 3)
    op = "{name: mine, in: image, out: image, dtype: uint8, shape: [8, 8, 3]}"
    pipeline = project.pipeline("own", "  - decode: {in: data, out: image}\n"
        f"  - center_crop: {{in: image, size: [8, 8]}}\n  - python: {op}\n")  # fmt: skip
    found = checks(pipeline, "--config", project.config)["samples"]
    assert found["state"] == "good"
    assert "3 of 3 records read and parsed, no more since " in found["found"]
    assert "run by your own program" in found["found"]


# --- cures of a mix


def test_the_cure_for_a_mix_of_folders_can_be_followed_as_it_is_printed(project):
    image = pytest.importorskip("PIL.Image").new("RGB", (64, 64), (9, 99, 199))
    sources = []
    for name, count in (("one", 2), ("two", 3)):
        for number in range(count):
            path = project.data / name / "cat" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path, progressive=True)
        sources.append(f"{{format: image_folder, root: data, path: {name}")
    mix = ", ".join(f"{source}, weight: 2}}" for source in sources)
    rest = "graph: [{decode: {}}, {resize: {size: [8, 8]}}]\noutputs: [image, label, dataset_id]\n"
    pipeline = project.pipelines / "mix.yaml"
    pipeline.write_text(f"version: 1\ndataset: {{mix: [{mix}]}}\n{rest}")
    found = checks(pipeline, "--config", project.config)["images"]
    assert found["state"] == "warning"
    words = found["cure"].split()
    command = words[words.index("feedwater") : words.index("OUT")]
    assert command == ["feedwater", "convert", "SOURCE.yaml"] and "baseline; that" in found["cure"]
    assert "--jpeg baseline" in found["cure"] and "without `weight`" in found["cure"]
    made = []
    for number, source in enumerate(sources):
        file = project.folder / f"source-{number}.yaml"
        file.write_text(f"version: 1\ndataset: {source}}}\n")
        out = project.data / f"out-{number}"
        done = run("convert", file, out, "--jpeg", "baseline", "--config", project.config)
        assert done.status == 0, done.err
        section = (out / "dataset.yaml").read_text().partition("dataset:\n")[2]
        made.append("    - weight: 2\n" + "".join(f"    {line}\n" for line in section.splitlines()))
    pipeline.write_text(f"version: 1\ndataset:\n  mix:\n{''.join(made)}{rest}")
    found = checks(pipeline, "--config", project.config)
    assert found["images"]["state"] == "good" and "5 records" in found["records"]["found"]
    assert found["samples"]["found"].startswith("5 of 5 records read and decoded: none")


def test_folders_of_other_classes_are_mixed_by_the_cure(project):
    for name, classes in (("one", "cat dog"), ("two", "cat owl")):
        for word in classes.split():
            path = project.data / name / word / "0.ppm"
            path.parent.mkdir(parents=True)
            path.write_bytes(TINY)
    pipeline = project.pipelines / "mix.yaml"

    def mix(more: str = "") -> None:
        sources = ", ".join(
            f"{{format: image_folder, root: data, path: {name}{more}}}" for name in ("one", "two")
        )
        pipeline.write_text(f"version: 1\ndataset: {{mix: [{sources}]}}\noutputs: [label]\n")

    mix()
    found = run("doctor", pipeline, "--config", project.config, "--json").document["checks"][0]
    assert found["check"] == "dataset" and found["state"] == "failure"
    cure = found["found"].partition("Cure: `")[2].partition("`")[0]
    assert cure == "classes: [cat, dog, owl]"
    mix(", " + cure)
    assert checks(pipeline, "--config", project.config)["samples"]["state"] == "good"
