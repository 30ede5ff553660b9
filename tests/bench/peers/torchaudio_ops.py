"""torchaudio_ops.py FOLDER CPU: CPU seconds of a chain of torchaudio or librosa on one audio file.

Writes FOLDER/audio.wav, .flac, .ogg and .mp3 (ten seconds at 44,100 Hz) first. Each line on
standard input, "REPEATS LIBRARY KIND CHAIN", is answered by the seconds for one file
(suite/audio.py takes turns with audio_times). Files are read by soundfile, which is libsndfile.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import librosa
import numpy as np
import soundfile
import torch
import torchaudio

RATE, SECONDS = 44100, 10
MEL = {"n_fft": 400, "hop_length": 160, "n_mels": 80}


def write_files(folder: Path) -> None:
    """Write a rising tone over noise in every kind of file."""
    random = np.random.Generator(np.random.PCG64(1))
    frames = RATE * SECONDS
    tone = 0.4 * np.sin(np.cumsum(np.linspace(0.01, 0.5, frames)))
    samples = (tone + random.normal(0, 0.05, frames)).astype(np.float32)
    for kind in ("wav", "flac", "ogg", "mp3"):
        soundfile.write(folder / f"audio.{kind}", samples, RATE)


def chains() -> dict:
    """Return what is done with samples, by library and name."""
    resample = torchaudio.transforms.Resample(RATE, 16000)
    mel = torchaudio.transforms.MelSpectrogram(16000, **MEL)
    decibels = torchaudio.transforms.AmplitudeToDB(top_db=80)

    def torch_of(samples):
        return torch.from_numpy(samples)

    def librosa_mel(samples):
        power = librosa.feature.melspectrogram(y=samples, sr=16000, **MEL)
        return librosa.power_to_db(power)

    def librosa_resampled(samples):
        return librosa.resample(samples, orig_sr=RATE, target_sr=16000)

    return {
        "torchaudio": {
            "decode": torch_of,
            "mel": lambda s: decibels(mel(torch_of(s))),
            "resample_mel": lambda s: decibels(mel(resample(torch_of(s)))),
        },
        "librosa": {
            "decode": lambda s: s,
            "mel": librosa_mel,
            "resample_mel": lambda s: librosa_mel(librosa_resampled(s)),
        },
    }


def main() -> None:
    """Answer lines."""
    os.sched_setaffinity(0, {int(sys.argv[2])})
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    write_files(folder)
    known = chains()
    print("ready", flush=True)
    for line in sys.stdin:
        repeats, library, kind, chain = line.split()
        function = known[library][chain]

        def once(path=folder / f"audio.{kind}", function=function) -> None:
            function(soundfile.read(path, dtype="float32")[0])

        once()
        start = time.process_time()
        for _ in range(int(repeats)):
            once()
        print((time.process_time() - start) / int(repeats), flush=True)


if __name__ == "__main__":
    main()
