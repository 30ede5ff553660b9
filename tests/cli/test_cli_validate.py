"""`feedwater validate` of several files: each is told, one that is wrong ends nothing."""

from __future__ import annotations

from command_line import run

GOOD = "version: 1\ndataset: {format: cifar10, root: r}\noutputs: [label]\n"


def test_each_of_several_files_is_told(tmp_path):
    names = {"one.yaml": GOOD, "wrong.yaml": GOOD + "nosuchkey: 1\n", "two.yaml": GOOD}
    files = [tmp_path / name for name in names]
    for file, text in zip(files, names.values()):
        file.write_text(text)
    told = run("validate", *files)
    assert told.status == 2
    assert f"{files[0]}: valid" in told.out and f"{files[2]}: valid" in told.out
    assert f"{files[1]}:4:1" in told.err and "nosuchkey" in told.err
    asked = run("validate", "--json", *files)
    assert asked.status == 2
    assert [one["valid"] for one in asked.document] == [True, False, True]
    assert [one["file"] for one in asked.document] == list(map(str, files))
    assert "nosuchkey" in asked.document[1]["error"]
    assert run("validate", files[0], files[2]).status == 0
