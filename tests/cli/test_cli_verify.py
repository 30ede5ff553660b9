"""feedwater verify: every record once, bad ones as JSON lines."""

from __future__ import annotations

import os

import pytest
from command_line import environment, run, run_on_terminal
from pictures import pixels, png

DECODE = "  - decode: {in: data, out: image}\n  - resize: {size: [8, 8]}\n"


def test_a_good_dataset_gives_no_line_and_status_0(project):
    project.pictures("pictures", 30)
    project.pipeline("good", DECODE)
    result = run("verify", "good", "--config", project.config)
    assert (result.status, result.out) == (0, "")
    assert "30 records" in result.err and "all good" in result.err


@pytest.mark.parametrize("jobs", [1, 2, 7])
def test_every_bad_record_is_reported_once_with_its_place(project, jobs):
    bad = (3, 4, 77, 149)
    project.pictures("pictures", 150, bad)
    project.pipeline("some", DECODE)
    result = run("verify", "some", "--config", project.config, "--jobs", jobs)
    assert result.status == 1
    lines = sorted(result.lines, key=lambda line: line["record"])
    assert [line["record"] for line in lines] == list(bad)
    for line in lines:
        assert set(line) == {"record", "path", "offset", "reason"}
        assert line["path"].endswith(f"{line['record']:06}.png")
        assert line["offset"] == 0
        assert line["reason"]
    assert "4 bad" in result.err


def test_json_is_one_document_with_the_bad_records_in_order(project):
    project.pictures("pictures", 40, bad=(30, 2))
    project.pipeline("some", DECODE)
    result = run("verify", "some", "--config", project.config, "--json")
    assert result.status == 1
    document = result.document
    assert document["records"] == 40
    assert [record["record"] for record in document["bad"]] == [2, 30]


def test_a_file_that_shrank_since_it_was_indexed_is_bad_and_the_others_are_not(project):
    project.pictures("pictures", 6)
    project.pipeline("some", DECODE)
    assert run("verify", "some", "--config", project.config).status == 0
    files = sorted((project.data / "pictures").rglob("*.png"))
    files[1].write_bytes(files[1].read_bytes()[:-20])
    os.truncate(files[4], 10)
    lines = run("verify", "some", "--config", project.config).lines
    assert sorted(line["record"] for line in lines) == [1, 4]
    assert all(line["reason"] for line in lines)


def test_damage_outside_the_part_that_epoch_0_crops_is_found(project):
    # The fused pipeline decodes what the crop needs and nothing below it; verify must not.
    project.pictures("pictures", 3)
    path = project.data / "pictures/cat/000000.png"
    whole = png(pixels(0))
    path.write_bytes(whole)
    corner = "  - decode: {in: data, out: image}\n  - random_crop: {size: 2}\n"
    project.pipeline("crop", corner)
    assert run("verify", "crop", "--config", project.config).status == 0
    broken = bytearray(whole)
    broken[-20] ^= 0xFF  # the end of the pixels
    path.write_bytes(bytes(broken))
    result = run("verify", "crop", "--config", project.config)
    assert [line["record"] for line in result.lines] == [0]


def test_a_record_that_the_graph_refuses_is_bad(project):
    project.pictures("pictures", 4)
    project.pipeline("strict", DECODE, limits="{max_pixels: 100}")
    result = run("verify", "strict", "--config", project.config)
    assert result.status == 1
    assert all("100" in line["reason"] for line in result.lines)


def test_the_progress_bar_is_drawn_on_a_terminal_and_taken_away(project):
    project.pictures("pictures", 20)
    project.pipeline("good", DECODE)
    seen = run_on_terminal("verify", "good", "--config", project.config)
    assert "\r\x1b[K" in seen and "of 20 records" in seen
    assert seen.rstrip().splitlines()[-1].endswith("all good")
    assert "\x1b" not in run("verify", "good", "--config", project.config).err


def test_an_index_is_kept_for_the_daemon_and_used_again(project):
    project.pictures("pictures", 5)
    project.pipeline("good", DECODE)
    run("verify", "good", "--config", project.config)
    saved = list((project.state / "indexes").glob("*.index"))
    assert len(saved) == 1
    before = saved[0].stat()
    run("verify", "good", "--config", project.config)
    after = saved[0].stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to give a folder away")
def test_no_index_is_written_into_a_state_folder_of_somebody_else(project):
    project.pictures("pictures", 5)
    project.pipeline("good", DECODE)
    os.chown(project.state, 65534, 65534)
    assert run("verify", "good", "--config", project.config).status == 0
    assert list(project.state.iterdir()) == []


def test_wrong_input_is_status_2_with_the_place(project):
    project.pictures("pictures", 2)
    project.pipeline("good", DECODE)
    path = project.pipeline("typo", "  - decode: {in: data, out: image}\n  - resise: {size: 8}\n")
    for arguments, words in [
        (["typo"], [f"{path}:6:", "resise", "did you mean 'resize'"]),
        (["goood"], ["unknown pipeline 'goood'", "did you mean 'good'"]),
        (["nosuch.yaml"], ["cannot open nosuch.yaml"]),
        (["good", "--jobs", "0"], ["--jobs"]),
    ]:
        result = run("verify", *arguments, "--config", project.config)
        assert result.status == 2, result
        assert result.out == ""
        for word in words:
            assert word in result.err, (word, result.err)


def test_without_a_configuration_the_message_says_how_to_name_one(project):
    path = project.pipeline("good", DECODE)
    project.pictures("pictures", 2)
    if os.path.exists("/etc/feedwater/feedwater.yaml"):
        pytest.skip("this machine has an installed configuration")
    no_daemon = environment(FEEDWATER_ADDRESS=str(project.folder))
    result = run("verify", path, env=no_daemon)
    assert result.status == 2
    assert "--config" in result.err and "FEEDWATER_CONFIG" in result.err


def test_the_configuration_may_come_from_the_environment(project):
    project.pictures("pictures", 2)
    project.pipeline("good", DECODE)
    result = run("verify", "good", env=environment(FEEDWATER_CONFIG=str(project.config)))
    assert result.status == 0, result.err


def test_errors_are_a_document_with_json(project):
    result = run("verify", "nosuch", "--config", project.config, "--json")
    assert result.status == 2
    assert "nosuch" in result.document["error"]["message"]
    assert result.err == ""
