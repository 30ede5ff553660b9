// Mel spectrograms beside torchaudio's (golden/torchaudio.txt), the transform beside the sum that
// defines it, and equal bytes on every SIMD target.
#include "server/audio/spectrogram.h"

#include <gmock/gmock.h>

#include <complex>
#include <limits>

#include "tests/audio/audio_testing.h"
#include "tests/imaging/simd_targets.h"

namespace feedwater::server {
namespace {

using namespace audio_testing;  // NOLINT: the tests' own words
using imaging_testing::SameOnEveryTarget;
using ::testing::HasSubstr;

WorkClock never;  // says that it is enough

Floats MelOf(const SpectrogramSettings& settings, const Floats& waveform) {
  const auto mel = MelSpectrogram::Make(settings);
  EXPECT_TRUE(mel.ok()) << mel.status();
  const auto samples = static_cast<int64_t>(waveform.size());
  const auto frames = mel->Frames(samples);
  EXPECT_TRUE(frames.ok()) << frames.status();
  return SameOnEveryTarget([&] {
    const auto bytes = static_cast<size_t>(mel->ScratchBytes(samples));
    std::vector<std::byte> memory(bytes + 64);
    auto* const scratch =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    Floats out(static_cast<size_t>(mel->n_mels() * *frames) + 1, 77);
    EXPECT_TRUE(mel->Run(waveform.data(), samples, scratch, never, out.data()).ok());
    EXPECT_EQ(out.back(), 77) << "written behind the end";
    out.pop_back();
    return out;
  });
}

SpectrogramSettings Settings(int n_fft, int win_length, int hop_length) {
  SpectrogramSettings settings;
  settings.n_fft = n_fft;
  settings.win_length = win_length;
  settings.hop_length = hop_length;
  settings.mel.n_mels = 20;
  return settings;
}

TEST(MelSpectrogram, GivesTorchaudiosNumbers) {
  const auto golden = ReadGolden();
  const Floats waveform = TestWaveform();
  ExpectGolden(golden.at("waveform"), waveform, "waveform");
  ExpectGolden(golden.at("mel_default"), MelOf(Settings(400, 400, 200), waveform), "mel_default");
  ExpectGolden(golden.at("mel_window"), MelOf(Settings(256, 200, 90), waveform), "mel_window");
  ExpectGolden(golden.at("mel_odd"), MelOf(Settings(225, 225, 100), waveform), "mel_odd");
  SpectrogramSettings settings = Settings(128, 128, 100);
  settings.padding = EdgePadding::kZeros;
  ExpectGolden(golden.at("mel_constant"), MelOf(settings, waveform), "mel_constant");
  settings.center = false;
  ExpectGolden(golden.at("mel_no_center"), MelOf(settings, waveform), "mel_no_center");
  settings = Settings(128, 128, 100);
  settings.squared = false;
  settings.mel.f_min = 50;
  settings.mel.f_max = 7000;
  settings.mel.scale = MelScale::kSlaney;
  settings.mel.is_area_one = true;
  ExpectGolden(golden.at("mel_slaney"), MelOf(settings, waveform), "mel_slaney");
}

// One bin a band: what the transform itself gives.
TEST(MelSpectrogram, TheTransformIsTheSumThatDefinesIt) {
  for (const int size :
       {1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 22, 49, 61, 122, 160, 400, 512, 882, 1000}) {
    const auto fourier = Fourier::Make(size);
    ASSERT_TRUE(fourier.ok()) << fourier.status();
    const int bins = fourier->bins(), frames = 19;
    std::vector<int32_t> firsts, counts(static_cast<size_t>(bins), 1), starts(counts.size(), 0);
    for (int k = 0; k < bins; ++k) firsts.push_back(k);
    const float one = 1;
    const Floats waveform = TestWaveform(size + 3 * frames),
                 window(static_cast<size_t>(size), 1.0f);
    const Floats made = SameOnEveryTarget([&] {
      Floats memory(kernels::FrameScratch(*fourier) + 16);
      auto* const scratch =
          reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
      Floats out(static_cast<size_t>(bins) * frames);
      kernels::FrameJob job;
      job.samples = waveform.data();
      job.hop = 3;
      job.window = window.data();
      job.fourier = &*fourier;
      job.filters = {firsts.data(), counts.data(), starts.data(), &one, bins};
      job.out = out.data();
      job.out_stride = frames;
      kernels::Spectrums().frames(job, 0, frames, scratch);
      return out;
    });
    double worst = 0, largest = 0;
    for (int t = 0; t < frames; t += 6) {
      for (int k = 0; k < bins; ++k) {
        std::complex<double> sum = 0;
        for (int i = 0; i < size; ++i) {
          sum += static_cast<double>(waveform[static_cast<size_t>(3 * t + i)]) *
                 std::polar(1.0, -2 * std::acos(-1.0) * (i * k % size) / size);
        }
        worst =
            std::max(worst, std::abs(std::norm(sum) - made[static_cast<size_t>(k * frames + t)]));
        largest = std::max(largest, std::norm(sum));
      }
    }
    EXPECT_LE(worst, 2e-6 * largest) << size;
  }
}

TEST(MelSpectrogram, SizesThatWouldTakeLongAreRefused) {
  EXPECT_THAT(std::string(Fourier::Make(67).status().message()),
              HasSubstr("67 has the prime factor 67, over 61"));
  EXPECT_FALSE(Fourier::Make(0).ok());
  EXPECT_FALSE(Fourier::Make(kMostFourierSize + 1).ok());
  EXPECT_TRUE(Fourier::Make(kMostFourierSize).ok());
}

TEST(MelSpectrogram, AWaveformThatIsTooShortIsRefusedWithTheCure) {
  const auto mel = MelSpectrogram::Make(Settings(400, 400, 200));
  EXPECT_THAT(std::string(mel->Frames(200).status().message()),
              HasSubstr("too short to be reflected by n_fft / 2 = 200"));
  EXPECT_EQ(*mel->Frames(201), 2);
  SpectrogramSettings settings = Settings(400, 400, 200);
  settings.center = false;
  EXPECT_THAT(std::string(MelSpectrogram::Make(settings)->Frames(399).status().message()),
              HasSubstr("shorter than n_fft 400"));
  EXPECT_EQ(*MelSpectrogram::Make(settings)->Frames(400), 1);
}

TEST(MelSpectrogram, ASoundTooLargeForItsSquaresIsRefused) {
  const auto mel = MelSpectrogram::Make(Settings(400, 400, 200));
  const auto bytes = static_cast<size_t>(mel->ScratchBytes(1000));
  std::vector<std::byte> memory(bytes + 64);
  auto* const scratch =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  Floats out(static_cast<size_t>(mel->n_mels() * *mel->Frames(1000)));
  for (const float large : {1e25f, 3e38f, std::numeric_limits<float>::quiet_NaN()}) {
    Floats waveform(1000, 0.5f);
    waveform[700] = large;
    WorkClock never;
    const absl::Status made = mel->Run(waveform.data(), 1000, scratch, never, out.data());
    EXPECT_TRUE(absl::IsInvalidArgument(made)) << large << ": " << made;
  }
}

TEST(MelSpectrogram, EdgesAreReflectedRepeatedOrZero) {
  const Floats waveform = {1, 2, 3, 4};
  Floats out(8);
  PadEdges(waveform.data(), 4, 2, EdgePadding::kReflect, out.data());
  EXPECT_EQ(out, (Floats{3, 2, 1, 2, 3, 4, 3, 2}));
  PadEdges(waveform.data(), 4, 2, EdgePadding::kReplicate, out.data());
  EXPECT_EQ(out, (Floats{1, 1, 1, 2, 3, 4, 4, 4}));
  PadEdges(waveform.data(), 4, 2, EdgePadding::kZeros, out.data());
  EXPECT_EQ(out, (Floats{0, 0, 1, 2, 3, 4, 0, 0}));
}

TEST(Decibels, AreTenLogarithmsWithinTwoUnits) {
  Floats numbers;
  for (float x = 1e-12f; x < 1e30f; x *= 1.37f) numbers.push_back(x);
  const Floats made = SameOnEveryTarget([&] {
    Floats out(numbers.size());
    kernels::Spectrums().decibels(numbers.data(), numbers.size(), 10, 1e-10f, 3, out.data());
    return out;
  });
  const Floats natural = SameOnEveryTarget([&] {
    Floats out(numbers.size());
    kernels::Spectrums().logarithms(numbers.data(), numbers.size(), 1e-6f, out.data());
    return out;
  });
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double x = numbers[i];
    const double right = 10 * std::log10(std::max(x, 1e-10)) + 3;
    EXPECT_NEAR(made[i], right, 1e-5 + 2.4e-7 * std::abs(right)) << x;
    EXPECT_NEAR(natural[i], std::log(x + 1e-6), 1e-5) << x;
  }
}

TEST(Decibels, OfNoNumberAreNoNumber) {
  Floats numbers(19, 1.0f);
  numbers[3] = numbers[18] = std::numeric_limits<float>::quiet_NaN();
  Floats made(numbers.size()), natural(numbers.size());
  kernels::Spectrums().decibels(numbers.data(), numbers.size(), 10, 1e-10f, 0, made.data());
  kernels::Spectrums().logarithms(numbers.data(), numbers.size(), 1e-6f, natural.data());
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(std::isnan(made[i]), i == 3 || i == 18) << i;
    EXPECT_EQ(std::isnan(natural[i]), i == 3 || i == 18) << i;
  }
}

}  // namespace
}  // namespace feedwater::server
