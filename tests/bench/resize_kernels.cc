// The antialiased resize against OpenCV's kernels in the same process, on one pinned thread: noise
// in memory to 224x224 RGB bytes.
//
//   resize_kernels [--rounds N] [--cpu N] [--target NAME]
//   resize_kernels --serve [--cpu N] [--target NAME]
//
// Machines drift within minutes, so only ratios count: the sides take turns, each round is CPU time
// of the thread, and the median of the rounds' ratios is printed with its quartiles. `--target
// AVX2` holds Highway to AVX2 and less. With `--serve` each line on standard input, "WIDTH HEIGHT
// REPEATS", is answered by the CPU seconds of one resize, so that another process can take turns
// with this one (suite/resize.py does, for Pillow).
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <random>
#include <string>
#include <vector>

#include "server/base/clock.h"
#include "server/codec/image.h"
#include "tests/bench/simd_target.h"

namespace {

using namespace feedwater::server;  // NOLINT: a program of one file

constexpr int kSide = 224, kRepeats = 20;

std::vector<uint8_t> Noise(Size size) {
  std::mt19937 random(1);
  std::vector<uint8_t> pixels(static_cast<size_t>(size.width) * size.height * 3);
  for (uint8_t& p : pixels) p = static_cast<uint8_t>(random());
  return pixels;
}

PixelFormat Normalised(bool stream) {
  PixelFormat format;
  format.stream = stream;
  format.type = PixelType::kFloat32;
  format.planar = format.affine = true;
  for (int c = 0; c < 3; ++c) format.mean[c] = 120.0f, format.inverse_std[c] = 1 / 57.0f;
  return format;
}

class Ours {
  static constexpr size_t kBytes = kSide * kSide * 3 * sizeof(float);

 public:
  // Writes `images` outputs by turns, as into a slot of that many samples.
  Ours(const std::vector<uint8_t>& pixels, Size size, const PixelFormat& format, int images = 1)
      : pixels_(pixels), size_(size), format_(format), images_(images), out_(kBytes * images + 64) {
    geometry_.crop = {0, 0, size.width, size.height};
    geometry_.scaled = {kSide, kSide};
    geometry_.window = {0, 0, kSide, kSide};
  }
  void Run() {
    const size_t aligned = -reinterpret_cast<uintptr_t>(out_.data()) % 64;
    std::byte* out = out_.data() + aligned + kBytes * (next_++ % images_);
    const absl::Status status =
        ResampleInto(pixels_.data(), size_, 3, geometry_, format_, out, workspace_);
    if (!status.ok()) std::exit(1);
  }

 private:
  const std::vector<uint8_t>& pixels_;
  Size size_;
  PixelFormat format_;
  const int images_;
  int next_ = 0;
  Geometry geometry_;
  std::vector<std::byte> out_;
  ImageWorkspace workspace_;
};

double SecondsOfOne(const std::function<void()>& run, int repeats) {
  const int64_t start = ThreadCpuNs();
  for (int i = 0; i < repeats; ++i) run();
  return 1e-9 * static_cast<double>(ThreadCpuNs() - start) / repeats;
}

double At(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

void Compare(Size size, int rounds) {
  std::vector<uint8_t> pixels = Noise(size);
  Ours bytes(pixels, size, PixelFormat()), floats(pixels, size, Normalised(false)),
      slot(pixels, size, Normalised(false), 128), streamed(pixels, size, Normalised(true), 128);
  const cv::Mat image(size.height, size.width, CV_8UC3, pixels.data());
  cv::Mat resized;
  const auto opencv = [&](int kernel) {
    return [&, kernel] { cv::resize(image, resized, {kSide, kSide}, 0, 0, kernel); };
  };
  struct Side {
    const char* name;
    std::function<void()> run;
    std::vector<double> seconds, ratios;  // this / our bytes
  };
  Side sides[] = {{"ours, uint8 HWC", [&] { bytes.Run(); }, {}, {}},
                  {"ours, normalised float32 CHW", [&] { floats.Run(); }, {}, {}},
                  {"ours, the same into a slot of 77 MB", [&] { slot.Run(); }, {}, {}},
                  {"ours, the same, streaming stores", [&] { streamed.Run(); }, {}, {}},
                  {"OpenCV INTER_AREA", opencv(cv::INTER_AREA), {}, {}},
                  {"OpenCV INTER_LINEAR (not antialiased)", opencv(cv::INTER_LINEAR), {}, {}}};
  for (int round = 0; round < rounds; ++round) {
    for (Side& side : sides) {
      side.seconds.push_back(SecondsOfOne(side.run, kRepeats));
      side.ratios.push_back(side.seconds.back() / sides[0].seconds.back());
    }
  }
  std::printf("%dx%d -> %dx%d, %s\n", size.width, size.height, kSide, kSide, SimdTarget().c_str());
  for (const Side& side : sides) {
    std::printf("  %-40s %8.1f us  / ours %6.2f  (%.2f .. %.2f)\n", side.name,
                1e6 * At(side.seconds, 0.5), At(side.ratios, 0.5), At(side.ratios, 0.25),
                At(side.ratios, 0.75));
  }
}

void Serve() {
  int width, height, repeats;
  while (std::cin >> width >> height >> repeats) {
    if (width < 1 || height < 1 || width > 1 << 14 || height > 1 << 14 || repeats < 1) std::exit(2);
    const std::vector<uint8_t> pixels = Noise({width, height});
    Ours ours(pixels, {width, height}, PixelFormat());
    ours.Run();
    std::cout << SecondsOfOne([&] { ours.Run(); }, repeats) << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 41, cpu = 0;
  bool serve = false;
  std::string target;
  CLI::App app("The antialiased resize against OpenCV's");
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 100000));
  app.add_option("--cpu", cpu);
  app.add_option("--target", target);
  app.add_flag("--serve", serve);
  CLI11_PARSE(app, argc, argv);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  sched_setaffinity(0, sizeof(cpus), &cpus);
  cv::setNumThreads(1);
  if (!target.empty()) feedwater::testing::HoldToTarget(target.c_str());
  if (serve) {
    Serve();
  } else {
    for (const Size size : {Size{500, 375}, Size{300, 300}, Size{150, 200}, Size{1024, 768}})
      Compare(size, rounds);
  }
  return 0;
}
