"""The order of a script's DataLoaders: what their samplers mean, as a section `sampler`."""

from __future__ import annotations

import ast
from typing import Any, Optional

from .script import NotLiteral, Script, is_none
from .script_changes import Changes
from .script_datasets import flag
from .script_report import Report

_SAMPLER_ARGUMENTS = ["data_source", "replacement", "num_samples", "generator"]
_NEXT_OF_FLAG = (
    ". Next: a DataLoader for each value, with True and False written out; or "
    "feedwater.Loader.from_dataset, whose shuffle= takes it"
)
_DISTRIBUTED_ARGUMENTS = ["dataset", "num_replicas", "rank", "shuffle", "seed", "drop_last"]
_MOST_SEED = (1 << 63) - 1
# What gives the rank and the number of ranks that a Loader finds out itself.
_RANKS = ("torch.distributed.get_rank", "horovod.torch.rank")
_WORLDS = ("torch.distributed.get_world_size", "horovod.torch.size")
# What only a script of several ranks has.
_DISTRIBUTED = (
    "torch.distributed", "torch.utils.data.distributed", "torch.utils.data.DistributedSampler",
    "torch.nn.parallel.DistributedDataParallel", "apex.parallel", "colossalai", "composer",
    "deepspeed", "fairscale", "horovod", "ignite.distributed", "mpi4py", "smdistributed",
    "torch_xla",
)  # fmt: skip
# What gives each rank its share of a DataLoader that has no DistributedSampler.
_SHARING = {
    "accelerate": "Accelerate", "lightning": "Lightning", "lightning_fabric": "Lightning",
    "pytorch_lightning": "Lightning", "ray.train": "Ray Train",
}  # fmt: skip


class _NoOrder(Exception):
    """An order that no `sampler:` gives; the text says why."""


class Orders:
    """Finds the order and the rank that a loader has by its arguments and its sampler."""

    def __init__(self, script: Script, report: Report, changes: Changes) -> None:
        self._script = script
        self._report = report
        self._changes = changes

    def of(
        self, call: ast.Call, given: dict[str, ast.expr]
    ) -> Optional[tuple[dict[str, Any], Optional[str]]]:
        """Return the section `sampler`, and the Loader's arguments that say its place; None in
        place of the latter where no DistributedSampler gives the loader one.

        None where no order of ours is the loader's, which is reported then.
        """
        try:
            shuffles, seed, ranks = self._sampled(call, given)
            drops = flag(self._script, given, "drop_last", False)
        except NotLiteral as unknown:
            self._report.cannot(
                call,
                f"the order depends on {unknown}, which only running it tells"
                + ("" if "sampler" in given else _NEXT_OF_FLAG),
            )
            return None
        except _NoOrder as reason:
            self._report.cannot(call, str(reason))
            return None
        order: dict[str, Any] = {"shuffle": "full" if shuffles else "none"}
        if seed:
            order["seed"] = seed
        order["last"] = "drop" if drops else "partial"
        return order, ranks

    def of_every_rank(self, call: ast.Call, file: str, is_random: bool) -> Optional[str]:
        """Return the Loader's arguments that let it read what a DataLoader without a
        DistributedSampler did, and note it. None where no arguments do: the ranks of a DataLoader
        draw their own numbers, and those of Loaders the same, by the file's seed.
        """
        shares = self._script.mention(_SHARING)
        if shares is not None:
            node, module = shares
            self._report.note(
                call,
                f"{_SHARING[module]} (line {getattr(node, 'lineno', 0)}) gives each rank its share "
                "of a DataLoader that it is handed, and feedwater.Loader takes its share itself. "
                "Of one that it is not handed every rank reads all samples: say "
                "Loader(rank=0, world_size=1) there",
            )
            return ""
        spread = self._script.mention(_DISTRIBUTED)
        if spread is None:
            return ""
        said = (
            f"the script has several ranks (line {getattr(spread[0], 'lineno', 0)}), and this "
            "DataLoader has no DistributedSampler: every rank reads all samples"
        )
        if is_random:
            self._report.cannot(
                call,
                f"{said}, in an order or with draws of its own, and a pipeline file has one seed; "
                f"the DataLoader stays. Next: feedwater.Loader({file!r}) gives each rank its "
                "share, as a DistributedSampler does; or Loader(..., rank=0, world_size=1, "
                "seed=RANK) all samples, and each rank its own draws",
            )
            return None
        self._report.note(
            call,
            f"{said}, as rank=0, world_size=1 say. Without them each rank reads its share",
        )
        return ", rank=0, world_size=1"

    def _sampled(
        self, call: ast.Call, given: dict[str, ast.expr]
    ) -> tuple[bool, int, Optional[str]]:
        """Return whether records are shuffled, the seed and the place, which are the same with
        each sampler that the loader may get.
        """
        script = self._script
        sampler = given.get("sampler")
        if sampler is None or is_none(sampler):
            return flag(script, given, "shuffle", False), 0, None
        values: list[Optional[ast.expr]] = [sampler]
        if isinstance(sampler, ast.Name):
            values = [value for value, _ in script.assignments(sampler)]
            script.meet(sampler, is_loaders=True)
            reason = self._changes.samplers.refusal(call, sampler)
            if reason is not None:
                raise _NoOrder(reason)
        values = [branch for value in values for branch in _branches(value)]
        answers: set[bool] = set()
        seeds: set[int] = set()
        places: set[str] = set()
        for value in values:
            if value is None:
                raise NotLiteral(script.source(sampler))
            if is_none(value):
                shuffle = given.get("shuffle")
                if shuffle is not None and _asks_whether_none(shuffle, sampler):
                    answers.add(isinstance(shuffle.ops[0], ast.Is))  # type: ignore[attr-defined]
                else:
                    answers.add(flag(script, given, "shuffle", False))
                continue
            name = script.dotted(value.func) if isinstance(value, ast.Call) else ""
            if not name.startswith("torch.utils.data.") or not isinstance(value, ast.Call):
                raise NotLiteral(script.source(value))
            kind = name.rpartition(".")[2]
            is_distributed = kind == "DistributedSampler"
            names = _DISTRIBUTED_ARGUMENTS if is_distributed else _SAMPLER_ARGUMENTS
            own, unpacked = script.arguments(value, names)
            if is_distributed or kind in ("RandomSampler", "SequentialSampler"):
                self._check_sampled(call, given, value, own.get(names[0]))
            if is_distributed:
                answers.add(flag(script, own, "shuffle", True))
                seeds.add(self._seed(own))
                places.add(self._place(call, own))
                self._note_dropped(value, given, own)
            elif kind in ("RandomSampler", "SequentialSampler"):
                answers.add(kind == "RandomSampler")
                if flag(script, own, "replacement", False) or not is_none(
                    script.follow(own.get("num_samples", ast.Constant(None)))
                ):
                    raise _NoOrder(
                        f"{script.source(value)}: an epoch has every sample once; there is no "
                        "replacement and no num_samples"
                    )
            else:
                raise NotLiteral(script.source(value))
            if unpacked or not set(own) <= set(names):
                raise NotLiteral(script.source(value))
        if len(answers) != 1 or len(seeds) > 1 or len(places) > 1:
            raise NotLiteral(script.source(sampler))
        place = places.pop() if places else None
        if place and len(values) > 1:
            raise _NoOrder(
                f"{script.source(sampler)} has a rank of its own only in some branches: give "
                "Loader(rank=, world_size=) there"
            )
        return answers.pop(), seeds.pop() if seeds else 0, place

    def _check_sampled(
        self,
        call: ast.Call,
        given: dict[str, ast.expr],
        sampler: ast.Call,
        sampled: Optional[ast.expr],
    ) -> None:
        """Raise _NoOrder where a sampler is not one of the loader's dataset."""
        script = self._script
        dataset = given.get("dataset")
        if sampled is None or dataset is None:
            raise NotLiteral(script.source(sampler))
        is_same = script.follow(sampled) is script.follow(dataset) or (
            script.whole_source(sampled) == script.whole_source(dataset)
            and self._is_one_value(dataset, sampled, sampler, call)
        )
        if not is_same:
            raise _NoOrder(
                f"{script.source(sampler)} samples {script.source(sampled)}, and the DataLoader "
                f"of line {call.lineno} is over {script.source(dataset)}: other records, or "
                "another number of them; it stays. Next: give the sampler the loader's own dataset"
            )

    def _is_one_value(
        self, dataset: ast.expr, sampled: ast.expr, sampler: ast.Call, call: ast.Call
    ) -> bool:
        """Tell whether a name, or an attribute, has the same value for a sampler and its loader."""
        script = self._script
        if isinstance(dataset, ast.Name) and isinstance(sampled, ast.Name):
            if script.binding(dataset) is not script.binding(sampled):
                return False
            places = [place for _, place in script.assignments(dataset)]
        elif isinstance(dataset, ast.Attribute) and not isinstance(dataset.value, ast.Call):
            if script.class_of(dataset) is not script.class_of(sampled):
                return False
            places = list(script.stores(dataset.attr))
        else:
            return False
        lines = (sampler.lineno, call.lineno)
        return not any(
            min(lines) < getattr(place, "lineno", 0) <= max(lines)
            for place in places
            if script.scope(place) is script.scope(call)
        )

    def _seed(self, own: dict[str, ast.expr]) -> int:
        if "seed" not in own:
            return 0
        seed = self._script.value(own["seed"])
        if type(seed) is not int or not 0 <= seed <= _MOST_SEED:
            raise NotLiteral(self._script.source(own["seed"]))
        return seed

    def _place(self, call: ast.Call, own: dict[str, ast.expr]) -> str:
        """Return the arguments that give a Loader the rank of a sampler; "" for its own."""
        script = self._script
        given = {
            name: own[name]
            for name in ("num_replicas", "rank")
            if name in own and not is_none(script.follow(own[name]))
        }
        if all(self._is_own(name, value) for name, value in given.items()):
            return ""
        if len(given) == 1:
            (name,) = given
            raise _NoOrder(
                f"DistributedSampler({name}=) of line {given[name].lineno} gives one of rank and "
                "num_replicas: Loader(rank=, world_size=) takes both"
            )
        for name, value in given.items():
            if not self._is_own(name, value) and not self._means_the_same(value, call):
                raise NotLiteral(script.source(value))
            self._changes.kept.add(value)
        rank, world = (script.whole_source(given[name]) for name in ("rank", "num_replicas"))
        return f", rank={rank}, world_size={world}"

    def _is_own(self, name: str, node: ast.expr) -> bool:
        """Tell whether an expression is the process group's `rank`, or its number of ranks."""
        value = self._script.follow(node)
        if not isinstance(value, ast.Call) or value.args or value.keywords:
            return False
        return self._script.dotted(value.func) in (_RANKS if name == "rank" else _WORLDS)

    def _means_the_same(self, node: ast.expr, call: ast.Call) -> bool:
        """Tell whether an expression has the value of its place where a call stands, too."""
        script = self._script
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute):
                if not script.is_set_once(inner):
                    return False
            elif isinstance(inner, ast.Name):
                scope = script.binding(inner)
                is_known = scope is script.tree or scope is script.scope(call)
                if not is_known or len(script.assignments(inner)) > 1 or script.meet(inner):
                    return False
            elif not isinstance(inner, (ast.Constant, ast.expr_context)):
                return False
        return True

    def _note_dropped(
        self, sampler: ast.Call, given: dict[str, ast.expr], own: dict[str, ast.expr]
    ) -> None:
        if flag(self._script, given, "drop_last", False):
            return
        if flag(self._script, own, "drop_last", False):
            what = "DistributedSampler(drop_last=True) leaves out what does not fill all ranks"
            gives = "gives it, and ranks may get batches of other sizes"
        else:
            what = "DistributedSampler repeats samples until all ranks have as many"
            gives = (
                "does not: the last batches of ranks differ in size, and may be empty. `last: pad` "
                "repeats more samples, until all batches are whole"
            )
        self._report.note(sampler, f"{what}; `last: partial` {gives}")


def _branches(value: Optional[ast.expr]) -> list[Optional[ast.expr]]:
    """Return what an expression may be: of `A if CONDITION else B` both."""
    if isinstance(value, ast.IfExp):
        return _branches(value.body) + _branches(value.orelse)
    return [value]


def _asks_whether_none(node: ast.expr, name: ast.expr) -> bool:
    """Tell whether a node is `NAME is None` or `NAME is not None`."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name)
        and isinstance(name, ast.Name)
        and node.left.id == name.id
        and len(node.ops) == 1
        and isinstance(node.ops[0], (ast.Is, ast.IsNot))
        and is_none(node.comparators[0])
    )
