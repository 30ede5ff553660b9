"""The JSON Schemas and the programs take the same files: both are written from one registry.

Every parameter of every op and format, and every key of both files, is given values in and around
its range. What a program takes, the schema must take; what the schema takes, the program must take,
but for rules that JSON Schema cannot say, which are listed here.
"""

from __future__ import annotations

import copy
import inspect
import json
import random
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from daemon_process import BUILD, DAEMON, ROOT

import feedwater

jsonschema = pytest.importorskip("jsonschema")
PROGRAM = BUILD / "bin/feedwater"
CONFIG = ROOT / "config"

# Rules that need more than one value, the data or the machine. For these keys a schema may take
# what a program refuses; the reverse never.
BEYOND_JSON_SCHEMA = {
    "in": "fields must exist and fit the op",
    "out": "as many names as the op writes",
    "size": "a crop fits into the image; limits.max_pixels",
    "max_size": "needs a single number as size, which is smaller",
    "interpolation": "as many as fields",
    "scale": "low <= high",
    "ratio": "low <= high",
    "brightness": "low <= high; 1 + x is within the range, too",
    "contrast": "low <= high; 1 + x is within the range, too",
    "saturation": "low <= high; 1 + x is within the range, too",
    "hue": "low <= high",
    "degrees": "low <= high",
    "shear": "low <= high; 0 is within the range, too",
    "distort_limit": "low <= high; 0 and -x are within the range, too",
    "scale_range": "low <= high",
    "side_range": "low <= high",
    "sigma": "low <= high",
    "clip_limit": "low <= high",
    "kernel_size": "odd whole numbers",
    "blur_limit": "odd whole numbers, low <= high",
    "num_holes": "whole numbers, low <= high",
    "hole_height": "whole numbers, low <= high",
    "hole_width": "whole numbers, low <= high",
    "fill": "as the dtype of the image can hold; one number or one per channel",
    "value": "as fill",
    "translate": "two numbers",
    "center": "two numbers",
    "min_size": "one number at least; less than max_size",
    "sampler_options": "one number at least",
    "min_scale": "at most max_scale",
    "max_scale": "at least min_scale",
    "min_aspect_ratio": "at most max_aspect_ratio",
    "max_aspect_ratio": "at least min_aspect_ratio",
    "magnitude": "less than num_magnitude_bins",
    "tile_grid_size": "whole numbers",
    "quality": "whole numbers, low <= high",
    "weights": "as many as ops",
    "n": "whole numbers, at most as many as ops",
    "mean_vector": "as many as the matrix has rows",
    "transformation_matrix": "as many rows as mean_vector has numbers",
    "length": "a multiple of samples",
    "samples": "divides length",
    "num_magnitude_bins": "more than magnitude",
    "padding": "limits.max_pixels",
    "n_fft": "its prime factors; no less than win_length",
    "win_length": "at most n_fft",
    "n_mels": "no less than n_mfcc",
    "n_mfcc": "at most n_mels",
    "f_min": "below f_max",
    "f_max": "above f_min, at most half of sample_rate",
    "sample_rate": "twice f_max",
    "power": "1 or 2",
    "orig_freq": "has a common divisor with new_freq",
    "new_freq": "has a common divisor with orig_freq",
    "channels": "is not given with mono",
    "mono": "is not given with channels",
    "shape": "its bytes fit into 63 bits",
    "plugins": "the files must be there",
    "cpus": "CPUs of this machine",
    "numa_node": "nodes of this machine",
    "memory": "memory of this machine",
    "engine": "io_uring may be refused here",
    "users": "users of this machine",
    "groups": "groups of this machine",
    "pipelines": "folders must exist",
    "handshake_timeout": "a schema sees the form of a time, not how long it is",
    "pipeline_bytes": "a schema sees the form of a size, not how large it is",
}


@pytest.fixture(scope="module", autouse=True)
def built():
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")


@pytest.fixture(scope="module")
def generator(request):
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # shown when a test fails
    return random.Random(seed)


def schema(name: str) -> dict:
    document = json.loads((CONFIG / f"schema/{name}.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(document)
    return document


def problems(name: str, text: str) -> list[str]:
    validator = jsonschema.Draft7Validator(schema(name))
    return [error.message for error in validator.iter_errors(yaml.safe_load(text))]


def described() -> dict:
    done = subprocess.run([PROGRAM, "describe", "--json"], capture_output=True, text=True)
    return json.loads(done.stdout)


def refusal(folder: Path, name: str, text: str) -> str:
    """What the program says against the text, or nothing."""
    (said,) = refusals(folder, name, [text])
    return said


def refusals(folder: Path, name: str, texts: list[str]) -> list[str]:
    """What the program says against each text, or nothing."""
    files = [folder / f"{random.getrandbits(64):x}.yaml" for _ in texts]
    for file, text in zip(files, texts):
        file.write_text(text)
    if name != "pipeline":
        return [refused_by_daemon(file) for file in files]
    # Two files at least: of one alone the document is another.
    done = subprocess.run(
        [PROGRAM, "validate", "--json", *files, files[0]], capture_output=True, text=True
    )
    assert done.returncode in (0, 2), done.stderr
    documents = json.loads(done.stdout)
    assert [document["file"] for document in documents] == [str(f) for f in [*files, files[0]]]
    assert all(document["valid"] or document["error"] for document in documents)
    return [document.get("error", "") for document in documents[:-1]]


def refused_by_daemon(file: Path) -> str:
    done = subprocess.run([DAEMON, "--config", file, "--check"], capture_output=True, text=True)
    assert done.returncode in (0, 2), (file.read_text(), done.stderr)
    return "" if done.returncode == 0 else done.stderr or "refused without a word"


# --- values around what a schema takes


def parts(leaf: dict) -> list[dict]:
    """The schema and its alternatives."""
    found = [leaf]
    for alternatives in ("anyOf", "oneOf"):
        for part in leaf.get(alternatives, []):
            found += parts(part)
    return found


def scalars(part: dict, generator: random.Random) -> list:
    values = list(part.get("enum", []))
    values += [part[key] for key in ("const", "default") if key in part]
    is_integer = "integer" in part.get("type", [])
    for bound, outwards in (("minimum", -1), ("maximum", 1)):
        if bound in part:
            step = 1 if is_integer else abs(part[bound]) * 1e-6 + 1e-9
            values += [part[bound], part[bound] + outwards * step, part[bound] - outwards * step]
    if "minimum" in part and "maximum" in part:
        draw = generator.randint if is_integer else generator.uniform
        values += [draw(part["minimum"], part["maximum"]) for _ in range(2)]
    return values


def values(leaf: dict, generator: random.Random) -> list:
    found = [None, True, [], {}, "nosuchword", 1, 0.5, [1, "x"]]
    found += ["1.5MiB", "20 min", "3x"] if any("pattern" in part for part in parts(leaf)) else []
    for part in parts(leaf):
        found += scalars(part, generator)
        if "items" in part:
            items = [value for item in parts(part["items"]) for value in scalars(item, generator)]
            items = items or [7]
            for length in range(1, 6):
                found.append([generator.choice(items) for _ in range(length)])
            found.append([items[0]] * part.get("minItems", 2))
    unique = {json.dumps(value): value for value in found}
    return list(unique.values())


def leaves(node: dict, path: tuple = ()):
    """Every key below a map of a schema, maps included."""
    for key, value in node.get("properties", {}).items():
        yield (*path, key), value
        yield from leaves(value, (*path, key))


def put(document: dict, path: tuple, value) -> str:
    """The document as text, with the value at its place."""
    document = copy.deepcopy(document)
    where = document
    for key in path[:-1]:
        where = where[key] if isinstance(where, list) else where.setdefault(key, {})
    where[path[-1]] = value
    return yaml.safe_dump(document, sort_keys=False)


def compare(folder: Path, name: str, texts: list[tuple[str, str]]) -> int:
    """Schema and program on (key, text); the number that both take."""
    validator = jsonschema.Draft7Validator(schema(name))
    shares = [[text for _, text in texts[at : at + 100]] for at in range(0, len(texts), 100)]
    with ThreadPoolExecutor(4) as pool:
        said = pool.map(lambda share: refusals(folder, name, share), shares)
        all_said = [one for share in said for one in share]
    taken, wrong = 0, []
    for (key, text), refused in zip(texts, all_said):
        found = [error.message for error in validator.iter_errors(yaml.safe_load(text))]
        if found and not refused:
            wrong.append(f"only the schema refuses:\n{text}{found}")
        if refused and not found and key not in BEYOND_JSON_SCHEMA:
            wrong.append(f"only the program refuses:\n{text}{refused}")
        taken += not refused and not found
    print(len(texts), "files")
    assert not wrong, f"{len(wrong)} of {len(texts)}\n" + "\n".join(wrong[:10])
    return taken


CIFAR = {"version": 1, "dataset": {"format": "cifar10", "root": "r"}, "outputs": ["label"]}
FOLDER = {"version": 1, "dataset": {"format": "image_folder", "root": "r"}, "outputs": ["label"]}

BOXES = {
    "version": 1,
    "dataset": {"format": "coco", "root": "r", "path": "p", "annotations": "a.json"},
    "outputs": ["image_id"],
}


# Whose fields only its files tell: the graph is read, and not planned.
OF_ANY_FIELDS = {
    "version": 1,
    "dataset": {"format": "csv", "root": "r", "path": "p.csv"},
    "outputs": ["sample_id"],
}


def fields_of(op: dict, entry: dict | str) -> set[str]:
    """The fields that an op's example reads."""
    own = (entry if isinstance(entry, dict) else {entry: None})[op["op"]] or {}
    named = own.get("in", op["inputs"].split(", "))
    return {named} if isinstance(named, str) else set(named)


def test_a_pipeline_in_python_has_every_section_of_the_file():
    parameters = set(inspect.signature(feedwater.Pipeline).parameters) - {"name"}
    assert parameters | {"version"} == set(schema("pipeline")["properties"])


def op_schemas(document: dict, batch_ops: bool) -> dict:
    keys = document["properties"]
    ops = keys["batch"]["properties"]["graph"] if batch_ops else keys["graph"]
    items = ops["items"]
    return items.get("anyOf", [items])[0]["properties"]


def test_every_parameter_of_every_op(tmp_path, generator):
    document, texts = schema("pipeline"), []
    for op in described()["ops"]:
        name, batch_op = op["op"], op["batch_op"]
        entry = yaml.safe_load(op["example"])[0]
        base = copy.deepcopy(FOLDER if name == "decode" else CIFAR)
        others = fields_of(op, entry) - {"image", "data", "label", "boxes"}
        if batch_op:
            base = copy.deepcopy(OF_ANY_FIELDS) if others else base
            base["batch"], path = {"graph": [entry]}, ("batch", "graph", 0, name)
        elif name != "decode" and fields_of(op, entry) - {"image", "label", "boxes"}:
            base = copy.deepcopy(OF_ANY_FIELDS)
            base["graph"], path = [entry], ("graph", 0, name)
        elif "boxes" in op["example"]:
            base = copy.deepcopy(BOXES)
            base["graph"], path = ["decode", entry], ("graph", 1, name)
        else:
            base["graph"], path = [entry], ("graph", 0, name)
        own = op_schemas(document, batch_op)[name]
        of_all = {"in", "out"}
        if not batch_op and op["randomness"] != "none":
            of_all.add("draws_as")
        assert set(own["properties"]) == {param["name"] for param in op["params"]} | of_all
        texts.append(("", yaml.safe_dump(base)))
        texts.append(("", put(base, (*path, "nosuchkey"), 1)))
        for key, leaf in own["properties"].items():
            is_port = key in ("in", "out")
            found = ["x", ["x"], [], 3, "1x", ["x", "x"]] if is_port else values(leaf, generator)
            texts += [(key, put(base, (*path, key), value)) for value in found]
        for key in own.get("required", []):
            without = copy.deepcopy(base)
            del (without["batch"] if batch_op else without)["graph"][path[-2]][name][key]
            texts.append(("", yaml.safe_dump(without)))
    assert compare(tmp_path, "pipeline", texts) > 150


def test_every_parameter_of_every_format(tmp_path, generator):
    document, texts = schema("pipeline"), []
    common = document["properties"]["dataset"]["properties"]
    formats = {entry["format"]: entry for entry in described()["formats"]}
    for case in document["properties"]["dataset"]["allOf"]:
        name = case["if"]["properties"]["format"]["const"]
        example = yaml.safe_load(formats[name]["example"])["dataset"]
        needed = {p["name"]: example[p["name"]] for p in formats[name]["params"] if p["required"]}
        dataset = {"format": name, "root": "r", **needed}
        base = {"version": 1, "dataset": dataset, "outputs": ["sample_id"]}
        texts.append(("", yaml.safe_dump(base)))
        for key in needed:
            without = {k: v for k, v in dataset.items() if k != key}
            texts.append(("", yaml.safe_dump({**base, "dataset": without})))
        texts.append(("", put(base, ("dataset", "nosuchkey"), 1)))
        for key, leaf in {**case["then"]["properties"], **common}.items():
            texts += [
                (key, put(base, ("dataset", key), value)) for value in values(leaf, generator)
            ]
    assert compare(tmp_path, "pipeline", texts) > 50


def test_every_key_of_a_mix(tmp_path, generator):
    mix = schema("pipeline")["properties"]["dataset"]["then"]["properties"]
    source = {"format": "cifar10", "root": "r", "weight": 2}
    dataset = {"mix": [source, {"format": "cifar10", "root": "r"}], "stop": "all"}
    base = {"version": 1, "dataset": dataset, "outputs": ["dataset_id"]}
    texts = [("", yaml.safe_dump(base))]
    found = [*values(mix["stop"], generator), 1000, -3]
    texts += [("stop", put(base, ("dataset", "stop"), value)) for value in found]
    many = [dict(source) for _ in range(65)]
    for value in (None, [], {}, "x", 3, [3], [[]], many[:64], many, [dataset]):
        texts.append(("mix", put(base, ("dataset", "mix"), value)))
    weight = mix["mix"]["items"]["properties"]["weight"]
    for key, leaf in mix["mix"]["items"]["properties"].items():
        found = [*values(leaf, generator), *([0, -1, 2.75] if leaf == weight else [])]
        # Those of other formats have other fields, which a schema does not see.
        found = [v for v in found if key != "format" or v not in leaf["enum"] or v == "cifar10"]
        texts += [(key, put(base, ("dataset", "mix", 1, key), value)) for value in found]
    for key in ("format", "root"):
        without = {k: v for k, v in source.items() if k != key}
        texts.append(("", put(base, ("dataset", "mix"), [without])))
    for path in (("dataset", "nosuchkey"), ("dataset", "format"), ("dataset", "root"),
                 ("dataset", "mix", 0, "nosuchkey"), ("dataset", "mix", 0, "mix")):  # fmt: skip
        texts.append(("", put(base, path, "cifar10")))
    assert compare(tmp_path, "pipeline", texts) > 10


def test_every_other_key_of_a_pipeline(tmp_path, generator):
    document, texts = schema("pipeline"), [("", yaml.safe_dump(CIFAR))]
    for key in document["required"]:
        texts.append(("", yaml.safe_dump({k: v for k, v in CIFAR.items() if k != key})))
    for path, leaf in leaves(document):
        if path[0] == "dataset" and len(path) > 1:
            continue  # above
        found = values(leaf, generator)
        if path[-1] == "graph":  # what stands in it: above
            found = [None, [], {}, "decode", 1, [1], ["nosuchop"]]
        texts += [(path[-1], put(CIFAR, path, value)) for value in found]
        if "properties" in leaf:
            texts.append(("", put(CIFAR, (*path, "nosuchkey"), 1)))
    assert compare(tmp_path, "pipeline", texts) > 60


def test_every_key_of_the_configuration(tmp_path, generator):
    (tmp_path / "pipelines").mkdir()
    base = {
        "version": 1,
        "pipelines": ["pipelines"],
        "roots": {"here": str(tmp_path)},
        "runtime_dir": "run",
        "state_dir": "state",
    }
    document, texts = schema("feedwater"), [("", yaml.safe_dump(base))]
    for key in document["required"]:
        texts.append(("", yaml.safe_dump({k: v for k, v in base.items() if k != key})))
    for path, leaf in leaves(document):
        texts += [(path[-1], put(base, path, value)) for value in values(leaf, generator)]
        if "properties" in leaf:
            texts.append(("", put(base, (*path, "nosuchkey"), 1)))
    texts.append(("", put(base, ("access", "users"), [0])))  # by number
    assert compare(tmp_path, "feedwater", texts) > 60


# --- files as people write them


@pytest.mark.parametrize(
    "path", sorted((CONFIG / "pipelines").glob("*.yaml")), ids=lambda p: p.stem
)
def test_the_example_pipelines_are_good_for_both_and_name_the_schema(tmp_path, path):
    text = path.read_text()
    assert problems("pipeline", text) == []
    assert refusal(tmp_path, "pipeline", text) == ""
    check_first_line(path, "pipeline")


def check_first_line(path: Path, name: str) -> None:
    """Find the schema from the file's own folder, as an editor does."""
    line, start = path.read_text().splitlines()[0], "# yaml-language-server: $schema="
    assert line.startswith(start)
    named = path.parent / line[len(start) :]
    assert named.resolve() == (CONFIG / f"schema/{name}.schema.json").resolve()


def test_the_example_configuration_fits_the_schema_with_its_defaults_too():
    path = CONFIG / "feedwater.yaml"
    assert problems("feedwater", path.read_text()) == []
    check_first_line(path, "feedwater")
    # "# key: default" becomes "key: default"; sentences stay comments.
    text = re.sub(r"^( *)# (\w+: .*)$", r"\1\2", path.read_text().split("\n", 1)[1], flags=re.M)
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    loaded = yaml.safe_load(text)
    spelt_out = set(loaded)
    for part in loaded.values():
        spelt_out |= set(part) if isinstance(part, dict) else set()
    assert {path[-1] for path, _ in leaves(schema("feedwater"))} <= spelt_out, "every default"
    assert problems("feedwater", text) == []


def test_every_example_of_the_registries_fits_the_schema():
    document = described()
    assert len(document["ops"]) >= 10 and len(document["formats"]) >= 3
    for op in document["ops"]:
        graph = yaml.safe_load(op["example"])
        file = {**CIFAR, **({"batch": {"graph": graph}} if op["batch_op"] else {"graph": graph})}
        assert problems("pipeline", yaml.safe_dump(file)) == [], op["op"]
    for entry in document["formats"]:
        file = {**CIFAR, **yaml.safe_load(entry["example"])}
        assert problems("pipeline", yaml.safe_dump(file)) == [], entry["format"]


GOOD = """version: 1
dataset: {format: image_folder, root: r, path: p}
graph:
  - decode: {in: data, out: image}
  - resize: {size: [8, 8]}
batch: {size: 4, graph: [{mixup: {in: [image, label], alpha: 0.2, num_classes: 10}}]}
outputs: [image, label]
"""


def test_the_good_file_is_good_for_both(tmp_path):
    assert problems("pipeline", GOOD) == []
    assert refusal(tmp_path, "pipeline", GOOD) == ""


@pytest.mark.parametrize(
    "old, new",
    [
        ("version: 1", "version: 2"),
        ("format: image_folder", "format: image_fodler"),
        ("root: r, ", ""),
        ("path: p", "path: p, split: train"),
        ("- resize: {size: [8, 8]}", "- resiez: {size: [8, 8]}"),
        ("- resize: {size: [8, 8]}", "- resize: {sise: [8, 8]}"),
        ("- resize: {size: [8, 8]}", "- resize: {size: large}"),
        ("- resize: {size: [8, 8]}", "- resize: {size: [8, 8, 8]}"),
        ("- resize: {size: [8, 8]}", "- resize: {size: [8, 8], interpolation: best}"),
        ("- resize: {size: [8, 8]}", "- resize: {}"),
        ("- resize: {size: [8, 8]}", "- {resize: {size: [8, 8]}, cast: {}}"),
        ("- resize: {size: [8, 8]}", "- random_horizontal_flip: {p: 1.5}"),
        ("- resize: {size: [8, 8]}", "- mixup: {in: [image, label], alpha: 0.2}"),
        ("mixup: {in: [image, label], alpha: 0.2, num_classes: 10}", "resize: {size: [8, 8]}"),
        ("batch: {size: 4", "batch: {size: 0"),
        ("batch: {size: 4", "batch: {sise: 4"),
        ("outputs: [image, label]", "outputs: []"),
        ("outputs: [image, label]", "outputs: [image]\nsampler: {shuffle: some}"),
        ("outputs: [image, label]", "outputs: [image]\nlimits: {max_pixels: -1}"),
        ("outputs: [image, label]", "outputs: [image]\ncache: {kind: all}"),
        ("outputs: [image, label]", "outputs: [image]\non_bad_sample: ignore"),
        ("outputs: [image, label]", "outputs: [image]\nanything: 1"),
    ],
)
def test_both_refuse_what_is_wrong(tmp_path, old, new):
    wrong = GOOD.replace(old, new)
    assert wrong != GOOD
    assert problems("pipeline", wrong)
    assert refusal(tmp_path, "pipeline", wrong)
