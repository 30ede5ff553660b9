"""feedwater migrate: scripts in the style of PyTorch's examples, and scripts that are none.

The scripts are in migrate/, with what is printed about each beside it. FEEDWATER_UPDATE_GOLDEN=1 is
to write those files anew, and read the difference.
"""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from command_line import environment, run

SCRIPTS = Path(__file__).parent / "migrate"
NAMES = ("classify", "generate", "pairs")
PYTHON = environment(PYTHON=sys.executable)


def migrate(*arguments, **changes):
    return run("migrate", *arguments, env={**PYTHON, **changes.pop("env", {})}, **changes)


def write(folder: Path, text: str | bytes, name: str = "train.py") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def head(body: str) -> str:
    """A script with the usual imports."""
    return (
        "import torch\nfrom torch.utils.data import DataLoader\n"
        f"from torchvision import datasets, transforms\n\n{body}"
    )


LOADER = head(
    "data = datasets.ImageFolder('/data/photos/train', transforms.Compose([\n"
    "    transforms.CenterCrop(8), transforms.ToTensor()]))\n"
    "loader = DataLoader(data, batch_size=4)\n"
)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_printed_of_a_script_is_as_written_down(project, name):
    shutil.copy(SCRIPTS / f"{name}.py", project.folder)
    done = migrate(f"{name}.py", cwd=project.folder)
    assert (done.status, done.err) == (1, "")  # each has something that cannot be translated
    golden = SCRIPTS / f"{name}.txt"
    if os.environ.get("FEEDWATER_UPDATE_GOLDEN"):
        golden.write_text(done.out)
    assert done.out == golden.read_text()


def make_data(project) -> None:
    """Data for every pipeline of the scripts: folders, CIFAR-10 and MNIST, below two roots."""
    project.pictures("train", 12)
    project.pictures("val", 12)
    cifar = project.data / "cifar-10-batches-bin"
    cifar.mkdir()
    for name in [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]:
        (cifar / f"{name}.bin").write_bytes(bytes(3073) * 4)
    mnist = project.data / "MNIST/raw"
    mnist.mkdir(parents=True)
    for split in ("train", "t10k"):
        images = np.array([0x803, 4, 28, 28], ">i4").tobytes() + bytes(4 * 784)
        labels = np.array([0x801, 4], ">i4").tobytes() + bytes(4)
        (mnist / f"{split}-images-idx3-ubyte").write_bytes(images)
        (mnist / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    text = project.config.read_text()
    project.config.write_text(text.replace("{data: data}", "{data: data, dataroot: data}"))


@pytest.mark.parametrize("name", NAMES)
def test_the_pipelines_are_valid_and_the_changed_script_is_one(project, name):
    make_data(project)
    shutil.copy(SCRIPTS / f"{name}.py", project.folder)
    done = migrate(f"{name}.py", "--out", "made", "--json", cwd=project.folder)
    document = done.document
    assert done.status == 1 and document["files"] and document["untranslated"]
    for file, text in document["files"].items():
        path = project.folder / "made" / file
        assert path.read_text() == text
        if "-image_folder" in file:  # its root itself has the class folders
            path.write_text(text.replace("root: dataroot", "root: dataroot, path: train"))
        checked = run("validate", path, "--config", project.config)
        assert checked.status == 0, text + checked.err
    diff = project.folder / "made" / f"{name}.py.diff"
    subprocess.run(["patch", "-p0", "-s", "-i", diff], cwd=project.folder, check=True)
    changed = (project.folder / f"{name}.py").read_text()
    tree = ast.parse(changed)
    assert "import feedwater\n" in changed
    # Every file is opened by its path, and every name that the new lines use is there.
    opened = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert {f"made/{file}" for file in document["files"]} <= opened
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)
             and isinstance(node.ctx, ast.Store)}  # fmt: skip
    for word in re.findall(r"feedwater\.Loader\((\w+)", changed):
        assert word in bound, word


def test_the_changed_script_runs(project):
    """A whole script, with a stand-in for torch's modules that are no longer needed."""
    body = (
        "data = datasets.MNIST('../data', train=False, transform=transforms.ToTensor())\n"
        "sampler = torch.utils.data.DistributedSampler(data)\n"
        "loader = DataLoader(data, batch_size=2 * 2, sampler=sampler, drop_last=True)\n"
        "for epoch in range(2):\n    sampler.set_epoch(epoch)\n    print(loader, epoch)\n"
    )
    path = write(project.folder, head(body))
    done = migrate(path.name, "--out", ".", cwd=project.folder)
    assert done.status == 0, done.out
    subprocess.run(
        ["patch", "-p0", "-s", "-i", f"{path.name}.diff"], cwd=project.folder, check=True
    )
    fake = project.folder / "fake"
    for module in ("torch/utils/data", "torchvision"):
        (fake / module).mkdir(parents=True)
    (fake / "torch/__init__.py").touch()
    (fake / "torch/utils/__init__.py").touch()
    (fake / "torch/utils/data/__init__.py").write_text("DataLoader = None\n")
    (fake / "torchvision/__init__.py").write_text("datasets = transforms = None\n")
    (fake / "feedwater.py").write_text(
        "class Loader:\n"
        "    def __init__(self, pipeline, **options):\n"
        "        self.made, self.sampler = (pipeline, options), self\n"
        "    def set_epoch(self, epoch): self.epoch = epoch\n"
        "    def __repr__(self): return f'{self.made} {self.epoch}'\n"
    )
    ran = subprocess.run([sys.executable, path.name], cwd=project.folder, capture_output=True,
                         text=True, env=environment(PYTHONPATH=str(fake)))  # fmt: skip
    assert ran.stdout == (
        "('./train.yaml', {'batch_size': 2 * 2}) 0 0\n".replace("2 * 2", "4")
        + "('./train.yaml', {'batch_size': 4}) 1 1\n"
    ), ran.stderr
    document = yaml.safe_load((project.folder / "train.yaml").read_text())
    assert document["sampler"] == {"shuffle": "full", "last": "drop"}
    assert document["dataset"]["split"] == "test"


def translated(project, body: str) -> dict:
    """The one pipeline of a script, parsed."""
    done = migrate(write(project.folder, head(body)), "--json", cwd=project.folder)
    (text,) = done.document["files"].values()
    return {**yaml.safe_load(text), "notes": done.document}


def test_paths_become_a_root_and_a_path_below_it(project):
    transform = "transforms.ToTensor()"
    cases = {
        "'/data/photos/train'": ({"root": "photos", "path": "train"}, "/data/photos"),
        "'./photos'": ({"root": "photos"}, "./photos"),
        "os.path.join('/data', 'photos', 'val')": ({"root": "data", "path": "photos/val"}, "/data"),
        "Path('/data') / 'photos'": ({"root": "data", "path": "photos"}, "/data"),
        "f'{HERE}/train'": ({"root": "my-set", "path": "train"}, "/mnt/my set"),
        "f'{args.data}/train'": ({"root": "data", "path": "train"}, "<args.data>"),
        "f'{args.data!r}/train'": ({"root": "data"}, "<f'{args.data!r}/train'>"),
        "HERE + '/train'": ({"root": "my-set", "path": "train"}, "/mnt/my set"),
        "os.path.join(args.data, '../x')": ({"root": "data"}, "<os.path.join(args.data, '../x')>"),
        "args.data": ({"root": "data"}, "<args.data>"),
    }
    for expression, (section, declared) in cases.items():
        body = (
            "import os\nfrom pathlib import Path\nHERE = '/mnt/my set'\n"
            f"loader = DataLoader(datasets.ImageFolder({expression}, {transform}))\n"
        )
        found = translated(project, body)
        assert found["dataset"] == {"format": "image_folder", **section}, expression
        (text,) = found["notes"]["files"].values()
        assert json.dumps(declared) in text.splitlines()[1], expression


def test_the_order_follows_the_sampler_and_shuffle(project):
    data = "data = datasets.ImageFolder('/d/x', transforms.ToTensor())\n"
    module, ordered = "torch.utils.data", "DistributedSampler(data, shuffle=False)"
    none = "s = None\nloader = DataLoader(data, sampler=s, "
    cases = {
        "loader = DataLoader(data)": ("none", "partial"),
        "loader = DataLoader(data, 4, True, drop_last=True)": ("full", "drop"),
        f"loader = DataLoader(data, sampler={module}.{ordered})": ("none", "partial"),
        f"loader = DataLoader(data, sampler={module}.RandomSampler(data))": ("full", "partial"),
        f"{none}shuffle=(s is not None))": ("none", "partial"),
        f"{none}shuffle=(s is None))": ("full", "partial"),
    }  # fmt: skip
    for lines, (shuffle, last) in cases.items():
        section = translated(project, f"{data}{lines}\n")["sampler"]
        assert section == {"shuffle": shuffle, "last": last}, lines


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
    "an argument of the function": ("def f(d):\n    return DataLoader(d)", "over d: not a dataset"),
    "options that only running tells": ("loader = DataLoader(data, **options())", "**options()"),
    "no dataset": ("loader = DataLoader()", "a DataLoader without a dataset"),
    "a subset": ("loader = DataLoader(torch.utils.data.Subset(data, [1]))", "not a dataset of"),
    "another dataset": ("loader = DataLoader(datasets.CelebA('/d'))", "CelebA: no format reads it"),
    "a target transform": (
        "loader = DataLoader(datasets.ImageFolder('/d', None, int))", "target_transform=...): no op"
    ),
    "a size of the command line": (
        "loader = DataLoader(datasets.ImageFolder('/d', transforms.Resize(size())))",
        "transforms.Resize(size()): size() is not a literal",
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


# Scripts, by their lines, whose loader is over what may be changed after it was written.
USE = "loader = DataLoader(datasets.ImageFolder('/d/x', transforms.Compose(steps)))"
STEPS = "steps = [transforms.CenterCrop(8), transforms.ToTensor()]"
DATA = "data = datasets.ImageFolder('/d/x', transforms.Compose([transforms.ToTensor()]))"
LOAD = "loader = DataLoader(data)"
CHANGED = {
    "a list grows": (STEPS, "steps.append(Mine())", USE),
    "a list grows by many": (STEPS, "steps.extend([Mine()])", USE),
    "a list grows in place": (STEPS, "steps += [Mine()]", USE),
    "a list gets a first entry": (STEPS, "steps.insert(0, Mine())", USE),
    "a list is turned round": (STEPS, "steps.reverse()", USE),
    "an entry is set": (STEPS, "steps[0] = Mine()", USE),
    "an entry is taken out": (STEPS, "del steps[0]", USE),
    "a list is handed to a function": (STEPS, "improve(steps)", USE),
    "a list has another name": (STEPS, "others = steps", "others.append(Mine())", USE),
    "a list has two names": (f"others = {STEPS}", "others.append(Mine())", USE),
    "an entry has another name": (STEPS, "first = steps[0]", "first.size = 9", USE),
    "entries are gone through": (STEPS, "for step in steps:", "    step.size = 9", USE),
    "a list is in a dict": (STEPS, "known = {'train': steps}", "known['train'].pop()", USE),
    "a list of numbers": (
        "mean = [0.5, 0.4, 0.3]", "mean.reverse()",
        "steps = [transforms.ToTensor(), transforms.Normalize(mean, [1.0, 1.0, 1.0])]", USE,
    ),
    "a list is in a Compose": (
        STEPS, "made = transforms.Compose(steps)", "made.transforms.insert(0, Mine())", USE
    ),
    "a number is global": (
        "size = 8", "def setup():\n    global size\n    size = 9", "setup()",
        "steps = [transforms.CenterCrop(size)]", USE,
    ),
    "a number is nonlocal": (
        "def main():\n    size = 8\n    def setup():\n        nonlocal size\n        size = 9",
        "    setup()", "    steps = [transforms.CenterCrop(size)]", f"    {USE}",
    ),
    "globals() is looked at": (STEPS, "globals()['steps'] = []", USE),
    "records are taken out": (DATA, "del data.samples[500:]", LOAD),
    "records are set": (DATA, "data.samples[:] = data.samples[:9]", LOAD),
    "labels are changed": (DATA, "data.targets[0] = 3", LOAD),
    "a transform of a dataset": (DATA, "data.transform.transforms.insert(0, Mine())", LOAD),
    "a transform in the module, the loader in a function": (
        DATA, "data.transform = None", f"def main():\n    {LOAD}"
    ),
    "a transform in a function, the loader in the module": (
        DATA, "def main():\n    data.transform = None", LOAD
    ),
    "a dataset is handed to a function": (DATA, "corrupt(data)", LOAD),
    "a dataset is handed out": (
        f"def main():\n    {DATA}", f"    {LOAD}", "    return data, loader"
    ),
    "a dataset has another name": (DATA, "other = data", "other.samples.clear()", LOAD),
    "a dataset of a loader": (DATA, LOAD, "loader.dataset.transform = None"),
    "a dataset of a loader with another name": (
        DATA, LOAD, "inner = loader.dataset", "inner.transform = None"
    ),
    "setattr": (DATA, "setattr(data, 'transform', None)", LOAD),
    "a class of torchvision's": (DATA, "datasets.ImageFolder.__len__ = lambda self: 3", LOAD),
    "a sampler": (
        DATA, "s = torch.utils.data.DistributedSampler(data)", "s.shuffle = False",
        "loader = DataLoader(data, sampler=s)",
    ),
    "a dict in the module, the loader in a function": (
        DATA, "k = {'batch_size': 2}", "k['shuffle'] = True",
        "def main():\n    return DataLoader(data, **k)",
    ),
    "a dict is handed to a function": (
        DATA, "k = {'batch_size': 2}", "improve(k)", "loader = DataLoader(data, **k)"
    ),
    "a dict in a loop": (
        DATA, "k = {'batch_size': 2}",
        "for _ in range(2):\n    loader = DataLoader(data, **k)\n    k['shuffle'] = True",
    ),
}  # fmt: skip
OF_SELF = {
    "the transform": "self.tf.transforms.insert(0, Mine())",
    "the dataset's records": "self.data.samples = self.data.samples[:9]",
    "the dataset's transform": "self.data.transform = None",
    "handed over": "corrupt(self.data)",
    "from elsewhere": "other.tf = None",
    "setattr": "setattr(self, 'tf', None)",
}


@pytest.mark.parametrize("parts", CHANGED.values(), ids=CHANGED)
def test_what_may_be_changed_is_not_taken_as_it_was_written(project, parts):
    done = migrate(write(project.folder, head("\n".join(parts) + "\n")), "--json")
    assert done.status == 1 and done.document["files"] == {} and done.document["diff"] == ""
    texts = [told["text"] for told in done.document["untranslated"]]
    assert any("may be changed here" in text and " stays" in text for text in texts), texts


@pytest.mark.parametrize("line", OF_SELF.values(), ids=OF_SELF)
def test_what_may_be_changed_of_self_is_not_taken_as_it_was_written(project, line):
    body = (
        "class Data:\n"
        "    def setup(self, other):\n"
        "        self.tf = transforms.Compose([transforms.ToTensor()])\n"
        "        self.data = datasets.ImageFolder('/d/x', self.tf)\n"
        "        {}\n"
        "    def train_dataloader(self):\n"
        "        return DataLoader(self.data, batch_size=8, shuffle=True)\n"
    )
    done = migrate(write(project.folder, head(body.format(line))), "--json")
    assert done.status == 1 and done.document["diff"] == ""
    assert any("may be changed here" in t["text"] for t in done.document["untranslated"])
    (project.folder / "train.py").unlink()
    done = migrate(write(project.folder, head(body.format("print(len(self.data))"))), "--json")
    assert done.status == 0 and len(done.document["files"]) == 1


READ = {
    "lengths and names": (DATA, "print(len(data), data.classes, data.class_to_idx)", LOAD),
    "labels": (DATA, "from collections import Counter", "Counter(data.targets)", LOAD),
    "samples": (DATA, "show(data[0])", "for image, label in data:\n    show(image)", LOAD),
    "records": (DATA, "names = [name for name, _ in data.samples]", LOAD),
    "a loader is handed on": (DATA, LOAD, "train(model, loader)", "print(loader.dataset.classes)"),
    "an option of that name": (DATA, LOAD, "model(args.dataset)"),
    "a transform is called": (
        "tf = transforms.Compose([transforms.ToTensor()])", "show(tf(picture))",
        "data = datasets.ImageFolder('/d/x', tf)", LOAD,
    ),
    "the records of another dataset": (
        "tf = transforms.Compose([transforms.ToTensor()])",
        "other = datasets.ImageFolder('/d/y', tf)", "other.samples = other.samples[:9]",
        "data = datasets.ImageFolder('/d/x', tf)", LOAD,
    ),
    "a name of another scope": (
        STEPS, "def other(steps):\n    steps.append(1)", USE.replace("loader", "data_loader")
    ),
    "numbers are handed on": (
        "size = 8", "model(size)", "steps = [transforms.CenterCrop(size)]", USE
    ),
    "a dict that is set later on": (
        DATA, "k = {'batch_size': 2}", "loader = DataLoader(data, **k)", "k['shuffle'] = True"
    ),
}  # fmt: skip


@pytest.mark.parametrize("parts", READ.values(), ids=READ)
def test_what_is_only_read_is_taken(project, parts):
    done = migrate(write(project.folder, head("\n".join(parts) + "\n")), "--json")
    assert done.status == 0, done.document["untranslated"]
    assert len(done.document["files"]) == 1


SAMPLERS = {
    "drawn again": ("RandomSampler(data, replacement=True)", None, "no replacement and no num_"),
    "a number of samples": ("RandomSampler(data, False, 100)", None, "no replacement and no num_"),
    "as is": ("RandomSampler(data, replacement=False, num_samples=None)", "", {"shuffle": "full"}),
    "a place": (
        "DistributedSampler(data, num_replicas=world, rank=place, seed=7)",
        ", rank=place, world_size=world", {"shuffle": "full", "seed": 7},
    ),
    "torch's own place": (
        "DistributedSampler(data, torch.distributed.get_world_size(), "
        "torch.distributed.get_rank())", "", {"shuffle": "full"},
    ),
    "a rank alone": ("DistributedSampler(data, rank=place)", None, "takes both"),
    "a place that a function gives": (
        "DistributedSampler(data, world(), place())", None, "the order depends on world()"
    ),
    "a seed that a function gives": (
        "DistributedSampler(data, seed=now())", None, "the order depends on now()"
    ),
    "arguments of a dict": ("DistributedSampler(data, **options)", None, "the order depends on"),
}  # fmt: skip


@pytest.mark.parametrize(("sampler", "added", "expected"), SAMPLERS.values(), ids=SAMPLERS)
def test_arguments_of_samplers_are_kept_or_refused(project, sampler, added, expected):
    body = f"{DATA}\ns = torch.utils.data.{sampler}\nloader = DataLoader(data, sampler=s)\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    if added is None:
        assert done["diff"] == "" and expected in done["untranslated"][0]["text"]
        return
    assert f'+loader = feedwater.Loader("train.yaml"{added})\n' in done["diff"]
    (text,) = done["files"].values()
    assert yaml.safe_load(text)["sampler"] == {**expected, "last": "partial"}


def test_a_place_that_only_a_branch_gives_is_refused(project):
    body = (
        f"{DATA}\ns = None\nif many:\n"
        "    s = torch.utils.data.DistributedSampler(data, num_replicas=world, rank=place)\n"
        "loader = DataLoader(data, sampler=s, shuffle=s is None)\n"
    )
    done = migrate(write(project.folder, head(body)), "--json").document
    assert "s has a rank of its own only in some branches" in done["untranslated"][0]["text"]


def test_samples_that_a_sampler_leaves_out_are_told(project):
    body = (
        f"{DATA}\ns = torch.utils.data.DistributedSampler(data, drop_last=True)\n"
        "loader = DataLoader(data, sampler=s{})\n"
    )
    for more, count in (("", 1), (", drop_last=True", 0)):
        done = migrate(write(project.folder, head(body.format(more))), "--json").document
        assert len(done["notes"]) == count


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
        "a.yaml": "photos", "b.yaml": "photos-2", "c.yaml": "photos", "d.yaml": "photos-3"
    }  # fmt: skip
    assert '# In feedwater.yaml: roots: {photos-2: "/new/photos"}' in files["b.yaml"]


def test_texts_that_are_put_together_are_one_path(project):
    cases = {
        "f'/d/x/{stage}_clean'": ({"root": "x", "path": "train_clean"}, "/d/x/"),
        "'/d/x/' + stage + '_clean'": ({"root": "x", "path": "train_clean"}, "/d/x/"),
        "f'/d/x{2}/{stage}'": ({"root": "x2", "path": "train"}, "/d/x2"),
        "f'/d/{unknown}_clean/x'": ({"root": "data"}, "<f'/d/{unknown}_clean/x'>"),
        "f'{unknown}_clean'": ({"root": "data"}, "<f'{unknown}_clean'>"),
        "f'{unknown}/{stage}_clean'": ({"root": "unknown", "path": "train_clean"}, "<unknown>"),
        "os.path.join('/d', f'{stage}_clean')": ({"root": "d", "path": "train_clean"}, "/d"),
    }
    for expression, (section, declared) in cases.items():
        body = (
            "import os\nstage = 'train'\n"
            f"loader = DataLoader(datasets.ImageFolder({expression}, transforms.ToTensor()))\n"
        )
        found = translated(project, body)
        assert found["dataset"] == {"format": "image_folder", **section}, expression
        (text,) = found["notes"]["files"].values()
        assert json.dumps(declared) in text.splitlines()[1], expression


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


def test_a_name_that_hides_an_import_is_not_torchvisions(project):
    body = (
        "def make(transforms):\n"
        "    return DataLoader(datasets.ImageFolder('/d/x', transforms.ToTensor()))\n"
    )
    done = migrate(write(project.folder, head(body)))
    assert done.status == 1 and "=== not translated" in done.out


def test_a_script_where_nothing_is_translated_stays_as_it_is(project):
    path = write(project.folder, head("loader = DataLoader(Mine())\n"))
    done = migrate(path, "--json")
    assert done.document["diff"] == "" and done.document["files"] == {}


def test_a_dataset_that_is_used_elsewhere_stays(project):
    path = write(project.folder, LOADER + "print(len(data), data.classes)\n")
    done = migrate(path, "--json")
    assert "-data = " not in done.document["diff"]
    assert '+loader = feedwater.Loader("train.yaml")' in done.document["diff"]


def test_a_script_that_has_feedwater_imports_it_once(project):
    done = migrate(write(project.folder, "import feedwater\n" + LOADER), "--json")
    assert "+import feedwater" not in done.document["diff"]


def test_windows_lines_and_a_missing_last_one_survive_the_patch(project):
    text = LOADER.rstrip("\n").replace("\n", "\r\n")
    path = write(project.folder, text.encode())
    assert migrate(path.name, "--out", "made", cwd=project.folder).status == 0
    diff = project.folder / "made/train.py.diff"
    subprocess.run(["patch", "--binary", "-p0", "-s", "-i", diff], cwd=project.folder, check=True)
    changed = path.read_bytes()
    assert changed.count(b"\n") == changed.count(b"\r\n") and b"feedwater.Loader" in changed
    compile(changed, "train.py", "exec")


def test_values_of_a_class_tuples_and_dicts_are_followed(project):
    body = (
        "SIDE, (MEAN, STD) = 32, ((0.5,), (0.25,))\n"
        "MEAN, STD = (0.5,), (0.25,)\n"
        "class Data:\n"
        "    def __init__(self, root, side=8):\n"
        "        self.root, self.side = root, 16\n"
        "        self.t = transforms.Compose([transforms.CenterCrop(self.side),\n"
        "            transforms.ToTensor(), transforms.Normalize((0.5,), (0.25,))])\n"
        "    def get_val_loader(self):\n"
        "        options = {}\n"
        "        options['drop_last'] = True\n"
        "        options.update({'batch_size': 6})\n"
        "        data = datasets.ImageFolder(self.root + '/val', self.t)\n"
        "        return DataLoader(data, **options)\n"
    )
    found = translated(project, body)
    assert list(found["notes"]["files"]) == ["val.yaml"] and not found["notes"]["untranslated"]
    assert found["dataset"] == {"format": "image_folder", "root": "root", "path": "val"}
    assert found["graph"][1:] == [
        {"center_crop": {"size": 16}}, {"normalize": {"mean": [127.5], "std": [63.75]}},
    ]  # fmt: skip
    assert found["sampler"]["last"] == "drop" and found["batch"] == {"size": 6}


def test_names_of_a_star_import_are_found(project):
    body = "from torchvision.transforms import *\nloader = DataLoader(datasets.ImageFolder("
    found = translated(project, f"{body}'/d/x', Compose([CenterCrop(4), ToTensor()])))\n")
    assert found["graph"][1] == {"center_crop": {"size": 4}}


def test_a_sampler_that_is_handed_out_is_the_loaders(project):
    body = (
        "def make(root):\n"
        "    data = datasets.ImageFolder('/d/x', transforms.ToTensor())\n"
        "    sampler = torch.utils.data.DistributedSampler(data)\n"
        "    loader = DataLoader(data, sampler=sampler)\n"
        "    return loader, sampler\n"
        "def other():\n"
        "    data = datasets.ImageFolder('/d/y', transforms.ToTensor())\n"
        "    return DataLoader(data)\n"
    )
    done = migrate(write(project.folder, head(body)), "--json")
    added = [line[1:].strip() for line in done.document["diff"].splitlines()[2:] if line[0] == "+"]
    assert added == [
        "import feedwater", 'loader = feedwater.Loader("train.yaml")',
        "return loader, loader.sampler", 'return feedwater.Loader("train-2.yaml")',
    ]  # fmt: skip


def test_a_script_as_large_as_may_be_is_read_in_time(project):
    lines = "value = transforms.Resize(3)\n" * 30_000
    done = migrate(write(project.folder, LOADER + lines), "--json")
    assert done.status == 0 and len(done.document["files"]) == 1


def test_nothing_of_the_script_or_its_folder_is_run(project):
    """Neither the script nor modules of its folder with names of Python's own."""
    trap = "open('ran', 'w').close()\n"
    for name in ("ast.py", "json.py", "feedwater.py", "torch.py"):
        write(project.folder, trap, name)
    write(project.folder, trap + LOADER)
    assert migrate("train.py", cwd=project.folder).status == 0
    assert not (project.folder / "ran").exists()


HOSTILE = {
    "a syntax error": (b"x = (\n  1,\ndef", "train.py:1:5: "),
    "of Python 2": (b"print 'x'\n", "train.py:1:1: Missing parentheses"),
    "zero bytes": (b"import torch\0\n", "not a Python script: it has zero bytes"),
    "a program": (b"\x7fELF\x02\x01\x01\x80\xff", "not a Python script"),
    "another encoding": (b"# coding: klingon\nx = 1\n", "not a Python script"),
    "deep parentheses": (b"x = " + b"(" * 5000 + b")" * 5000, "train.py"),
    "deep blocks": (b"".join(b" " * n + b"if x:\n" for n in range(200)), "train.py"),
    "a long sum": (b"x = " + b"+".join([b"1"] * 200_000), "nested too deeply"),
    "too large": (b"#" * (2 << 20), "larger than 1 MiB"),
}


@pytest.mark.parametrize(("data", "message"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_script_is_refused_with_its_place(project, data, message):
    path = write(project.folder, data)
    done = migrate(path)
    assert (done.status, done.out) == (2, "")
    assert message in done.err and "Traceback" not in done.err and len(done.err) < 1000
    assert migrate(path, "--json").document["error"]["code"] == "INVALID_ARGUMENT"


def test_values_that_lead_in_circles_end(project):
    body = (
        "a = b\nb = a\nsize = size + 1\nt = transforms.Compose([t])\n"
        "loader = DataLoader(datasets.ImageFolder(a, transforms.Compose([\n"
        "    t, transforms.Resize(size), transforms.CenterCrop(a)])), batch_size=b)\n"
    )
    done = migrate(write(project.folder, head(body)))
    assert done.status == 1 and "=== not translated" in done.out


def test_words_of_a_script_do_nothing_to_a_terminal(project):
    body = (
        "loader = DataLoader(datasets.ImageFolder('/d/\x1b[31mx', "
        "transforms.Compose([Mine('\x1b[31m\u202e')])))\n"
    )
    done = migrate(write(project.folder, head(body)))
    assert done.status == 1
    listed = done.out.partition("=== changes")[0] + done.out.partition("=== not translated")[2]
    assert "\x1b" not in listed and "\u202e" not in listed


def test_files_that_are_there_are_left_alone(project):
    path = write(project.folder, LOADER)
    assert migrate(path, "--out", project.folder / "made").status == 0
    (project.folder / "made/train.yaml").write_text("mine")
    done = migrate(path, "--out", project.folder / "made")
    assert done.status == 1 and "is there already; name another folder" in done.err
    assert (project.folder / "made/train.yaml").read_text() == "mine"


def test_what_python_warns_about_is_not_repeated(project):
    done = migrate(write(project.folder, LOADER + "x = '\\d'\n"))
    assert (done.status, done.err) == (0, "")


def test_a_script_that_is_not_there(project):
    done = migrate(project.folder / "no.py")
    assert done.status == 2 and "no script" in done.err
    assert migrate().status == 2  # and without any


def test_without_a_python_that_has_the_package_the_cure_is_told(project):
    path = write(project.folder, LOADER)
    for python in ("/nonexistent/python", "false"):
        done = migrate(path, env={"PYTHON": python})
        assert done.status == 1 and done.out == ""
        assert f"no Python with the package feedwater: tried {python}; `pip install`" in done.err
    assert migrate(path, "--json", env={"PYTHON": "false"}).document["error"]["code"]


def test_the_python_of_an_active_environment_is_found(project):
    folder = project.folder / "venv/bin"
    folder.mkdir(parents=True)
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "python").chmod(0o755)
    env = environment(VIRTUAL_ENV=str(folder.parent), PYTHON=None, PATH="/nonexistent")
    done = run("migrate", write(project.folder, LOADER), env=env)
    assert done.status == 0, done.err


def test_the_module_is_the_same_command(project):
    path = write(project.folder, LOADER)
    done = subprocess.run(
        [sys.executable, "-m", "feedwater.migrate", path], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, migrate(path).out)
