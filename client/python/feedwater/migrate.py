"""`feedwater migrate`: what of a PyTorch training script a pipeline can do, as files and a diff.

The script is read, never run. Each `DataLoader` over one of torchvision's datasets becomes a
pipeline file and a `feedwater.Loader`; what cannot be translated is listed with its line and the
reason, and stands as a comment where its op would be.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Optional

from . import errors
from .script import Script
from .script_loaders import Migration, Migrator
from .script_text import lines, printable


def migrate(path: str, folder: str = "") -> tuple[Migration, str]:
    """Read a script; return what was found, and the diff of the script.

    Parameters
    ----------
    path : str
        The script.
    folder : str
        Where the pipeline files will be, as the changed script names them.

    Raises
    ------
    InvalidArgument
        It is not a script that Python takes.
    """
    script = Script(path)
    found = Migrator(script, folder).run()
    others = {
        name for name, text in found.files.items() if folder and _is_other(folder, name, text)
    }
    if others:  # pipelines of another script, say
        script = Script(path)
        found = Migrator(script, folder, others).run()
    before, after = (
        [line.replace("\n", script.newline) for line in lines(text)]
        for text in (script.text, found.text)
    )
    diff = difflib.unified_diff(before, after, path, path)
    return found, "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff
    )


def _is_other(folder: str, name: str, text: str) -> bool:
    """Tell whether there is a file of a name with anything else in it."""
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return os.path.lexists(path)
    with open(path, "rb") as file:
        return file.read(len(text.encode()) + 1) != text.encode()


def _print(path: str, found: Migration, diff: str, folder: str) -> None:
    for name, text in found.files.items():
        print(f"=== {os.path.join(folder, name)}\n{text}")
    if diff:
        how = _how_to_apply(path, found, diff, folder)
        print(f"=== changes of {path}; to apply them: {how}\n{diff}")
    for title, listed in (("not translated", found.untranslated), ("notes", found.notes)):
        if listed:
            print(f"=== {title}")
            for line, text in listed:
                print(f"{path}:{line}: {printable(text)}")
            print()


def _how_to_apply(path: str, found: Migration, diff: str, folder: str) -> str:
    """Return a line of a shell that makes the changes, and the files where they are not there."""
    # A status of 1 says that something was not translated; at 2 a diff that is there is another's.
    then = "; [ $? -le 1 ] &&" if found.untranslated else " &&"
    made = os.path.join(folder or "pipelines", f"{os.path.basename(path)}.diff")
    script = shlex.quote(path)
    # A file that is named is taken wherever it lies; lines of Windows stay what they are.
    binary = " --binary" if "\r" in diff else ""
    apply = f"patch{binary} {script} < {shlex.quote(made)}"
    return printable(
        apply if folder else f"feedwater migrate {script} --out pipelines{then} {apply}"
    )


def _write(folder: str, path: str, found: Migration, diff: str) -> None:
    os.makedirs(folder, exist_ok=True)
    files = dict(found.files)
    if diff:
        files[f"{os.path.basename(path)}.diff"] = diff
    for name, text in files.items():
        if _is_other(folder, name, text):
            raise errors.AlreadyExists(
                f"{os.path.join(folder, name)} is there already, and differs; remove it, or name "
                "another folder"
            )
    for name, text in files.items():
        made = os.path.join(folder, name)
        if not os.path.lexists(made):
            with open(made, "x", encoding="utf-8", newline="") as file:
                file.write(text)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="feedwater migrate",
        description="Reads a PyTorch training script, without running it, and prints the pipeline "
        "files for its DataLoaders over torchvision's datasets, the changed lines as a diff, and "
        "what could not be translated. Exit status: 0 all was translated, 1 something was not, 2 "
        "it failed: the script cannot be read, or the files cannot be written.",
    )
    parser.add_argument("script", metavar="SCRIPT.py")
    parser.add_argument(
        "--out", metavar="DIR", default="", help="write the files and SCRIPT.py.diff there"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    try:
        found, diff = migrate(options.script, options.out)
        if options.out:
            _write(options.out, options.script, found, diff)
    except (errors.Error, OSError) as error:
        if options.json:
            code = error.code if isinstance(error, errors.Error) else "INTERNAL"
            print(json.dumps({"error": {"code": code, "message": str(error)}}, indent=2))
        else:
            print(f"feedwater: {_printable_lines(str(error))}", file=sys.stderr)
        return 2
    if options.json:
        lists = {"untranslated": found.untranslated, "notes": found.notes}
        document = {
            "files": found.files,
            "diff": diff,
            **{
                name: [{"line": line, "text": text} for line, text in listed]
                for name, listed in lists.items()
            },
        }
        print(json.dumps(document, indent=2))
    else:
        _print(options.script, found, diff, options.out)
    return 1 if found.untranslated else 0


def _printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


if __name__ == "__main__":
    sys.exit(main())
