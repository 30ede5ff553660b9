"""feedwater migrate: values that are changed by another name, a part of them, or another class."""

from __future__ import annotations

import pytest
from migration import DATA, head, migrate, write

STEPS = "steps = [transforms.CenterCrop(8), transforms.ToTensor()]"
USE = "loader = DataLoader(datasets.ImageFolder('/d/x', transforms.Compose(steps)))"
LOAD = "loader = DataLoader(data)"
MNIST = "data = datasets.MNIST('/d', transform=transforms.ToTensor())"
CHANGED = {
    "+= of another name": (STEPS, "b = steps", "b += [Mine()]", USE),
    "+= of a third name": (STEPS, "b = steps", "c = b", "c += [Mine()]", USE),
    "+= of a name in a tuple": (STEPS, "b, c = steps, 1", "b += [Mine()]", USE),
    "+= of a name in a condition": (STEPS, "if b := steps:\n    b += [Mine()]", USE),
    "+= of an attribute": (
        STEPS, "class C:\n    def f(self):\n        self.b = steps\n        self.b += [Mine()]", USE
    ),
    "+= of labels": (MNIST, "t = data.targets", "t += 1", LOAD),
    "+= of a view": (MNIST, "t = data.targets.view(-1)", "t += 1", LOAD),
    "+= of NumPy's view": (MNIST, "n = data.targets.numpy()", "n += 1", LOAD),
    "|= of a dict": (
        DATA, "k = {'batch_size': 2}", "b = k", "b |= {'shuffle': True}",
        "loader = DataLoader(data, **k)",
    ),
    "rows in a loop": (MNIST, "for row in data.data:", "    row += 1", LOAD),
    "rows that are set": (MNIST, "for i, row in enumerate(data.data):", "    row[0] = 1", LOAD),
    "labels in place": (MNIST, "for t in data.targets:", "    t.fill_(3)", LOAD),
    "a method that is kept": (STEPS, "add = steps.append", "add(Mine())", USE),
    "a method that is handed on": (STEPS, "list(map(steps.append, [Mine()]))", USE),
    "a method of records": (DATA, "take = data.samples.pop", "take()", LOAD),
    "a method of a dict": (
        DATA, "k = {'shuffle': True}", "take = k.pop", "take('shuffle')",
        "loader = DataLoader(data, **k)",
    ),
    "the dict of a dataset": (DATA, "d = data.__dict__", "d['samples'] = []", LOAD),
    "one of a list": (STEPS, "max(steps, key=id).size = 9", USE),
    "one of a list by a name": (STEPS, "one = min(steps, key=id)", "one.size = 9", USE),
    "lists in one": (STEPS, "sum([steps], [])[0].size = 9", USE),
    "a key that may change it": (STEPS, "sorted(steps, key=change)", USE),
    "an array that is none of its own": (
        MNIST, "import numpy as np", "a = np.array(data.data, copy=False)", "a[:] = 0", LOAD
    ),
    "a function in place": (MNIST, "torch.nn.init.zeros_(data.data)", LOAD),
    "a log of the script's own": (
        "class Log:\n    def info(self, d):\n        d.samples.pop()", DATA, "Log().info(data)",
        LOAD,
    ),
    "an attribute of a class": (STEPS, "class C:\n    inner = steps", "C.inner.append(1)", USE),
    "an attribute of a class by self": (
        STEPS, "class C:\n    inner = steps\n    def f(self):\n        self.inner.append(1)", USE
    ),
    "a name of a class": (
        "class C:", f"    {STEPS}", f"    {USE}", "    def f(self):\n        C.steps.append(1)"
    ),
    "a name of a class that is set": (
        "class C:", f"    {STEPS}\n    C.steps = []", f"    {USE}"
    ),
    "a text that is run": (STEPS, "eval('steps.append(1)')", USE),
    "a text that only running tells": (STEPS, "eval(text)", USE),
    "a loader's dataset by any name": (DATA, LOAD, "def f(x):\n    x.dataset.samples.pop()"),
    "an alias of any one's dataset": (
        DATA, LOAD, "def f(x):\n    d = x.dataset\n    d.transform = None"
    ),
    "a dataset of one of several": (
        DATA, LOAD, "for x in [loader]:\n    d = x.dataset\n    d.samples.pop()"
    ),
    "a dataset that is handed on": (DATA, LOAD, "for x in [loader]:\n    change(x.dataset)"),
    "a dataset by getattr": (DATA, LOAD, "getattr(loader, 'dataset').samples.pop()"),
    "a dataset by a name": (DATA, LOAD, "getattr(loader, name).samples = []"),
    "a dataset by attrgetter": (
        DATA, LOAD, "from operator import attrgetter", "attrgetter('dataset')(loader).samples = []"
    ),
    "a dataset by vars()": (DATA, LOAD, "vars(loader)['dataset'].samples.pop()"),
}  # fmt: skip


@pytest.mark.parametrize("parts", CHANGED.values(), ids=CHANGED)
def test_what_changes_a_value_by_another_way_is_seen(project, parts):
    done = migrate(write(project.folder, head("\n".join(parts) + "\n")), "--json")
    assert done.status == 1 and done.document["files"] == {} and done.document["diff"] == ""
    texts = [told["text"] for told in done.document["untranslated"]]
    assert any("may be changed here" in text and " stays" in text for text in texts), texts


READ = {
    "the largest label": (MNIST, "classes = max(data.targets) + 1", "build(classes)", LOAD),
    "rows that are looked at": (
        MNIST, "for row in data.data:\n    show(row.sum())",
        "for i, t in enumerate(data.targets):\n    known[t].append(i)", LOAD,
    ),
    "a number of its own": (DATA, "n = len(data)", "n += 1", LOAD),
    "a method that looks": (DATA, "k = {'batch_size': 2}", "sorted(k, key=k.get)",
                            "loader = DataLoader(data, **k)"),
    "a text that only looks": (STEPS, "show(eval('steps'))", USE),
    "a sum of labels": (MNIST, "total = 0", "total += data.targets.sum()", LOAD),
    "the name of a class": (DATA, "print(type(data).__name__, data.__class__.__name__)", LOAD),
    "pictures that are shown": (
        MNIST, "import torchvision", "torchvision.utils.save_image(data.data[:4], 'x.png')", LOAD
    ),
    "options with a dataset": (DATA, LOAD, "name = cfg.dataset", "build(name, self.args.dataset)"),
    "logging": (DATA, "import logging", "logging.getLogger().info(data)", LOAD),
    "arguments of a transform": (
        "crop = transforms.CenterCrop(8)", "print(crop.size)", "steps = [crop]", USE
    ),
}  # fmt: skip


@pytest.mark.parametrize("parts", READ.values(), ids=READ)
def test_what_only_looks_leaves_it_as_it_is(project, parts):
    done = migrate(write(project.folder, head("\n".join(parts) + "\n")), "--json")
    assert done.status == 0, done.document["untranslated"]
    assert len(done.document["files"]) == 1


BASE = (
    "class Base:\n"
    "    def __init__(self):\n"
    "        self.tf = transforms.Compose([transforms.ToTensor()])\n"
    "        self.more()\n"
    "    def more(self):\n"
    "        pass\n"
    "    def loader(self):\n"
    "        return DataLoader(datasets.ImageFolder('/d/x', self.tf))\n"
)
MORE = "    def more(self):\n        self.tf.transforms.insert(0, Mine())\n"
RELATED = {
    "a class below": f"{BASE}class Child(Base):\n{MORE}",
    "two below": f"{BASE}class Middle(Base):\n    pass\nclass Child(Middle):\n{MORE}",
    "a mixin": f"class Mixin:\n{MORE}{BASE}class Child(Mixin, Base):\n    pass\n",
    "a mixin of a mixin": (
        f"class Mixin:\n{MORE}class Other(Mixin):\n    pass\n{BASE}"
        "class Middle(Base):\n    pass\nclass Child(Other, Middle):\n    pass\n"
    ),
    "a class by another name": f"{BASE}Other = Base\nclass Child(Other):\n{MORE}",
    "a class that a function makes": (
        f"{BASE}def below(base):\n    class Child(base):\n"
        + "".join(f"    {line}\n" for line in MORE.splitlines())
        + "    return Child\nbelow(Base)\n"
    ),
    "a class of type()": f"class Mixin:\n{MORE}{BASE}Child = type('Child', (Mixin, Base), {{}})\n",
    "a property": (
        f"{BASE}class Child(Base):\n    @property\n    def tf(self):\n        return None\n"
    ),
    "another value": (
        f"{BASE}class A(Base):\n    pass\nclass B(A):\n    def f(self):\n        self.tf = None\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", RELATED.values(), ids=RELATED)
def test_what_a_related_class_changes_of_self_is_seen(project, body):
    done = migrate(write(project.folder, head(body)), "--json").document
    assert done["files"] == {} and done["diff"] == ""
    assert "self.tf may be changed here" in done["untranslated"][0]["text"]


def test_a_class_that_has_to_do_with_no_other_changes_nothing(project):
    body = f"{BASE}class Top:\n    pass\nclass Other(Top):\n{MORE}class Last(Other):\n    pass\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    assert len(done["files"]) == 1 and not done["untranslated"]


NUMBERS = {
    "an own function": ("def int(x):\n    return 7\n", "int(9.5)"),
    "a function of a module": ("from mine import int\n", "int(9.5)"),
    "an argument with a name": ("", "int('10', base=16)"),
}


@pytest.mark.parametrize(("lines", "size"), NUMBERS.values(), ids=NUMBERS)
def test_a_function_that_is_not_pythons_gives_no_number(project, lines, size):
    body = f"{lines}{STEPS.replace('8', size)}\n{USE}\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    assert done["diff"] == "" and f"{size} is not a literal" in str(done["untranslated"])
