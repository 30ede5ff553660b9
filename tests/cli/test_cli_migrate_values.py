"""feedwater migrate: which value a name of the script has where a loader is made."""

from __future__ import annotations

import json
import sys

import pytest
from migration import DATA, head, migrate, translated, write

# Scripts, by their lines, whose loader is over what may be changed after it was written.
USE = "loader = DataLoader(datasets.ImageFolder('/d/x', transforms.Compose(steps)))"
STEPS = "steps = [transforms.CenterCrop(8), transforms.ToTensor()]"
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
    "a star import behind it": (STEPS, "from torch.nn import *", USE),
    "a star import behind it in a branch": (STEPS, "if x:\n    from torch.nn import *", USE),
    "locals() of the module": (STEPS, "locals().update(other)", USE),
    "vars() of the module": (STEPS, "vars()['steps'] = []", USE),
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
    "a dataset in workers": (
        DATA, "def cut(worker):\n    torch.utils.data.get_worker_info().dataset.samples = []",
        "loader = DataLoader(data, worker_init_fn=cut)",
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
    "__setattr__": "self.__setattr__('tf', None)",
    "__setattr__ of object": "object.__setattr__(self, name, None)",
    "an entry of its dict": "self.__dict__[name] = None",
    "its dict": "self.__dict__.update(other)",
    "its dict in place": "self.__dict__ |= other",
    "another dict": "self.__dict__ = other",
    "its dict by another name": "mine = self.__dict__",
    "its dict in a dict": "{'d': self.__dict__}['d'].update(other)",
    "its dict by an argument with a name": "improve(d=self.__dict__)",
    "its dict in a dict that is made": "dict(d=self.__dict__)['d'].update(other)",
    "vars()": "vars(self).update(other)",
    "an entry of vars()": "vars(self)['tf'] = None",
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
    reads = (
        "print(len(self.data), vars(self), self.__dict__.keys(), dict(**vars(self)), "
        "setattr(self, 'other', 1), self.__setattr__('another', 1), {**vars(self)}, "
        "json.dumps({'d': vars(self)}))"
    )
    done = migrate(write(project.folder, head(body.format(reads))), "--json")
    assert done.status == 0 and len(done.document["files"]) == 1


# What else than an assignment gives a name a value.
GIVEN = {
    "an error": "try:\n    run()\nexcept ValueError as size:\n    pass",
    "a pattern": "match read():\n    case int() as size:\n        pass",
    "a name as a pattern": "match read():\n    case size:\n        pass",
    "the rest of a list": "match read():\n    case [_, *size]:\n        pass",
    "the rest of a dict": "match read():\n    case {'a': _, **size}:\n        pass",
}


@pytest.mark.parametrize("lines", GIVEN.values(), ids=GIVEN)
def test_a_name_that_something_else_gives_a_value_is_not_known(project, lines):
    if "match" in lines and sys.version_info < (3, 10):
        pytest.skip("Python 3.9 has no match")
    steps = "steps = [transforms.CenterCrop(size), transforms.ToTensor()]"
    for name, status in (("size", 1), ("other", 0)):
        body = "\n".join(["size = 8", lines.replace("size", name), steps, USE]) + "\n"
        done = migrate(write(project.folder, head(body)), "--json")
        assert done.status == status, (body, done.document)


READ = {
    "a star import of torch's before it": ("from torch.nn import *", STEPS, USE),
    "lengths and names": (DATA, "print(len(data), data.classes, data.class_to_idx)", LOAD),
    "locals() of the module": (STEPS, "print(locals(), '%(steps)s' % vars())", USE),
    "the dict of another class": (
        "class Other:\n    def __init__(self, other):\n        self.__dict__.update(other)",
        "class Data:\n    def load(self):\n        self.data = datasets.ImageFolder('/d/x', "
        "transforms.ToTensor())\n        return DataLoader(self.data)",
    ),
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


def test_texts_that_are_put_together_are_one_path(project):
    cases = {
        "f'/d/x/{stage}_clean'": ("/d/x", "train_clean"),
        "'/d/x/' + stage + '_clean'": ("/d/x", "train_clean"),
        "f'/d/x{2}/{stage}'": ("/d/x2", "train"),
        "f'/d/{unknown}_clean/x'": ("<f'/d/{unknown}_clean/x'>", None),
        "f'{unknown}_clean'": ("<f'{unknown}_clean'>", None),
        "f'{unknown}/{stage}_clean'": ("<unknown>", "train_clean"),
        "os.path.join('/d', f'{stage}_clean')": ("/d", "train_clean"),
    }
    for expression, (folder, path) in cases.items():
        body = (
            "import os\nstage = 'train'\n"
            f"loader = DataLoader(datasets.ImageFolder({expression}, transforms.ToTensor()))\n"
        )
        found = translated(project, body)
        assert found["dataset"].get("path") == path, expression
        (text,) = found["notes"]["files"].values()
        assert json.dumps(folder) in text.splitlines()[1], expression
        if folder.startswith("/"):
            assert found["dataset"]["root"] == folder, expression


# Folders that are another one each time, and what of them is.
OVER = "DataLoader(datasets.ImageFolder({}, transforms.ToTensor()))"
GET = f"def get(root):\n    return {OVER.format('root')}"
PARSE = "import argparse\nimport sys\np = argparse.ArgumentParser()\np.add_argument('--data')\n"
MAIN = (
    f"{PARSE}def main(argv=None):\n    args = p.parse_args(argv)\n"
    f"    return {OVER.format('args.data')}\n"
)
FOLDERS = {
    "a parameter": (f"{GET}\nget('/d/x')\nget('/d/y')", "root"),
    "a parameter of a function that others may call": (GET, "root"),
    "a parameter in a loop": (f"{GET}\nfor folder in folders:\n    get(folder)", "root"),
    "a parameter of what is decorated": (f"@twice\n{GET}\nget('/d/x')", "root"),
    "a parameter of what is handed on": (f"{GET}\nmap(get, folders)", "root"),
    "a part of a path": (
        f"def get(split):\n    return {OVER.format('os.path.join(args.data, split)')}", "split"
    ),
    "a part of a text": (
        f"def get(split):\n    where = f'{{base}}/{{split}}'\n    return {OVER.format('where')}",
        "split",
    ),
    "options that anything may be": (f"def get(cfg):\n    return {OVER.format('cfg.data')}", "cfg"),
    "an attribute of several objects": (
        "class Data:\n    def __init__(self, root):\n        self.root = root\n"
        f"    def loader(self):\n        return {OVER.format('self.root')}\nData(a)\nData(b)",
        "root",
    ),
    "an attribute that is set": (
        f"cfg = load()\nl = {OVER.format('cfg.root')}\ncfg.root = b", "cfg.root"
    ),
    "an attribute that a loop sets": (
        f"for split in splits:\n    cfg.split = split\n    l = {OVER.format('cfg.split')}",
        "cfg.split",
    ),
    "an option that is set": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\n"
        f"args = p.parse_args()\nl = {OVER.format('args.data')}\nargs.data = b", "args.data"
    ),
    "an option of lines of the script's own": (
        f"{MAIN}for fold in folds:\n    main(['--data', fold])", "p.parse_args(argv)"
    ),
    "an option of a line that some caller gives": (
        f"{MAIN}commands = {{'main': main}}\ncommands[x](['--data', b])", "p.parse_args(argv)"
    ),
    "an option of a line that a function of a function gets": (
        f"{PARSE}def get(argv=None):\n    return p.parse_args(argv)\n"
        f"def main(argv=None):\n    args = get(argv)\n    return {OVER.format('args.data')}\n"
        "for argv in lines:\n    main(argv)", "get(argv)"
    ),
    "an option of two lines": (
        f"{PARSE}args = p.parse_args(['--data', a])\nl = {OVER.format('args.data')}\n"
        f"args = p.parse_args(['--data', b])\nm = {OVER.format('args.data')}", "args"
    ),
    "an entry that is set": (
        "cfg = load()\n"
        f"l = {OVER.format('cfg[0]')}\ncfg[0] = b\nm = {OVER.format('cfg[0]')}", "cfg[0]"
    ),
    "an entry that is updated": (
        f"cfg = load()\nl = {OVER.format('cfg[0]')}\ncfg.update(b)", "cfg[0]"
    ),
    "a loop": (f"for root in a, b:\n    l = {OVER.format('root')}", "root"),
    "what a loop gives": (
        f"for root in a, b:\n    where = str(root)\n    l = {OVER.format('where')}", "root"
    ),
    "a comprehension": (f"l = [{OVER.format('root')} for root in folders]", "root"),
    "a dict of them": (f"l = {{x: {OVER.format('os.path.join(base, x)')} for x in names}}", "x"),
    "with": (f"with folder() as root:\n    l = {OVER.format('root')}", "root"),
    "a condition": (f"l = {OVER.format('a if x else b')}", "a if x else b"),
    "a condition with a name": (f"r = a if x else b\nl = {OVER.format('r')}", "a if x else b"),
    "assigned again": (
        f"root = a\nl = {OVER.format('root')}\nroot = b\nm = {OVER.format('root')}", "root"
    ),
    "a call": (f"l = {OVER.format('next(folders)')}", "next(folders)"),
    "a call in a function": (
        f"def get():\n    where = next(folders)\n    return {OVER.format('where')}",
        "next(folders)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "part"), FOLDERS.values(), ids=FOLDERS)
def test_a_folder_that_may_be_several_is_no_root(project, body, part):
    done = migrate(write(project.folder, head(f"import os\n{body}\n")), "--json").document
    assert done["files"] == {} and done["diff"] == ""
    texts = [told["text"] for told in done["untranslated"]]
    assert all(f"): {part} may be another folder each time" in text for text in texts), texts


ONE_FOLDER = {
    "a name that a call gave": (f"root = read()\nl = {OVER.format('root')}", "data"),
    "a part of the environment": (
        f"def main():\n    root = os.environ['D'] + '/x'\n    l = {OVER.format('root')}", "data"
    ),
    "a parameter of what is called once": (f"{GET}\nget(read())", "root"),
    "a name of a function that is called once": (
        f"def main():\n    root = read()\n    l = {OVER.format('root')}\nmain()", "data"
    ),
    "an option that a function gets": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\n"
        f"def get(args):\n    return {OVER.format('args.data')}\n"
        "args = p.parse_args()\nutils.setup(args)\nget(args)\nget(args)", "data"
    ),
    "an option of one line of the script's own": (
        f"{PARSE}args = p.parse_args(['--data', a])\ndef get():\n"
        f"    return {OVER.format('args.data')}\nget()\nget()", "data"
    ),
    "an option of a line that main() is given once": (
        f"{MAIN}main(['--data', a])", "data"
    ),
    "an option of the program's line, whoever calls": (
        f"{MAIN}main()\nmain(None)\nmain(sys.argv[1:])", "data"
    ),
    "an entry beside another that is set": (
        f"cfg = load()\ncfg[1] = 2\nl = {OVER.format('cfg[0]')}", "data"
    ),
    "an attribute of an object that is made once": (
        "class Data:\n    def __init__(self, data):\n        self.data = data\n"
        f"cfg = Data(read())\nl = {OVER.format('cfg.data')}", "data"
    ),
    "an option whose name other objects have": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\n"
        "class Net:\n    def __init__(self):\n        self.data = 1\n        self.data = 2\n"
        f"args = p.parse_args()\nl = {OVER.format('args.data')}", "data"
    ),
    "an import": (f"from config import root\ndef get():\n    return {OVER.format('root')}", "root"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "root"), ONE_FOLDER.values(), ids=ONE_FOLDER)
def test_a_folder_that_is_always_the_same_is_a_root(project, body, root):
    assert translated(project, f"import os\n{body}\n")["dataset"]["root"] == root


def test_what_two_calls_give_is_two_roots(project):
    body = f"a = next(it)\nb = next(it)\nx = {OVER.format('a')}\ny = {OVER.format('b')}\n"
    files = migrate(write(project.folder, head(body)), "--json").document["files"]
    assert ["root: data-2" in text for text in files.values()] == [False, True]


def test_a_name_that_hides_an_import_is_not_torchvisions(project):
    body = (
        "def make(transforms):\n"
        "    return DataLoader(datasets.ImageFolder('/d/x', transforms.ToTensor()))\n"
    )
    done = migrate(write(project.folder, head(body)))
    assert done.status == 1 and "=== not translated" in done.out


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
        "made = Data(input())\n"
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


def test_values_that_lead_in_circles_end(project):
    body = (
        "a = b\nb = a\nsize = size + 1\nt = transforms.Compose([t])\n"
        "loader = DataLoader(datasets.ImageFolder(a, transforms.Compose([\n"
        "    t, transforms.Resize(size), transforms.CenterCrop(a)])), batch_size=b)\n"
    )
    done = migrate(write(project.folder, head(body)))
    assert done.status == 1 and "=== not translated" in done.out
