// A maker of samples in a process, and the images that its tests give it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "server/decoder/in_process_maker.h"
#include "server/decoder/isolated_maker.h"
#include "tests/codec/test_images.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server::decoder_testing {

using graph_testing::PipelineText;
using graph_testing::TestBatch;
using graph_testing::TestRecord;

inline const std::string kRealDecoder = FEEDWATER_BIN_DIR "/feedwater-decoder";
inline const std::string kHostileDecoder = FEEDWATER_BIN_DIR "/../tools/hostile_decoder";

inline size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

// Processes of this one, zombies included.
inline std::vector<pid_t> Children() {
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
  std::vector<pid_t> pids;
  for (pid_t pid; file >> pid;) pids.push_back(pid);
  return pids;
}

class IsolatedMakerTest : public ::testing::Test {
 protected:
  void SetUp() override { descriptors_ = OpenDescriptors(); }
  void TearDown() override {
    maker_ = nullptr;
    if (host_ != nullptr) {
      EXPECT_EQ(host_->running, 0);
    }
    host_ = nullptr;
    EXPECT_EQ(OpenDescriptors(), descriptors_);
    EXPECT_TRUE(Children().empty());
  }

  void Make(const std::string& program, const std::string& yaml, const TestRecord& record,
            const std::string& file_name = "test.yaml", double patience_seconds = 20) {
    auto opened = DecoderProgram::Open(program);
    ASSERT_TRUE(opened.ok()) << opened.status();
    host_ = std::make_shared<DecoderHost>();
    host_->program = *opened;
    host_->patience_seconds = patience_seconds;
    DecoderSetup setup;
    setup.text = yaml;
    setup.file_name = file_name;
    setup.fields = record.fields();
    setup.classes = 10;
    const auto spec = ParsePipeline(yaml, file_name);
    ASSERT_TRUE(spec.ok()) << spec.status();
    auto plan = Plan::Create(*spec, setup.fields, setup.classes);
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = *plan;
    ImageLimits limits = spec->limits;
    if (program == kHostileDecoder) {
      host_->patience_seconds = 0.5;
      limits.max_decode_ms = limits.max_sample_ms = hostile_ms_;
    }
    maker_ = std::make_unique<IsolatedMaker>(host_, plan_, setup, limits);
    here_.Use(plan_.get(), nullptr);
  }

  static SampleInput InputOf(TestRecord& record, int64_t sample_id) {
    SampleInput input;
    input.record = record.record();
    input.sample_id = sample_id;
    input.position = sample_id * 3;
    input.key = EpochKey(42, 1);
    return input;
  }

  std::shared_ptr<DecoderHost> host_;
  std::shared_ptr<const Plan> plan_;
  std::unique_ptr<IsolatedMaker> maker_;
  InProcessMaker here_;
  size_t descriptors_ = 0;
  int64_t hostile_ms_ = 50;  // a hostile decoder's limit of time for a sample
};

inline TestRecord RecordOf(const std::string& file, int64_t label) {
  TestRecord record;
  record.AddEncoded({file.begin(), file.end()}).AddLabel(label);
  return record;
}

// Images of every kind that there is a decoder for, good and damaged.
inline std::vector<std::string> Files() {
  std::mt19937 random(7);
  const testing::Pixels image = testing::NoisyImage({90, 70}, 3, random);
  std::vector<std::string> files = {
      testing::EncodeJpeg(image, {}),
      testing::EncodeJpeg(image, {.luma_h = 2, .luma_v = 2}),
      testing::EncodeJpeg(image, {.progressive = true}),
      testing::EncodeJpeg(testing::NoisyImage({60, 80}, 1, random), {.gray = true}),
      testing::EncodeJpeg(testing::NoisyImage({60, 80}, 4, random), {.cmyk = true}),
  };
  for (const char* extension : {".png", ".bmp", ".webp", ".tiff", ".ppm"}) {
    files.push_back(WritePicture({image.bytes.data(), image.size, 3}, extension).value());
  }
  for (size_t i = 0, whole = files.size(); i < whole; ++i)
    files.push_back(files[i].substr(0, files[i].size() / 2));
  files.push_back("no image");
  files.push_back("");
  return files;
}

}  // namespace feedwater::server::decoder_testing
