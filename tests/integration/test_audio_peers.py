"""Audio through a daemon, in its own process and in decoders' (where a new system call would end
them), beside torchaudio and librosa where they are installed.
"""

from __future__ import annotations

import wave

import numpy as np
import pytest
from daemon_process import DAEMON, DaemonProcess

import feedwater

FILES, RATE = 4, 22050
MEL = "n_fft: 512, hop_length: 256, n_mels: 64"


@pytest.fixture(scope="module", params=["none", "process"])
def daemon(request, tmp_path_factory):
    """A daemon with WAV files of a rising tone over noise; without and with decoder processes."""
    if not DAEMON.exists():
        pytest.skip(f"{DAEMON} is not built")
    served = DaemonProcess(
        tmp_path_factory.mktemp("a") / "d",
        f"cpus: 2\nmemory: 1GiB\nisolation: {request.param}\n",
    )
    served.start()
    random = np.random.Generator(np.random.PCG64(5))
    tone = np.sin(np.arange(RATE) * np.linspace(0.01, 0.5, RATE))
    served.waveforms = []
    lines = ["path"]
    for number in range(FILES):
        samples = (16000 * np.clip(tone + random.normal(0, 0.05, RATE), -1, 1)).astype("<i2")
        with wave.open(str(served.data / f"{number}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(samples.tobytes())
        lines.append(f"{number}.wav")
        served.waveforms.append(samples.astype(np.float32) / 32768)
    (served.data / "all.csv").write_text("\n".join(lines) + "\n")
    yield served
    assert served.stop() == 0


def made(daemon, tmp_path, rate: int, *ops: str) -> np.ndarray:
    """Return field `audio` of all files behind decode_audio and these ops."""
    text = f"""version: 1
dataset: {{format: csv, root: data, files: [all.csv], fields: {{data: {{from: path, file: true}}}}}}
sampler: {{shuffle: none}}
graph:
  - decode_audio: {{in: data, out: audio, sample_rate: {rate}, mono: true, max_seconds: 2}}
  - crop_audio: {{in: audio, frames: {rate}}}
"""
    text += "".join(f"  - {op}\n" for op in ops)
    file = tmp_path / "audio.yaml"
    file.write_text(text + f"batch: {{size: {FILES}}}\noutputs: [audio]\n")
    with feedwater.Loader(
        str(file), batch_size=FILES, address=daemon.address, output="numpy", as_dict=True
    ) as loader:
        return next(iter(loader))["audio"].copy()


def assert_close(ours: np.ndarray, theirs) -> None:
    """Compare within 1e-4 of the largest number."""
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 1e-4 * max(1.0, np.abs(theirs).max())


def test_samples_are_those_of_the_files(daemon, tmp_path):
    assert np.array_equal(made(daemon, tmp_path, RATE), np.stack(daemon.waveforms))


def test_torchaudio_makes_the_same(daemon, tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torchaudio = pytest.importorskip("torchaudio", reason="torchaudio is not installed")
    waveforms = torch.from_numpy(np.stack(daemon.waveforms))
    resampled = torchaudio.functional.resample(waveforms, RATE, 16000)
    assert_close(made(daemon, tmp_path, 16000), resampled)
    mel = torchaudio.transforms.MelSpectrogram(16000, n_fft=512, hop_length=256, n_mels=64)
    op = f"mel_spectrogram: {{in: audio, out: audio, sample_rate: 16000, {MEL}}}"
    assert_close(made(daemon, tmp_path, 16000, op), mel(resampled))
    # Of the files' own rate, since decibels of bands that hold nothing but the resampler's rounding
    # are far apart.
    mfcc = torchaudio.transforms.MFCC(
        RATE, n_mfcc=13, melkwargs={"n_fft": 512, "hop_length": 256, "n_mels": 64}
    )
    op = f"mfcc: {{in: audio, out: audio, sample_rate: {RATE}, n_mfcc: 13, {MEL}}}"
    theirs = torch.stack([mfcc(waveform) for waveform in waveforms])
    assert_close(made(daemon, tmp_path, RATE, op), theirs)


def test_librosa_makes_the_same(daemon, tmp_path):
    librosa = pytest.importorskip("librosa", reason="librosa is not installed")
    theirs = np.stack(
        [
            librosa.feature.melspectrogram(y=waveform, sr=RATE, n_fft=2048, hop_length=512)
            for waveform in daemon.waveforms
        ]
    )
    # librosa's bins reach to 11,025 Hz, which is half of the rate here.
    op = (
        f"mel_spectrogram: {{in: audio, out: audio, sample_rate: {RATE}, n_fft: 2048, "
        "hop_length: 512, pad_mode: constant, norm: slaney, mel_scale: slaney}"
    )
    assert_close(made(daemon, tmp_path, RATE, op), theirs)
