"""An audio file to a log-mel spectrogram: torchaudio's and librosa's CPU time ÷ ours.

Ten seconds at 44,100 Hz, one channel, one thread each, by turns on the same CPU: decoded; decoded
and made a mel spectrogram of 80 bands; the same with resampling to 16,000 Hz before. The others
read files through soundfile, which is libsndfile with the codecs that are used here. torchaudio and
librosa are in build/peers/torchaudio (`scripts/bench audio --install`).
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from . import BUILD, Context, Figure
from .ops import CPU, Side
from .peers import FOLDER, SCRIPTS, make_environment

TOOL = BUILD / "tools/audio_times"
PACKAGES = [["torch==2.9.1", "torchaudio==2.9.1", "librosa", "soundfile"]]
KINDS = ("wav", "flac", "ogg", "mp3")
RATE, SECONDS = 44100, 10
MEL = (
    "{mel_spectrogram: {in: mel, out: mel, sample_rate: 16000, n_fft: 400, hop_length: 160, "
    "n_mels: 80}}, {amplitude_to_db: {in: mel, top_db: 80}}"
)


def graph(rate: int, more: str) -> str:
    """Return the ops from the file to `mel`."""
    decode = f"{{decode_audio: {{in: data, out: mel, sample_rate: {rate}, mono: true}}}}"
    crop = f"{{crop_audio: {{in: mel, frames: {rate * SECONDS}}}}}"
    return "[" + ", ".join(part for part in (decode, crop, more) if part) + "]"


CHAINS = {
    "decode": graph(RATE, ""),
    "mel": graph(RATE, MEL),
    "resample_mel": graph(16000, MEL),
}


def install() -> None:
    """Make the virtual environment."""
    make_environment("torchaudio and librosa", FOLDER / "torchaudio", PACKAGES)


def run(context: Context) -> list[Figure]:
    """Measure."""
    python = FOLDER / "torchaudio/bin/python"
    if not python.exists():
        context.absent["torchaudio"] = "not installed: scripts/bench audio --install"
        return []
    figures = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peer = Side(stack, [python, SCRIPTS / "torchaudio_ops.py", folder, str(CPU)])
        peer.wait()
        for kind in KINDS:
            file = folder / f"audio.{kind}"
            ours = {
                "best": Side(stack, [TOOL, file, "--cpu", str(CPU)]),
                "AVX2": Side(stack, [TOOL, file, "--cpu", str(CPU), "--target", "AVX2"]),
            }
            for chain, ops in CHAINS.items():
                times: dict[str, list[float]] = {column: [] for column in ours}
                peers: dict[str, list[float]] = {"torchaudio": [], "librosa": []}
                for _ in range(3 * context.rounds):
                    for column, side in ours.items():
                        times[column].append(1e3 * side.seconds(f"5 {ops}"))
                    for library, rounds in peers.items():
                        rounds.append(1e3 * peer.seconds(f"3 {library} {kind} {chain}"))
                for column, mine in times.items():
                    for library, theirs in peers.items():
                        ratios = [a / b for a, b in zip(theirs, mine)]
                        what = f"{kind}, {chain} ÷ {library}"
                        figures.append(Figure.of(what, ratios, column=column))
                    figures.append(
                        Figure.of(f"{kind}, {chain}", mine, unit="ms", better="less", column=column)
                    )
    return figures
