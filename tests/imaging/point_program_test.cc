// A point program gives what its steps give one after the other, pixel by pixel, whatever is put
// together, however the image is cut into blocks, and as an edit of rows.
#include "server/imaging/point_program.h"

#include <gtest/gtest.h>

#include <random>

#include "server/imaging/point_arithmetic.h"

namespace feedwater::server {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes Noise(size_t values) {
  std::mt19937 random(3);
  Bytes bytes(values);
  for (uint8_t& v : bytes) v = static_cast<uint8_t>(random() % 200 + 20);
  return bytes;
}

Bytes Changed(PointProgram& program, const Bytes& in, int channels) {
  WorkClock clock;
  const int64_t pixels = static_cast<int64_t>(in.size()) / channels;
  Bytes out(static_cast<size_t>(pixels) * 3 + 1, 77);
  EXPECT_TRUE(program.Run(in.data(), pixels, out.data(), clock).ok());
  EXPECT_EQ(out.back(), 77);
  out.resize(static_cast<size_t>(pixels * program.channels()));
  return out;
}

int MeanLuma(const Bytes& in, int channels) {
  uint64_t sum = 0;
  for (size_t i = 0; i < in.size(); i += channels)
    sum += channels == 1 ? in[i] : pillow::Luma(in[i], in[i + 1], in[i + 2]);
  return static_cast<int>(static_cast<double>(sum) / (static_cast<double>(in.size()) / channels) +
                          0.5);
}

void Blend(int base, float factor, Bytes* bytes) {
  for (uint8_t& v : *bytes) v = pillow::Blend(base, v, factor);
}

TEST(PointProgram, BlendsOfAnyFactorArePillows) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> up_to_three(0, 3);
  Bytes all(256);
  for (int v = 0; v < 256; ++v) all[v] = static_cast<uint8_t>(v);
  PointProgram program;
  for (int i = 0; i < 500; ++i) {
    const float factor = i == 0 ? 0 : i == 1 ? 1000 : i % 3 == 0 ? i / 100.0f : up_to_three(random);
    const int base = i % 2 == 0 ? 0 : static_cast<int>(random() % 256);
    program.Begin(1);
    program.Blend(base, factor);
    Bytes expected = all;
    Blend(base, factor, &expected);
    ASSERT_EQ(Changed(program, all, 1), expected) << base << " " << factor;
  }
}

TEST(PointProgram, SaturationOfAnyFactorIsPillows) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> up_to_three(0, 3);
  const Bytes in = Noise(3 * 500);
  PointProgram program;
  for (int i = 0; i < 300; ++i) {
    const float factor = i == 0 ? 0 : i == 1 ? 1000 : i % 3 == 0 ? i / 100.0f : up_to_three(random);
    program.Begin(3);
    program.Saturate(factor);
    Bytes expected = in;
    for (size_t p = 0; p < in.size(); p += 3) {
      const uint8_t grey = pillow::Luma(in[p], in[p + 1], in[p + 2]);
      for (size_t c = 0; c < 3; ++c) expected[p + c] = pillow::Blend(grey, in[p + c], factor);
    }
    ASSERT_EQ(Changed(program, in, 3), expected) << factor;
  }
}

TEST(PointProgram, StepsThatLookAtTheImageSeeWhatComesBeforeThem) {
  for (int channels : {1, 3}) {
    for (size_t pixels : {1, 1000, 1024, 5000}) {
      const Bytes in = Noise(pixels * channels);
      PointProgram program;
      program.Begin(channels);
      program.Blend(0, 0.7f);
      program.Contrast(1.6f);
      program.Change({.flip = 255});
      program.Contrast(0.4f);
      EXPECT_FALSE(program.is_one_pass());
      Bytes expected = in;
      Blend(0, 0.7f, &expected);
      Blend(MeanLuma(expected, channels), 1.6f, &expected);
      for (uint8_t& v : expected) v = static_cast<uint8_t>(255 - v);
      Blend(MeanLuma(expected, channels), 0.4f, &expected);
      EXPECT_EQ(Changed(program, in, channels), expected) << channels << " " << pixels;
    }
  }
}

// Random programs of all steps: at once, one by one, and as edits of rows.
TEST(PointProgram, IsTheSameAtOnceStepByStepAndRowByRow) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> factor(0, 2);
  PointProgram program, single;
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    int channels = round % 4 == 0 ? 1 : 3;
    const int width = 1 + static_cast<int>(random() % 90), height = 30;
    const int in_channels = channels;
    const Bytes in = Noise(static_cast<size_t>(width) * height * channels);
    Bytes expected = in;
    program.Begin(channels);
    for (int s = 0; s < 6; ++s) {
      const uint32_t kind = random() % 12, value = random();
      const float amount = factor(random);
      const auto append = [&](PointProgram* to) {
        ByteTables tables;
        for (int c = 0; c < 3; ++c) {
          for (int v = 0; v < 256; ++v)
            tables[c][v] = static_cast<uint8_t>(v * (value % 7 + 1) + 40 * c);
        }
        const uint8_t byte = static_cast<uint8_t>(value);
        switch (kind) {
          case 0:
            return to->Blend(byte, amount);
          case 1:
            return to->Contrast(amount);
          case 2:
            return to->Saturate(amount);
          case 3:
            return to->ShiftHue(byte);
          case 4:
            return to->Change({.threshold = byte, .flip = 255});
          case 5:
            return to->LookUp(tables[0]);
          case 6:
            return to->channels() == 3 ? to->LookUp(tables) : to->LookUp(tables[1]);
          case 7:
            return to->Equalize();
          case 8:
            return to->AutoContrast();
          case 9:
            return to->Grey(value % 3 == 0 ? 1 : to->channels());
          case 10:
            return to->Permute({2, 0, 1});
          default:
            if (to->channels() == 3) to->Convert(static_cast<PointProgram::ColorSpace>(value % 3));
        }
      };
      append(&program);
      single.Begin(channels);
      append(&single);
      expected = Changed(single, expected, channels);
      channels = single.channels();
    }
    ASSERT_EQ(program.channels(), channels);
    ASSERT_EQ(Changed(program, in, in_channels), expected);

    // As edits of planes, which lie 96 apart. Steps that had to look are tables of this image by
    // now.
    ASSERT_TRUE(program.is_one_pass());
    const size_t plane = 96;
    Bytes rows;
    for (int y = 0; y < height; ++y) {
      Bytes planes(3 * plane);
      for (int x = 0; x < width; ++x) {
        for (int c = 0; c < in_channels; ++c)
          planes[c * plane + x] = in[(static_cast<size_t>(y) * width + x) * in_channels + c];
      }
      if (y == 0) program.Start();
      program.Edit(planes.data(), plane, width);
      for (int x = 0; x < width; ++x) {
        for (int c = 0; c < channels; ++c) rows.push_back(planes[c * plane + x]);
      }
    }
    ASSERT_EQ(rows, expected);
  }
}

TEST(PointProgram, ALongOneEndsWhenTheSampleHasTakenTooLong) {
  PointProgram program;
  program.Begin(3);
  program.ShiftHue(5);
  std::atomic<bool> gone = true;
  WorkClock clock;
  clock.Begin(0, &gone);
  Bytes image = Noise(3 << 20);
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i)
    status = program.Run(image.data(), 1 << 20, image.data(), clock);
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

}  // namespace
}  // namespace feedwater::server
