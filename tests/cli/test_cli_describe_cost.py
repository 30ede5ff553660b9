"""feedwater describe --cost: where the microseconds of a sample go, and what to change."""

from __future__ import annotations

import re

import pytest
from command_line import run, run_on_terminal

TRAIN = (
    "  - decode: {in: data, out: image}\n"
    "  - random_resized_crop: {size: [64, 64]}\n"
    "  - color_jitter: {brightness: 0.4, hue: 0.1}\n"
    "  - normalize: {mean: [1, 2, 3], std: [1, 1, 1]}\n"
)
FIXED = (
    "  - decode: {in: data, out: image}\n  - resize: {size: [8, 8]}\n  - cast: {dtype: float32}\n"
)


def cost_of(project, name: str, *options) -> dict:
    """Return what was measured."""
    done = run("describe", name, "--config", project.config, "--cost", "--json", "--samples", 6,
               *options)  # fmt: skip
    assert done.status == 0, done.out
    assert done.document["pipeline"] == name
    return done.document["cost"]


def test_the_steps_add_up_to_the_sample_and_have_every_op_once(project):
    project.pictures("pictures", 8)
    project.pipeline("train", TRAIN)
    cost = cost_of(project, "train")
    assert set(cost) == {
        "us", "spread", "records", "bad_records", "rounds", "method", "steps", "changes",
        "not_left_out", "advice",
    }  # fmt: skip
    assert cost["records"] == 6 and cost["bad_records"] == 0
    assert cost["us"] > 0
    assert sum(step["us"] for step in cost["steps"]) == pytest.approx(cost["us"])
    assert sum(step["share"] for step in cost["steps"]) == pytest.approx(1)
    assert [step["kind"] for step in cost["steps"]] == ["read", "pass", "copy"]
    passed = cost["steps"][1]
    assert passed["ops"] == ["decode", "random_resized_crop", "color_jitter", "normalize"]
    assert passed["places"] == [0, 1, 2, 3]
    assert passed["bytes"] == 3 * 64 * 64 * 4
    assert "float32[3,64,64]" in passed["writes"]


def test_ops_are_left_out_one_by_one_but_for_those_that_the_rest_needs(project):
    project.pictures("pictures", 8)
    project.pipeline("train", TRAIN)
    cost = cost_of(project, "train")
    without = {change["op"] for change in cost["changes"] if change["kind"] == "without_op"}
    assert without == {"color_jitter", "normalize"}
    assert set(cost["not_left_out"]) == {"decode", "random_resized_crop"}
    for change in cost["changes"]:
        assert change["us"] + change["saved_us"] == pytest.approx(cost["us"])
        assert change["times_as_fast"] == pytest.approx(cost["us"] / change["us"])
    saved = [change["saved_us"] for change in cost["changes"]]
    assert saved == sorted(saved, reverse=True)


def test_the_advice_has_measured_changes_only(project):
    project.pictures("pictures", 8)
    project.pipeline("train", TRAIN)
    cost = cost_of(project, "train")
    first, *more = cost["advice"]
    assert first.startswith("change first: ")
    clear = [change["text"] for change in cost["changes"] if change["clear"]]
    assert set(more) <= set(clear)
    tried = {change["kind"] for change in cost["changes"]}
    assert tried <= {"without_op", "without_parameter", "fast_scale", "decoded_cache",
                     "coefficient_cache"}  # fmt: skip


def test_a_cache_is_tried_with_what_it_would_keep(project):
    project.pictures("pictures", 8)
    project.pipeline("fixed", FIXED)
    changes = cost_of(project, "fixed")["changes"]
    (cache,) = [change for change in changes if change["kind"] == "decoded_cache"]
    assert cache["kept_bytes"] == 8 * 8 * 3 + 8, "the pixels and the label"
    assert cache["parameter"] == "decode+resize"
    assert "`cache: {kind: decoded}`" in cache["text"]


def test_a_cache_that_is_in_force_is_no_advice(project):
    project.pictures("pictures", 8)
    path = project.pipeline("kept", FIXED, cache="{kind: decoded}")
    cost = cost_of(project, "kept")
    (cache,) = [change for change in cost["changes"] if change["kind"] == "decoded_cache"]
    assert cache["in_force"] and cache["text"].startswith("in force already: `cache: {kind: dec")
    assert not [line for line in cost["advice"] if "`cache: {kind: decoded}`" in line]
    if cache["clear"]:
        told = run("describe", "kept", "--config", project.config, "--cost").out
        table, _, advice = told.partition("what to change")
        assert "in force already" in table and "in force" not in advice
    path.write_text(path.read_text().replace("{kind: decoded}", "{kind: none}"))
    cost = cost_of(project, "kept")
    (cache,) = [change for change in cost["changes"] if change["kind"] == "decoded_cache"]
    assert not cache["in_force"] and cache["text"].startswith("`cache: {kind: decoded}`")
    assert cache["clear"] == (cache["text"] in cost["advice"])


def test_a_cache_of_large_fields_is_tried_with_fewer_records(project):
    """A thousand prefixes of 32 MiB would be 32 GiB; all of them together are at most 256 MiB."""
    project.pictures("pictures", 12)
    side = 3000
    graph = f"  - decode: {{in: data, out: image}}\n  - resize: {{size: [{side}, {side}]}}\n"
    project.pipeline("large", graph + "  - random_crop: {size: [8, 8]}\n")
    done = run("describe", "large", "--config", project.config, "--cost", "--json", "--samples", 12)
    assert done.status == 0, done.out
    cost = done.document["cost"]
    assert cost["records"] == 12
    (cache,) = [change for change in cost["changes"] if change["kind"] == "decoded_cache"]
    assert cache["kept_bytes"] == side * side * 3 + 8
    assert 1 <= cache["records"] <= (256 << 20) // cache["kept_bytes"] == 9
    assert f"measured with {cache['records']} record" in cache["text"]


def test_batch_ops_have_a_row_of_their_own(project):
    project.pictures("pictures", 8)
    batch = "{size: 4, graph: [{mixup: {in: [image, label], alpha: 1.0, num_classes: 3}}]}"
    project.pipeline("mixed", TRAIN, batch=batch)
    cost = cost_of(project, "mixed")
    assert [step["kind"] for step in cost["steps"]] == ["read", "pass", "copy", "batch"]
    assert cost["steps"][3]["ops"] == ["mixup"]


def test_bad_records_are_left_out_and_counted(project):
    project.pictures("pictures", 6, bad=(2,))
    project.pipeline("fixed", FIXED)
    cost = cost_of(project, "fixed")
    assert (cost["records"], cost["bad_records"]) == (5, 1)
    project.pictures("pictures", 6, bad=(0, 1, 2, 3, 4, 5))
    done = run("describe", "fixed", "--config", project.config, "--cost")
    assert done.status != 0
    assert "no sample could be made to measure" in done.err


def test_the_table_says_how_it_was_measured(project):
    project.pictures("pictures", 8)
    path = project.pipeline("train", TRAIN)
    done = run("describe", "pipeline", path, "--config", project.config, "--cost")
    assert done.status == 0, done.err
    for words in ("cost of one sample", "us of one CPU", "8 records", "read and parse",
                  "decode + random_resized_crop + color_jitter + normalize",
                  "without color_jitter: ",
                  "Cannot be left out, since what follows needs them", "medians of the rounds",
                  "what to change", "change first: "):  # fmt: skip
        assert words in " ".join(done.out.split()), words


def test_no_line_of_a_long_pipeline_is_wider_than_the_terminal(project):
    project.pictures("pictures", 4)
    colours = "  - random_photometric_distort\n  - random_channel_permutation\n" * 2
    path = project.pipeline("long", TRAIN.replace("  - normalize", f"{colours}  - normalize"))
    for more in ([], ["--cost", "--samples", 2]):
        seen = run_on_terminal(
            "describe", "pipeline", path, "--config", project.config, *more, columns=80
        )
        plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", seen)
        lines = plain[plain.index("cost of one sample" if more else "outputs, one") :].splitlines()
        assert max(map(len, lines)) <= 80, "\n".join(lines)
    step = next(number for number, line in enumerate(lines) if " decode + random" in line)
    indent = " " * (lines[step].index("decode") + 2)
    assert lines[step + 1].startswith(indent) and lines[step + 1][len(indent)] != " "


def test_images_that_other_processes_decode_are_not_measured(project):
    project.pictures("pictures", 4)
    project.pipeline("train", TRAIN)
    project.config.write_text(project.config.read_text() + "isolation: process\n")
    done = run("describe", "train", "--config", project.config, "--cost")
    assert done.status == 1
    assert "isolation: none" in done.err


def test_wrong_usage_is_status_2(project):
    project.pictures("pictures", 2)
    project.pipeline("train", TRAIN)
    for arguments, words in [
        (["op", "resize", "--cost"], "--cost goes with `describe PIPELINE`"),
        (["--cost"], "--cost goes with `describe PIPELINE`"),
        (["train", "--samples", "4"], "--cost"),
        (["train", "--cost", "--samples", "0"], "--samples"),
        (["nosuch", "--cost"], "unknown pipeline 'nosuch'"),
    ]:
        done = run("describe", *arguments, "--config", project.config)
        assert done.status == 2, (arguments, done)
        assert words in done.err, (words, done.err)
