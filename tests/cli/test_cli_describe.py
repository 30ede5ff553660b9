"""feedwater describe and validate: registries, files and a daemon, for people and for programs."""

from __future__ import annotations

import re
import textwrap

import pytest
import yaml
from command_line import environment, run, run_on_terminal
from pictures import write_folder

GRAPH = "  - decode: {in: data, out: image}\n  - resize: {size: [8, 8]}\n"
NO_DAEMON = {"FEEDWATER_ADDRESS": "/nonexistent"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["stauts"], "feedwater: unknown command 'stauts', did you mean 'status'?"),
        (["stauts", "--json"], "feedwater: unknown command 'stauts', did you mean 'status'?"),
        (["--jsn", "status"], "feedwater status: unknown option '--jsn', did you mean '--json'?"),
        (["status", "--jsn"], "feedwater status: unknown option '--jsn', did you mean '--json'?"),
        (["status", "--wach=1"], "feedwater status: unknown option '--wach', did you mean"),
        (["status", "--watch", "--intervall", "1s"], "'--intervall', did you mean '--interval'?"),
        (["\x1b[31mzzzzzzzz"], "feedwater: unknown command '\\x1b[31mzzzzzzzz'\n"),
        (["ledger", "--bach", "1"], "'--bach', did you mean '--batch'?"),
        ([], "A subcommand is required"),
        (["ledger"], "feedwater ledger needs 'job' (a running job's name"),
        (["validate"], "feedwater validate needs 'file' (the pipeline file, or several)"),
        (["completion"], "feedwater completion needs 'shell' (the shell: bash, zsh or fish)"),
        (["convert"], "(a .yaml file, or a name of the configuration) and 'out' (the folder"),
        (["preview", "x"], "feedwater preview needs '--output' (the sheet"),
        (["top"], "feedwater: unknown command 'top': it is `feedwater status --watch`"),
        (["version"], "feedwater: unknown command 'version': it is `feedwater --version`"),
    ],
)
def test_a_misspelt_command_or_option_is_told_with_its_nearest(words, told):
    done = run(*words)
    assert done.status == 2 and done.out == ""
    assert told in done.err, done.err


def test_words_that_are_no_ops_are_told_where_they_are(folder):
    told = run("describe", "op", "shuffle")
    assert told.status == 2 and "it is `sampler: {shuffle: full}`" in told.err
    assert "Known" not in told.err
    told = run("describe", "foo", env=environment(**NO_DAEMON), cwd=folder)
    assert told.err.startswith("feedwater: no op, no format and no file is called 'foo'. As a ")


def everything() -> dict:
    """Return all that describe knows."""
    return run("describe", "--json", env=environment(**NO_DAEMON)).document


def test_a_kind_alone_lists_all_of_it(project):
    names = {entry["op"] for entry in everything()["ops"]}
    assert {"decode", "resize", "mixup"} <= names
    listed = run("describe", "op")
    assert listed.status == 0
    assert names == set(re.findall(r"^  (\S+)  ", listed.out, re.M))
    formats = run("describe", "format", "--json").document
    assert {entry["format"] for entry in formats["formats"]} >= {"image_folder", "mnist"}
    assert set(formats) == {"formats"}
    pipelines = run("describe", "pipeline", env=environment(**NO_DAEMON))
    assert pipelines.status == 0 and "no daemon answers" in pipelines.out


def test_every_op_and_format_is_explained_with_all_its_parameters(project):
    known = everything()
    for kind, entries in (("op", known["ops"]), ("format", known["formats"])):
        for entry in entries:
            text = run("describe", kind, entry[kind])
            assert text.status == 0
            assert "example" in text.out
            for param in entry["params"]:
                assert f"  {param['name']}: " in text.out, (entry[kind], param)
                assert " ".join(param["doc"].split()) in " ".join(text.out.split())
            assert run("describe", kind, entry[kind], "--json").document == entry


def test_an_example_can_be_copied_as_it_is_printed(project):
    known = everything()
    for kind, entries in (("op", known["ops"]), ("format", known["formats"])):
        for entry in entries:
            printed = run("describe", kind, entry[kind]).out.rpartition("example\n")[2]
            assert all(line.startswith("  ") for line in printed.splitlines()), entry[kind]
            assert textwrap.dedent(printed) == entry["example"] + "\n"
            read = yaml.safe_load(printed)
            name = list(read[0]) if kind == "op" else [read["dataset"]["format"]]
            assert name == [entry[kind]]


def test_a_format_with_columns_explains_what_may_stand_in_fields(project):
    formats = {entry["format"]: entry for entry in everything()["formats"]}
    for name, entry in formats.items():
        takes_fields = "fields" in [param["name"] for param in entry["params"]]
        assert ("field_params" in entry) == takes_fields
        text = " ".join(run("describe", "format", name).out.split())
        assert ("a field of `fields`" in text) == takes_fields
        for key in entry.get("field_params", []):
            assert " ".join(key["doc"].split()) in text
            assert f"Example: `{key['example']}`" in text
    keys = [key["name"] for key in formats["csv"]["field_params"]]
    assert keys == ["from", "dtype", "shape", "file", "classes", "offset", "optional"]


def test_no_line_is_wider_than_100_columns_and_nothing_is_coloured_in_a_pipe(project):
    for arguments in (["describe"], ["describe", "color_jitter"], ["describe", "image_folder"]):
        text = run(*arguments, env=environment(**NO_DAEMON)).out
        assert "\x1b" not in text
        for line in text.splitlines():
            assert len(line) <= 100 or line.startswith("  - "), line


def test_help_ends_its_lines_where_the_terminal_does(project):
    for command in ((), ("bench",), ("ledger",)):
        seen = run_on_terminal(*command, "--help", columns=64)
        lines = seen.partition("Examples:")[0].replace("\r", "").splitlines()
        assert len(lines) > 10
        assert [line for line in lines if len(line) > 64 and "[default:" not in line] == []


def test_a_terminal_gets_colour_unless_told_otherwise(project):
    assert "\x1b[1m" in run_on_terminal("describe", "op", "resize")
    plain = run_on_terminal("describe", "op", "resize", env=environment(TERM="xterm", NO_COLOR="1"))
    assert "\x1b" not in plain


def test_a_file_is_described_without_a_daemon_and_with_its_data_where_a_configuration_is(project):
    project.pictures("pictures", 9)
    path = project.pipeline("small", GRAPH, batch="{size: 3}")
    bare = run("describe", path, "--json")
    assert bare.status == 0, bare.out
    assert "records" not in bare.document
    assert bare.document["batch_size"] == 3
    for arguments in (["pipeline", path], [path], ["pipeline", "small"], ["small"]):
        full = run("describe", *arguments, "--config", project.config, "--json").document
        assert full["records"] == 9
        assert full["classes"] == ["cat", "dog", "owl"]
        assert full["pipeline_digest"] == bare.document["pipeline_digest"]
        assert full["fields"] == bare.document["fields"]
    text = run("describe", path, "--config", project.config).out
    assert "9 records, 3 classes" in text and "uint8[8,8,3] HWC" in text


def test_the_daemon_and_the_file_say_the_same(project, make_daemon):
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", 9)
    path = project.pipeline("small", GRAPH, batch="{size: 3}")
    daemon.add_pipeline("small", path.read_text())
    daemon.start()
    served = run("--address", daemon.address, "describe", "pipeline", "small", "--json")
    assert served.status == 0, served.out
    local = run("describe", "pipeline", "small", "--config", daemon.config, "--json")
    assert local.document == served.document
    listed = run("--address", daemon.address, "describe", "pipeline")
    assert "  small\n" in listed.out


def test_unknown_names_are_status_2_with_the_nearest(project):
    for arguments, word in [
        (["op", "resise"], "did you mean 'resize'"),
        (["op", "unheard_of_by_anyone"], "; `feedwater describe op` lists all"),
        (["format", "image-folder"], "did you mean 'image_folder'"),
        (["ops", "resize"], "did you mean 'op'"),
        (["resise"], "did you mean 'resize'"),
        (["nosuch.yaml"], "cannot open nosuch.yaml"),
    ]:
        result = run("describe", *arguments)
        assert result.status == 2, result
        assert word in result.err


def test_the_name_of_another_library_finds_its_op():
    told = run("describe", "op", "RandomColorAdjust")
    assert told.status == 0, told.err
    first, _, page = told.out.partition("\n")
    assert first == "'RandomColorAdjust' is MindSpore's name of 'color_jitter'."
    assert page.strip().startswith("color_jitter\n") and "elsewhere: `ColorJitter`" in page
    assert run("describe", "random_color_adjust").out == told.out
    document = run("describe", "op", "RandomColorAdjust", "--json").document
    assert document["op"] == "color_jitter"
    assert {"library": "MindSpore", "name": "RandomColorAdjust", "nearest": False} in (
        document["other_names"]
    )


def test_a_name_without_counterpart_gives_the_nearest_op_and_says_so():
    told = run("describe", "op", "ShiftScaleRotate").out
    assert told.startswith("Albumentations' 'ShiftScaleRotate' has no counterpart; 'random_affine'")
    assert "\nrandom_affine\n" in told
    unheard = run("describe", "op", "RandomUnheardOf")
    assert unheard.status == 2 and "unknown op 'RandomUnheardOf'" in unheard.err


def test_a_pipeline_is_told_the_op_by_another_librarys_name(project):
    path = project.pipeline("theirs", "- decode\n- RandomColorAdjust: {brightness: 0.4}")
    result = run("validate", path)
    assert result.status == 2
    assert "'RandomColorAdjust' is MindSpore's name of 'color_jitter'" in result.err


def test_a_name_without_a_daemon_says_how_to_find_one(project):
    result = run("describe", "pipeline", "small", env=environment(**NO_DAEMON))
    assert result.status == 1
    assert "feedwaterd" in result.err


def test_validate_gives_the_types_and_with_a_configuration_the_records(project):
    project.pictures("pictures", 9)
    path = project.pipeline("small", GRAPH)
    bare = run("validate", path, "--json")
    assert bare.status == 0
    assert bare.document["valid"] is True and "records" not in bare.document
    assert bare.document["fields"][0] == {"name": "image", "dtype": "uint8", "shape": [8, 8, 3]}
    full = run("validate", path, "--config", project.config, "--json")
    assert full.document["records"] == 9
    text = run("validate", path, "--config", project.config)
    assert "valid, 9 records" in text.out and text.err == ""
    assert "not looked at" not in text.out
    (project.data / "pictures/cat/notes.txt").write_text("no image")
    told = "left out: 1 file without an image's extension (cat/notes.txt)"
    assert told in run("validate", path, "--config", project.config).out
    again = run("validate", path, "--config", project.config, "--json").document
    assert (again["records"], again["notes"]) == (9, told)
    unseen = run("validate", path)
    assert "the dataset was not looked at" in unseen.out and "--config" in unseen.out


def test_validate_warns_of_units_that_are_not_those_of_pixels(project):
    for mean, std, means in [
        ("[0.485, 0.456, 0.406]", "[0.229, 0.224, 0.225]", "mean: [123.675, 116.28, 103.53]"),
        ("[0.5]", "[0.5]", "std: [127.5]"),
        ("[123.675]", "[58.4]", None),
        ("[0]", "[1]", None),
        ("[0]", "[255]", None),
    ]:
        op = f"  - normalize: {{in: image, mean: {mean}, std: {std}}}\n"
        path = project.pipeline("units", GRAPH + op)
        result = run("validate", path)
        assert result.status == 0
        if means is None:
            assert result.err == ""
        else:
            line = path.read_text().splitlines().index(op.rstrip("\n")) + 1
            assert means in result.err and f"units.yaml:{line}:" in result.err, result.err
            assert run("validate", path, "--json").document["warnings"]


def test_validate_says_what_an_epoch_leaves_out(project):
    """Of every sampler in one line; what it always leaves out is worth a warning."""
    project.pictures("pictures", 9)
    for sampler, ranks, line, left_out, told in [
        (
            "{shuffle: none, last: drop}",
            1,
            "2 steps, 1 of 9 samples",
            1,
            "leaves out the last 1 of",
        ),
        ("{shuffle: none, last: pad}", 1, "3 steps, 0 of 9 samples", 0, ""),
        ("{shuffle: full, last: drop}", 1, "2 steps, 1 of 9 samples", 1, ""),
        ("{shuffle: full}", 2, "1 step, 1 of 9 samples", 1, ""),
        ("{shuffle: none, last: partial}", 1, "3 steps, 0 of 9 samples", 0, ""),
        ("{shuffle: block, last: drop}", 3, "0 steps, 9 of 9 samples", 9, "no full batch"),
    ]:
        path = project.pipeline("even", GRAPH, batch="{size: 4}", sampler=sampler)
        command = ("validate", path, "--config", project.config, "--world-size", ranks)
        result = run(*command)
        assert result.status == 0 and told in result.err and bool(told) == bool(result.err)
        assert f"an epoch: {line} left out\n" in result.out
        document = run(*command, "--json").document
        assert document["left_out"] == left_out
        assert document["steps_per_epoch"] == int(line.split()[0])
    assert "an epoch:" not in run("validate", path).out, "without its data nobody knows"
    assert "left_out" not in run("validate", path, "--json").document


def test_validate_warns_of_ranks_whose_last_batch_is_empty(project):
    project.pictures("pictures", 9)
    for last, ranks, told in [
        ("partial", 2, "rank 1 of 2 gets an empty last batch"),  # one sample for two ranks
        ("partial", 3, ""),  # three for each
        ("partial", 8, ""),  # fewer than one batch, one for each at least
        ("partial", 16, "ranks 9 to 15 of 16 get an empty last batch"),
        ("pad", 2, ""),
    ]:
        sampler = f"{{shuffle: none, last: {last}}}"
        path = project.pipeline("even", GRAPH, batch="{size: 4}", sampler=sampler)
        result = run("validate", path, "--config", project.config, "--world-size", ranks)
        assert result.status == 0 and told in result.err and bool(told) == bool(result.err)
        assert not told or ("last: pad" in result.err and "is_real" in result.err)


def test_validate_refuses_a_batch_that_no_slot_can_hold(project):
    project.pictures("pictures", 9)
    path = project.pipeline("small", GRAPH, batch="{size: 1000}", sampler="{last: pad}")
    config = project.config.with_name("small-slots.yaml")
    config.write_text(project.config.read_text() + "limits: {max_slot: 64KiB}\n")
    assert run("validate", path, "--config", project.config).status == 0
    result = run("validate", path, "--config", config)
    assert result.status != 0
    assert "over the limit of 64.0 KiB" in result.err


def test_validate_warns_of_batches_that_no_epoch_can_fill(project):
    project.pictures("pictures", 9)
    for size, last, ranks, warned in [
        (9, "drop", 1, False), (10, "drop", 1, True), (5, "drop", 2, True), (4, "drop", 2, False),
        (10, "pad", 1, False), (10, "partial", 4, False),
    ]:  # fmt: skip
        path = project.pipeline(
            "few", GRAPH, batch=f"{{size: {size}}}", sampler=f"{{shuffle: full, last: {last}}}"
        )
        command = ("validate", path, "--config", project.config, "--world-size", ranks)
        document = run(*command, "--json")
        assert document.status == 0, document.err
        assert len(document.document["warnings"]) == warned, (size, last, ranks)
        text = run(*command)
        assert (text.status, bool(text.err)) == (0, warned)
        if warned:
            for words in (f"batch.size {size} x {ranks} rank", "9 records", "last: pad"):
                assert words in text.err
    assert run("validate", path, "--json").document["warnings"] == []


@pytest.mark.parametrize(("graph", "words"), [
    ("  - resise: {size: 8}\n", [":5:5:", "'resise'", "did you mean 'resize'"]),
    ("  - decode: {in: dota, out: image}\n", [":5:18:", "'dota'", "did you mean 'data'"]),
    ("  - decode: {in: data, out: image}\n", ["no fixed size", "resize"]),
    ("  - decode: {in: data\n", [":5:13:", "'{' is never closed"]),
    ("  - resize: {size: [8, 8]}\n", ["unknown field 'image'", "`decode: {in: data, out: image}`"]),
])  # fmt: skip
def test_validate_names_the_place_of_a_mistake(project, graph, words):
    path = project.pipeline("wrong", graph)
    result = run("validate", path)
    assert (result.status, result.out) == (2, "")
    assert str(path) in result.err
    for word in words:
        assert word in result.err, (word, result.err)
    document = run("validate", path, "--json")
    assert document.status == 2
    assert document.document["error"]["code"] == "INVALID_ARGUMENT"
