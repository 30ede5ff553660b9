#!/usr/bin/env python3
"""Write golden/torchaudio.txt: what torchaudio makes of a waveform that the tests make, too.

In an environment of its own: pip install torch==2.9.1 torchaudio==2.9.1; python make_golden.py
"""

from __future__ import annotations

from pathlib import Path

import torch
import torchaudio
from torchaudio import functional, transforms

FRAMES = 900


def waveform(frames: int = FRAMES) -> torch.Tensor:
    """Return the numbers of `TestWaveform` in audio_testing.h: noise over two slow waves."""
    state, numbers = 1, []
    for i in range(frames):
        state = (state * 1664525 + 1013904223) % 2**32
        noise = (state >> 16) / 65536 - 0.5
        numbers.append(noise * 0.25 + (i % 50) / 50 * 0.5 - 0.25 + (i % 7) / 7 * 0.25)
    return torch.tensor(numbers, dtype=torch.float64).to(torch.float32)[None]


def main() -> None:
    """Write the file."""
    audio = waveform()
    mel = {"sample_rate": 16000, "n_mels": 20}
    small = {"n_fft": 128, "hop_length": 100}
    made = {"waveform": audio}
    made["mel_default"] = transforms.MelSpectrogram(**mel)(audio)
    made["mel_window"] = transforms.MelSpectrogram(**mel, n_fft=256, win_length=200, hop_length=90)(
        audio
    )
    made["mel_slaney"] = transforms.MelSpectrogram(
        **mel, **small, f_min=50, f_max=7000, norm="slaney", mel_scale="slaney", power=1.0
    )(audio)
    made["mel_constant"] = transforms.MelSpectrogram(
        **mel, **small, pad_mode="constant", normalized=False
    )(audio)
    made["mel_no_center"] = transforms.MelSpectrogram(**mel, **small, center=False)(audio)
    made["mel_odd"] = transforms.MelSpectrogram(**mel, n_fft=225, hop_length=100)(audio)
    made["db"] = transforms.AmplitudeToDB("power", 80)(made["mel_default"])
    made["db_magnitude"] = transforms.AmplitudeToDB("magnitude")(made["mel_slaney"])
    melkwargs = {"n_mels": 20, "hop_length": 160}
    made["mfcc"] = transforms.MFCC(16000, n_mfcc=13, melkwargs=melkwargs)(audio)
    made["mfcc_log"] = transforms.MFCC(
        16000, n_mfcc=13, norm=None, log_mels=True, melkwargs=melkwargs
    )(audio)
    for old, new in [(44100, 16000), (8000, 16000), (16000, 11025), (48000, 8000)]:
        made[f"resample_{old}_{new}"] = functional.resample(audio, old, new)
    out = Path(__file__).parent / "golden/torchaudio.txt"
    lines = [f"# torchaudio {torchaudio.__version__}, by tests/audio/make_golden.py"]
    for name, numbers in made.items():
        numbers = numbers[0].reshape(-1, numbers.shape[-1])
        lines.append(f"{name} {numbers.shape[0]} {numbers.shape[1]}")
        lines += [" ".join(f"{x:.7g}" for x in row) for row in numbers.tolist()]
    out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
