"""The machine's own terms: what each step costs by itself, and memory bandwidth.

Nanoseconds of CPU time per compressed byte, per 8x8 block, per pixel, by chroma sampling, each step
alone on one core. A pipeline cannot be faster than the sum of its steps, so these say what a figure
of another benchmark is worth on this machine.
"""

from __future__ import annotations

from . import Context, Figure

CPU = 1


def run(context: Context) -> list[Figure]:
    """Measure."""
    figures = []
    for name, photos in context.sets.items():
        rounds = 3 if context.quick else 9
        terms = context.tool("roofline", photos, "--rounds", rounds, "--cpu", CPU)["terms"]
        units: dict[str, set[str]] = {}
        for term in terms:
            units.setdefault(term["term"], set()).add(term["unit"])
        for term in terms:
            what, unit, kind = term["term"], term["unit"], term["set"]
            if len(units[what]) > 1:
                what += f", by the {unit.partition('/')[2]}"
            if kind or name == next(iter(context.sets)):  # the machine's own stand once
                column = f"{name}, {kind}" if kind else "machine"
                better = "more" if unit == "GB/s" else "less"
                figures.append(Figure(what, term["got"], unit=unit, better=better, column=column))
    return figures
