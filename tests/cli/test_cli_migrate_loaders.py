"""feedwater migrate: what becomes of datasets, transforms, samplers and loaders."""

from __future__ import annotations

import json
import re
import sys

import pytest
import yaml
from migration import DATA, beside, head, migrate, translated, write


def test_paths_become_a_root_and_a_path_below_it(project):
    """An absolute folder is the root itself, so that a private daemon serves it."""
    transform = "transforms.ToTensor()"
    cases = {
        "'/data/photos/train'": ("photos", "/data/photos", "train"),
        "'/data/./photos//train/'": ("photos", "/data/photos", "train"),
        "'../photos'": ("photos", "../photos", None),
        "'./photos'": ("photos", "./photos", None),
        "os.path.join('/data', 'photos', 'val')": ("data", "/data", "photos/val"),
        "Path('/data') / 'photos'": ("data", "/data", "photos"),
        "f'{HERE}/train'": ("my-set", "/mnt/my set", "train"),
        "f'{args.data}/train'": ("data", "<args.data>", "train"),
        "f'{args.data!r}/train'": ("data", "<f'{args.data!r}/train'>", None),
        "HERE + '/train'": ("my-set", "/mnt/my set", "train"),
        "os.path.join(args.data, '../x')": ("data", "<os.path.join(args.data, '../x')>", None),
        "args.data": ("data", "<args.data>", None),
        "options.folder": ("folder", "/mnt/default", None),
        "options.no_folder": ("no_folder", "<options.no_folder>", None),
        "options.number": ("number", "<options.number>", None),
    }
    for expression, (name, folder, path) in cases.items():
        body = (
            "import argparse\nimport os\nfrom pathlib import Path\nHERE = '/mnt/my set'\n"
            "parser = argparse.ArgumentParser()\n"
            "parser.add_argument('--folder', default='/mnt/default')\n"
            "parser.add_argument('--no-folder', default=None)\n"
            "parser.add_argument('--number', default=3)\n"
            "options = parser.parse_args()\n"
            f"loader = DataLoader(datasets.ImageFolder({expression}, {transform}))\n"
        )
        found = translated(project, body)
        is_absolute = folder.startswith("/")
        assert found["dataset"]["root"] == (folder if is_absolute else name), expression
        assert found["dataset"].get("path") == path, expression
        (text,) = found["notes"]["files"].values()
        about = text.splitlines()[1]
        assert f"roots: {{{name}: {json.dumps(folder)}}}" in about, expression
        assert ("With a shared daemon" if is_absolute else "or write the folder's") in about
        notes = [note["text"] for note in found["notes"]["notes"]]
        assert ["Next: write its absolute path" in note for note in notes] == (
            [] if is_absolute and name != "folder" else [not is_absolute]
        ), notes


UNTRANSLATED = {
    "an order that only running tells": (
        "loader = DataLoader(data, shuffle=flag())", "the order depends on flag(), which only"
    ),
    "an own sampler": ("loader = DataLoader(data, sampler=Mine())", "the order depends on Mine()"),
    "samplers that disagree": (
        "s = torch.utils.data.SequentialSampler(data)\nif flag:\n"
        "    s = torch.utils.data.RandomSampler(data)\nloader = DataLoader(data, sampler=s)",
        "the order depends on s",
    ),
    "collation in Python": ("loader = DataLoader(data, collate_fn=mine)", "(collate_fn=mine"),
    "batches in Python": ("loader = DataLoader(data, batch_sampler=b)", "`sampler:` and `batch:`"),
    "an argument of the function": ("def f(d):\n    return DataLoader(d)", "over d: not known to"),
    "options that only running tells": ("loader = DataLoader(data, **options())", "**options()"),
    "arguments of no DataLoader": ("loader = DataLoader(data, order=1)", "DataLoader(order=1): n"),
    "arguments of no sampler": (
        "s = torch.utils.data.RandomSampler(data, order=1)\nloader = DataLoader(data, sampler=s)",
        "the order depends on torch.utils.data.RandomSampler(data, order=1)"
    ),
    "no dataset": ("loader = DataLoader()", "a DataLoader without a dataset"),
    "a subset": ("loader = DataLoader(torch.utils.data.Subset(data, [1]))", "a part of a dataset"),
    "another dataset": ("loader = DataLoader(datasets.CelebA('/d'))", "CelebA: no format reads it"),
    "a size of the command line": (
        "loader = DataLoader(datasets.ImageFolder('/d', transforms.Resize(size())))",
        "transforms.Resize(size()): size() is not a literal",
    ),
    "a folder above a link": (
        "loader = DataLoader(datasets.ImageFolder('/d/link/../x', transforms.ToTensor()))",
        "'/d/link/../x'): where a link stands before `..`, it leads elsewhere",
    ),
    "a folder above a link, as seen from here": (
        "loader = DataLoader(datasets.MNIST('link/..', transform=transforms.ToTensor()))",
        "'link/..'): where a link stands before `..`, it leads elsewhere",
    ),
    "too few arguments": (
        "loader = DataLoader(datasets.ImageFolder('/d', transforms.Resize()))", "is missing"
    ),
    "arguments of another kind": (
        "loader = DataLoader(datasets.ImageFolder('/d', transforms.Normalize('a', None)))",
        "transforms.Normalize('a', None): ",
    ),
    "an own transform": (
        "loader = DataLoader(datasets.ImageFolder('/d', Mine()))", "Mine(): a class or function of"
    ),
    "a transform of branches": (
        "t = transforms.ToTensor()\nif flag:\n    t = None\n"
        "loader = DataLoader(datasets.ImageFolder('/d', t))", "t: it is not known before the script"
    ),
    "a transform that a condition chooses": (
        "loader = DataLoader(datasets.ImageFolder('/d', a() if flag else b()))", "not known before"
    ),
    "a function as transform": (
        "def grey(i):\n    return i\nloader = DataLoader(datasets.ImageFolder('/d', grey))",
        "grey: a class or function of the program's own"
    ),
    "a Compose that is changed": (
        "t = transforms.Compose([transforms.ToTensor()])\nt.transforms.insert(0, Mine())\n"
        "loader = DataLoader(datasets.ImageFolder('/d', t))", "Mine()): t may be changed here"
    ),
    "a dataset that is changed": (
        "data.samples = data.samples[:9]\nloader = DataLoader(data)", "]: data may be changed here"
    ),
    "an option that the script sets": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--size', default=8)\n"
        "args = p.parse_args()\nargs.size = 9\n"
        "loader = DataLoader(datasets.ImageFolder('/d', transforms.CenterCrop(args.size)))",
        "args.size is not a literal"
    ),
    "a dict that is emptied": (
        "k = {'batch_size': 2}\nk.pop('batch_size')\nloader = DataLoader(data, **k)", "k.pop("
    ),
    "no loader": ("print(1)", "no torch.utils.data.DataLoader is in it"),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "message"), UNTRANSLATED.values(), ids=UNTRANSLATED)
def test_what_cannot_be_translated_is_told_with_its_line(project, lines, message):
    data = "data = datasets.ImageFolder('/d/x', transforms.ToTensor())\n"
    path = write(project.folder, head(data + lines + "\n"))
    done = migrate(path.name, cwd=project.folder)
    assert (done.status, done.err) == (1, "")
    _, _, told = done.out.partition("=== not translated\n")
    assert message in told and re.match(r"train\.py:\d+: ", told)


JITTER, BLUR = "transforms.ColorJitter(0.4)", "transforms.GaussianBlur(3)"
TO_TENSOR = "transforms.ToTensor()"
FLIPS = "transforms.Compose([transforms.RandomHorizontalFlip(), transforms.RandomVerticalFlip()])"
BY_CHANCE = {
    "one op": (f"RandomApply([{JITTER}], p=0.8)", {"color_jitter": {"brightness": 0.4, "p": 0.8}}),
    "a list of modules": (
        f"RandomApply(torch.nn.ModuleList([{JITTER}]), 0.8)",
        {"color_jitter": {"brightness": 0.4, "p": 0.8}},
    ),
    "several ops": (
        f"RandomApply(transforms=[{JITTER}, transforms.RandomApply([{BLUR}])])",
        {"apply": {"p": 0.5, "ops": [{"color_jitter": {"brightness": 0.4}},
                           {"gaussian_blur": {"kernel_size": 3, "p": 0.5}}]}},
    ),
    "a choice": (
        f"RandomChoice([{JITTER}, {FLIPS}], p=[1, 3])",
        {"one_of": {"weights": [1.0, 3.0], "ops": [
            {"color_jitter": {"brightness": 0.4}},
            {"apply": {"p": 1.0, "ops": ["random_horizontal_flip", "random_vertical_flip"]}}]}},
    ),
    "an order": (
        f"RandomOrder([{JITTER}, {BLUR}])",
        {"some_of": {"n": 2, "order": "random", "ops": [
            {"color_jitter": {"brightness": 0.4}}, {"gaussian_blur": {"kernel_size": 3}}]}},
    ),
}  # fmt: skip


def over(*steps: str) -> str:
    """A loader over a Compose."""
    made = f"transforms.Compose([{', '.join(steps)}])"
    return f"loader = DataLoader(datasets.ImageFolder('/d/x', {made}))\n"


@pytest.mark.parametrize(("step", "expected"), BY_CHANCE.values(), ids=BY_CHANCE)
def test_what_does_others_by_chance_becomes_the_op_that_does(project, step, expected):
    found = translated(project, over(f"transforms.{step}"))
    assert found["graph"] == ["decode", expected] and not found["notes"]["untranslated"]


def test_lists_that_are_repeated_are_values(project):
    found = translated(project, over(TO_TENSOR, "transforms.Normalize([0.5] * 3, 3 * (0.25,))"))
    assert found["graph"][1:] == [{"normalize": {"mean": [127.5] * 3, "std": [63.75] * 3}}]
    assert not found["notes"]["untranslated"]


INCOMPLETE = {
    "an own transform": ("Mine()", "feedwater.serve_op(NAME, function), and put `python: {name:"),
    "a range": ("transforms.Normalize(mean(), std())", "mean() is not a literal"),
    "a list of things": ("transforms.Normalize([0.5] * n(), 1)", "n() is not a literal"),
    "a list without end": ("transforms.Normalize([0.5] * 9000000000, 1)", " * 9000000000 is not"),
    "an own one by chance": (
        f"transforms.RandomApply([{FLIPS}, Mine()])", "its transform 2, Mine(): a class or function"
    ),
    "one by chance in a Compose": (
        f"transforms.RandomOrder([{FLIPS}, transforms.Compose([{FLIPS}, f])])", "transform 2.3, f: "
    ),
    "some by chance": ("transforms.RandomApply(several())", "its transforms are not known before"),
    "none by chance": ("transforms.RandomApply(p=0.5)", "an argument is missing"),
    "a chance over one": (f"transforms.RandomApply([{FLIPS}], p=2)", "feedwater.ops.apply: p is 2"),
    "circles by chance": ("circle", "it is nested too deeply"),
    "many in circles": ("circles", "circles: no op does"),
}  # fmt: skip


@pytest.mark.parametrize(("step", "message"), INCOMPLETE.values(), ids=INCOMPLETE)
def test_a_pipeline_that_lacks_a_transform_is_a_draft(project, step, message):
    """The file says so where the op would be, and the DataLoader stays."""
    circles = (
        "circle = transforms.RandomApply([circle])\n"
        "circles = transforms.Compose([circles, circles])\n"
    )
    body = circles + over(TO_TENSOR, step) + over("transforms.CenterCrop(8)").replace("l", "vl", 1)
    done = migrate(write(project.folder, head(body)), "--json").document
    text = done["files"]["train.yaml"]
    assert text.splitlines()[2].startswith("# Incomplete: ")
    assert f"# line {6 if step == 'circles' else 7}: {step[:40]}" in text
    assert any(message in told["text"] for told in done["untranslated"])
    assert any(
        "the DataLoader stays, as train.yaml" in told["text"] for told in done["untranslated"]
    )
    removed = [line for line in done["diff"].splitlines()[2:] if line[0] == "-"]
    assert len(removed) == 1 and removed[0].startswith("-vloader = ")
    assert "Incomplete" not in done["files"]["v.yaml"]


# Arguments that make other samples than a pipeline would.
OTHER_SAMPLES = {
    "labels": ("ImageFolder('/d/x', target_transform=lambda y: y + 1)", "`python: {name: NAME, in"),
    "labels of a function": ("ImageFolder('/d/x', None, int)", "ImageFolder(target_transform=int)"),
    "labels of MNIST": ("MNIST('/d', target_transform=int)", "MNIST(target_transform=int)"),
    "pictures": ("ImageFolder('/d/x', loader=mine)", "loader=mine): the format reads"),
    "files": ("ImageFolder('/d/x', is_valid_file=mine)", "is_valid_file=mine): the format takes"),
    "empty classes": ("ImageFolder('/d/x', allow_empty=True)", "refuses a class folder"),
    "of another version": ("ImageFolder('/d/x', order='mine')", "order='mine'): not known"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "message"), OTHER_SAMPLES.values(), ids=OTHER_SAMPLES)
def test_a_loader_whose_samples_would_be_others_stays(project, data, message):
    body = f"data = datasets.{data}\nloader = DataLoader(data, batch_size=8)\n"
    done = migrate(write(project.folder, head(body)), "--json")
    assert done.status == 1 and done.document["files"] == {} and done.document["diff"] == ""
    (told,) = done.document["untranslated"]
    assert message in told["text"] and told["text"].endswith(" DataLoader stays")


@pytest.mark.parametrize(
    ("data", "more"),
    [
        ("ImageFolder('/d/x', target_transform=none, loader=None, allow_empty=False)", ""),
        ("MNIST('/d', download=True)", ", timeout=9, worker_init_fn=seeded, generator=g"),
    ],
)
def test_arguments_that_change_no_sample_are_left_out(project, data, more):
    body = (
        "def seeded(worker):\n    random.seed(worker)\n"
        f"none = None\ndata = datasets.{data}\nloader = DataLoader(data{more})\n"
    )
    done = migrate(write(project.folder, head(body)), "--json")
    assert done.status == 0, done.document["untranslated"]
    assert f"+loader = feedwater.Loader({beside('train.yaml')})" in done.document["diff"]


def test_two_folders_of_one_name_are_two_roots(project):
    body = "".join(
        f"{name}_loader = DataLoader(datasets.ImageFolder({folder}, transforms.ToTensor()))\n"
        for name, folder in {
            "a": "'/old/photos/train'", "b": "'/new/photos/train'", "c": "'/old/photos/val'",
            "d": "photos",
        }.items()
    )  # fmt: skip
    files = migrate(write(project.folder, head(body)), "--json").document["files"]
    found = {name: yaml.safe_load(text)["dataset"]["root"] for name, text in files.items()}
    assert found == {
        "a.yaml": "/old/photos", "b.yaml": "/new/photos", "c.yaml": "/old/photos",
        "d.yaml": "photos-3",
    }  # fmt: skip
    assert 'roots: {photos-2: "/new/photos"}' in files["b.yaml"].splitlines()[1]


def test_loaders_over_one_name_of_several_datasets_open_their_own_files(project):
    body = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--c100')\n"
        "c100 = p.parse_args().c100\n"
        "t = transforms.ToTensor()\nds_pipeline_2 = 0\n"
        "if c100:\n    ds = datasets.CIFAR100('/d', transform=t)\n"
        "else:\n    ds = datasets.CIFAR10('/d', transform=t)\n"
        "train_loader = DataLoader(ds, shuffle=True)\nval_loader = DataLoader(ds)\n"
    )
    for more in ("", "print(ds.classes)\n"):  # where nothing else uses ds, the last one takes it
        done = migrate(write(project.folder, head(body + more)), "--json").document
        added = "\n".join(
            line[1:] for line in done["diff"].splitlines() if re.match(r"\+ |\+\w", line)
        )
        opened = dict(re.findall(r"(\w+)_loader = feedwater.Loader\((\w+)", added))
        assert set(opened) == {"train", "val"} and opened["train"] != opened["val"]
        assert "ds_pipeline_2" not in opened.values()
        for loader, name in opened.items():
            files = re.findall(rf'^ *{name} = os\.path\.join.*, "(.*)"\)$', added, re.MULTILINE)
            assert files == [f"{loader}-cifar100.yaml", f"{loader}-cifar10.yaml"], (name, added)


def test_a_download_that_is_left_out_is_told(project):
    for value, count in (("True", 1), ("args.download", 1), ("False", 0)):
        body = (
            "loader = DataLoader(datasets.MNIST('/d', transform=transforms.ToTensor(), "
            f"download={value}))\n"
        )
        done = migrate(write(project.folder, head(body)), "--json").document
        texts = [note["text"] for note in done["notes"] if "downloads nothing" in note["text"]]
        assert len(texts) == count and all(f"download={value}" in text for text in texts)


@pytest.mark.parametrize("size", ["None", "size"])
def test_a_loader_without_batches_is_refused(project, size):
    body = f"size = None\n{DATA}\nloader = DataLoader(data, batch_size={size})\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    assert done["diff"] == "" and "one by one" in done["untranslated"][0]["text"]


def test_what_older_versions_do_not_antialias_is_told(project):
    body = "loader = DataLoader(datasets.ImageFolder('/d/x', transforms.Compose([{}])))\n"
    tensor = "transforms.PILToTensor(), "
    for steps, count in (
        (f"{tensor}transforms.Resize(9)", 1),
        (f"{tensor}transforms.RandomResizedCrop(9)", 1),
        (f"{tensor}transforms.Resize(9, antialias=True)", 0),
        ("transforms.Resize(9), transforms.PILToTensor()", 0),
    ):
        notes = translated(project, body.format(steps))["notes"]["notes"]
        assert len(notes) == count and all("0.17" in note["text"] for note in notes), steps


CONDITIONAL = {
    "both branches": ("", "if x:\n    k['shuffle'] = True\nelse:\n    k['shuffle'] = False\n"),
    "one branch and before": ("'shuffle': False", "if x:\n    k['shuffle'] = True\n"),
    "an update": ("'drop_last': False", "if x:\n    k.update({'drop_last': True})\n"),
    "behind `and`": ("'shuffle': False", "x and k.update({'shuffle': True})\n"),
    "a condition in a line": ("'shuffle': False", "k.update({'shuffle': True}) if x else None\n"),
    "a comprehension": ("'shuffle': False", "[k.update({'shuffle': True}) for _ in x]\n"),
    "a pattern": ("'shuffle': False", "match x:\n    case 1:\n        k['shuffle'] = True\n"),
    "what may end before it": (
        "'shuffle': False",
        "import contextlib\nwith contextlib.suppress(Exception):\n    k['shuffle'] = run()\n",
    ),
    "a body that may have failed": (
        "'shuffle': False",
        "try:\n    run()\n    k['shuffle'] = True\nfinally:\n    ",
    ),
}


@pytest.mark.parametrize(("first", "lines"), CONDITIONAL.values(), ids=CONDITIONAL)
def test_an_argument_that_a_condition_decides_is_not_known(project, first, lines):
    if "match" in lines and sys.version_info < (3, 10):
        pytest.skip("Python 3.9 has no match")
    body = f"{DATA}\nk = {{{first}}}\n{lines}loader = DataLoader(data, **k)\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    assert done["diff"] == "" and done["files"] == {} and not done["notes"]
    assert "only running it tells; the DataLoader of line" in done["untranslated"][0]["text"]


def test_an_argument_that_is_one_whatever_the_condition_is_taken(project):
    for lines, count in {
        "if x:\n    k['shuffle'] = True\n": 1,
        "if x:\n    k['shuffle'] = True\nelse:\n    k['shuffle'] = True\n": 1,
        "k['shuffle'] = True\nif x:\n    k['shuffle'] = True\n": 0,
        "if x:\n    k['shuffle'] = False\nk['shuffle'] = True\n": 0,
    }.items():
        body = f"{DATA}\nk = {{'batch_size': 4}}\n{lines}loader = DataLoader(data, **k)\n"
        found = translated(project, body)
        assert found["sampler"]["shuffle"] == "full" and not found["notes"]["untranslated"], lines
        notes = [n for n in found["notes"]["notes"] if "only under a condition" in n["text"]]
        assert len(notes) == count, lines


# Where a dict is changed for one loader, and not for another: {} are the two loaders.
BRANCHES = {
    "if": "if x:\n    k['shuffle'] = True\n    {}\nelse:\n    {}\n",
    "elif": "if x:\n    k['shuffle'] = True\n    {}\nelif y:\n    {}\n",
    "return": (
        "def get():\n    k = {{'batch_size': 4}}\n    if x:\n        k['shuffle'] = True\n"
        "        {}\n        return train\n    {}\n    return test\n"
    ),
    "match": (
        "match x:\n    case 1:\n        k['shuffle'] = True\n        {}\n    case 2:\n        {}\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("lines", BRANCHES.values(), ids=BRANCHES)
def test_what_a_branch_does_to_a_dict_is_nothing_to_the_loader_of_another(project, lines):
    if "match" in lines and sys.version_info < (3, 10):
        pytest.skip("Python 3.9 has no match")
    made = lines.format("train = DataLoader(data, **k)", "test = DataLoader(data, **k)")
    done = migrate(
        write(project.folder, head(f"{DATA}\nk = {{'batch_size': 4}}\n{made}")), "--json"
    ).document
    shuffled = {name: "shuffle: full" in text for name, text in done["files"].items()}
    assert shuffled == {"train.yaml": True, "test.yaml": False}, done
    assert not done["untranslated"]


def test_what_a_branch_does_to_a_dict_in_a_loop_may_be_done_before_another(project):
    made = BRANCHES["if"].format("train = DataLoader(data, **k)", "test = DataLoader(data, **k)")
    body = f"{DATA}\nk = {{'batch_size': 4}}\nfor x in y:\n"
    body += "".join(f"    {line}\n" for line in made.splitlines())
    done = migrate(write(project.folder, head(body)), "--json").document
    assert list(done["files"]) == ["train.yaml"]
    assert "k may be changed here" in done["untranslated"][0]["text"]


# A branch that ends otherwise than by leaving the loader's path: the loader behind gets its change.
ENDS = {
    "break": "for word in words:\n    if x:\n        k['shuffle'] = True\n        break\n",
    "continue": "for word in words:\n    if x:\n        k['shuffle'] = True\n        continue\n",
    "break of while": (
        "while True:\n    if x:\n        k['shuffle'] = True\n        break\n    if check():\n"
        "        break\n"
    ),
    "break of a loop around": (
        "for _ in words:\n    for _ in words:\n        pass\n    else:\n        if x:\n"
        "            k['shuffle'] = True\n            break\n"
    ),
    "raise that is caught": (
        "try:\n    if x:\n        k['shuffle'] = True\n        raise KeyError\n"
        "except KeyError:\n    pass\n"
    ),
    "raise that is suppressed": (
        "import contextlib\nwith contextlib.suppress(KeyError):\n    if x:\n"
        "        k['shuffle'] = True\n        raise KeyError\n"
    ),
    "raise before a handler with the loader": (
        "try:\n    if x:\n        k['shuffle'] = True\n        raise KeyError\n"
        "except KeyError:\n    "
    ),
    "raise before a last part with the loader": (
        "try:\n    if x:\n        k['shuffle'] = True\n        raise KeyError\nfinally:\n    "
    ),
}  # fmt: skip


@pytest.mark.parametrize("lines", ENDS.values(), ids=ENDS)
def test_what_a_branch_does_to_a_dict_before_it_ends_counts_behind_it(project, lines):
    body = f"{DATA}\nk = {{'shuffle': False}}\n{lines}loader = DataLoader(data, **k)\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    assert done["diff"] == "" and done["files"] == {} and not done["notes"]
    assert "only running it tells; the DataLoader of line" in done["untranslated"][0]["text"]
    done = migrate(write(project.folder, head(body.replace("False", "True"))), "--json").document
    assert "shuffle: full" in done["files"]["train.yaml"] and not done["untranslated"]


LEFT = {
    "raise": "    if x:\n        k['shuffle'] = True\n        raise KeyError\n",
    "raise in a handler": (
        "    try:\n        run()\n    except KeyError:\n        if x:\n"
        "            k['shuffle'] = True\n            raise\n"
    ),
    "raise before the last part of a try": (
        "    try:\n        if x:\n            k['shuffle'] = True\n            raise KeyError\n"
        "    finally:\n        run()\n"
    ),
    "return in a loop": (
        "    for word in words:\n        if x:\n            k['shuffle'] = True\n"
        "            for word in words:\n                break\n            return None\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("lines", LEFT.values(), ids=LEFT)
def test_what_a_branch_does_to_a_dict_before_it_leaves_the_function_is_nothing_behind_it(
    project, lines
):
    body = f"{DATA}\ndef get():\n    k = {{'batch_size': 4}}\n{lines}"
    done = migrate(
        write(project.folder, head(f"{body}    return DataLoader(data, **k)\n")), "--json"
    ).document
    assert "shuffle: none" in done["files"]["train.yaml"], done
    assert not done["untranslated"] and not [
        note for note in done["notes"] if "only under a condition" in note["text"]
    ]


MOSTLY = {
    "in a loop": (
        "    while x:\n        if y:\n            k['shuffle'] = True\n            if z:\n"
        "                break\n            return None\n"
    ),
    "where it fails": (
        "    try:\n        if x:\n            k['shuffle'] = True\n            return run()\n"
        "    except KeyError:\n        pass\n"
    ),
    "before a last part with the loader": (
        "    try:\n        if x:\n            k['shuffle'] = True\n            return None\n"
        "    finally:\n    "
    ),
}  # fmt: skip


@pytest.mark.parametrize("lines", MOSTLY.values(), ids=MOSTLY)
def test_what_a_branch_does_to_a_dict_may_count_behind_it_although_it_returns(project, lines):
    body = f"{DATA}\ndef get():\n    k = {{'batch_size': 4}}\n{lines}"
    done = migrate(
        write(project.folder, head(f"{body}    return DataLoader(data, **k)\n")), "--json"
    ).document
    assert done["diff"] == "" and done["files"] == {}
    assert "k may be changed here" in done["untranslated"][0]["text"]
