// Samples made in a process of their own: the bytes of the same sample made here, whatever the
// image; and what becomes of a record whose decoder dies. hostile_decoder_test.cc has decoders that
// are not themselves any more.
#include "server/decoder/isolated_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "server/base/clock.h"
#include "server/base/sanitized.h"
#include "tests/audio/audio_testing.h"
#include "tests/codec/seek_index_map.h"
#include "tests/decoder/isolated_maker_fixture.h"

namespace feedwater::server {
namespace {

using namespace decoder_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

const std::string kTraining = PipelineText(
    "  - decode: {in: data, out: image}\n  - random_resized_crop: {size: [24, 32]}\n"
    "  - random_horizontal_flip: {}\n  - normalize: {mean: [120, 110, 100], std: [50, 60, 70]}\n",
    "[image, label, sample_id, position, is_real]");

TEST_F(IsolatedMakerTest, GivesTheBytesAndErrorsOfTheSameSampleMadeHere) {
  const std::vector<std::string> files = Files();
  TestRecord first = RecordOf(files[0], 0);
  ASSERT_NO_FATAL_FAILURE(Make(kRealDecoder, kTraining, first));
  int good = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    SCOPED_TRACE(i);
    TestRecord record = RecordOf(files[i], static_cast<int64_t>(i));
    const SampleInput input = InputOf(record, static_cast<int64_t>(i));
    TestBatch expected(*plan_, 2), got(*plan_, 2);
    const absl::Status wanted = here_.Run(input, 1, expected.memory);
    const absl::Status status = maker_->Run(input, 1, got.memory);
    EXPECT_EQ(status, wanted);
    if (!wanted.ok()) continue;
    ++good;
    EXPECT_EQ(got.Sample(1), expected.Sample(1));
    EXPECT_TRUE(got.GuardsHold());
  }
  EXPECT_GE(good, 10);
  EXPECT_EQ(host_->started, 1u);
  EXPECT_EQ(host_->deaths, 0u);
  const MakingCost cost = maker_->TakeCost(), cost_here = here_.TakeCost();
  EXPECT_GT(cost.cpu_ns, 0);
  EXPECT_EQ(cost.decoded.own_decoder, cost_here.decoded.own_decoder);
  EXPECT_GT(cost.decoded.own_decoder, 0u);
}

// The libraries of audio make no system call that the process may not make.
TEST_F(IsolatedMakerTest, GivesTheSamplesOfAudioOfEveryKindWholeAndCut) {
  const std::string graph = PipelineText(
      "  - decode_audio: {in: data, out: audio, sample_rate: 16000, mono: true}\n"
      "  - random_crop_audio: {frames: 4000}\n  - mel_spectrogram: {in: audio, out: mel, "
      "sample_rate: 16000, n_mels: 20}\n",
      "[audio, mel]");
  TestRecord first = RecordOf("", 0);
  ASSERT_NO_FATAL_FAILURE(Make(kRealDecoder, graph, first));
  int good = 0;
  for (const audio_testing::Kind& kind : audio_testing::kKinds) {
    const auto bytes =
        audio_testing::EncodedAudio(kind.format, 48000, audio_testing::TestWaveform(30000), 2);
    const std::string whole(bytes.begin(), bytes.end());
    for (const std::string& file : {whole, whole.substr(0, whole.size() / 2)}) {
      SCOPED_TRACE(kind.name);
      TestRecord record = RecordOf(file, 1);
      const SampleInput input = InputOf(record, good);
      TestBatch expected(*plan_, 2), got(*plan_, 2);
      const absl::Status wanted = here_.Run(input, 1, expected.memory);
      EXPECT_EQ(maker_->Run(input, 1, got.memory), wanted);
      EXPECT_EQ(wanted.ok(), file.size() == whole.size()) << wanted;
      if (!wanted.ok()) continue;
      ++good;
      EXPECT_EQ(got.Sample(1), expected.Sample(1));
    }
  }
  EXPECT_EQ(good, static_cast<int>(std::size(audio_testing::kKinds)));
  EXPECT_EQ(Children().size(), 1u) << "one process for all, which has not died";
}

TEST_F(IsolatedMakerTest, KeepsWhatACacheWouldHaveKept) {
  const std::string yaml = PipelineText(
      "  - decode: {in: data, out: image}\n  - resize: {size: [20, 24]}\n  - random_crop: {size: "
      "[16, 16]}\n  - normalize: {mean: [1, 2, 3], std: [4, 5, 6]}\n",
      "[image, label]");
  const std::vector<std::string> files = Files();
  TestRecord first = RecordOf(files[0], 0);
  ASSERT_NO_FATAL_FAILURE(Make(kRealDecoder, yaml, first));
  for (size_t i = 0; i < 10; ++i) {
    SCOPED_TRACE(i);
    TestRecord record = RecordOf(files[i], static_cast<int64_t>(i));
    const SampleInput input = InputOf(record, static_cast<int64_t>(i));
    TestBatch plain(*plan_, 1), keeping(*plan_, 1), again(*plan_, 1);
    ASSERT_TRUE(here_.Run(input, 0, plain.memory).ok());

    std::vector<std::string> kept[2];
    std::vector<TensorSpec> specs;
    const auto keep = [&](std::vector<std::string>* into) {
      return [&specs, into](const Record& record) {
        specs.clear();
        for (const Tensor& field : record.fields) {
          specs.push_back(field.spec);
          into->emplace_back(reinterpret_cast<const char*>(field.data), field.bytes());
        }
      };
    };
    ASSERT_TRUE(here_.RunKeeping(input, 0, keeping.memory, 1 << 20, keep(&kept[0])).ok());
    ASSERT_TRUE(maker_->RunKeeping(input, 0, keeping.memory, 1 << 20, keep(&kept[1])).ok());
    EXPECT_EQ(kept[0], kept[1]);
    ASSERT_FALSE(kept[1].empty());
    EXPECT_EQ(keeping.Sample(0), plain.Sample(0));

    Record from_cache;
    for (size_t f = 0; f < kept[1].size(); ++f) {
      kept[1][f].resize(kept[1][f].size() + kReadPadding);
      from_cache.fields.push_back({specs[f], reinterpret_cast<std::byte*>(kept[1][f].data())});
    }
    SampleInput rest = input;
    rest.record = &from_cache;
    ASSERT_TRUE(maker_->RunFromPrefix(rest, 0, again.memory).ok());
    EXPECT_EQ(again.Sample(0), plain.Sample(0));

    std::vector<std::byte> document, document_here;
    ASSERT_TRUE(maker_->Pack(testing::AsBytes(files[i]), {}, &document).ok());
    ASSERT_TRUE(here_.Pack(testing::AsBytes(files[i]), {}, &document_here).ok());
    EXPECT_EQ(document, document_here);
  }
  // Too large to be kept: a sample all the same.
  TestRecord record = RecordOf(files[0], 0);
  TestBatch batch(*plan_, 1);
  const absl::Status status =
      maker_->RunKeeping(InputOf(record, 1), 0, batch.memory, 100,
                         [](const Record&) { ADD_FAILURE() << "more than was allowed"; });
  EXPECT_TRUE(status.ok()) << status;
}

// More than the cache's part of the answers, and one after the other more than all of the region.
TEST_F(IsolatedMakerTest, CallsOfLargeFieldsAreWhatTheyAreHere) {
  constexpr int64_t kHeight = 6000, kWidth = 5600;
  TestRecord record;
  record.AddPixels(kHeight, kWidth, 3, graph_testing::Bytes(kHeight * kWidth * 3, 7));
  const std::string yaml = PipelineText(
      "  - python: {name: one, in: image}\n  - python: {name: two, in: image}\n"
      "  - apply: {p: 1, ops: [python: {name: three}]}\n"
      "  - python: {name: small, in: image, out: few, shape: [5]}\n",
      "[few]");
  ASSERT_NO_FATAL_FAILURE(Make(kRealDecoder, yaml, record));
  graph_testing::TestCaller caller;
  maker_->UseCaller(&caller);
  here_.UseCaller(&caller, nullptr);
  TestBatch expected(*plan_, 1), got(*plan_, 1);
  const absl::Status wanted = here_.Run(InputOf(record, 1), 0, expected.memory);
  ASSERT_TRUE(wanted.ok()) << wanted;
  for (int round = 0; round < 2; ++round) {
    const absl::Status status = maker_->Run(InputOf(record, 1), 0, got.memory);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(got.Sample(0), expected.Sample(0));
  }
  EXPECT_EQ(host_->started, 1u) << "what it has given away is not held against it";
  EXPECT_EQ(host_->deaths, 0u);
}

// Whether a sample is good does not depend on whether the cache wants its record.
TEST_F(IsolatedMakerTest, WhatIsKeptTakesNoRoomOfCalls) {
  constexpr int64_t kSide = 4000;
  TestRecord record;
  record.AddPixels(kSide, kSide, 3, graph_testing::Bytes(kSide * kSide * 3, 7));
  ASSERT_NO_FATAL_FAILURE(
      Make(kRealDecoder,
           PipelineText("  - python: {name: small, in: image, out: few, shape: [5]}\n", "[few]"),
           record));
  graph_testing::TestCaller caller;
  maker_->UseCaller(&caller);
  TestBatch plain(*plan_, 1), keeping(*plan_, 1);
  absl::Status status = maker_->Run(InputOf(record, 1), 0, plain.memory);
  ASSERT_TRUE(status.ok()) << status;
  size_t kept = 0;
  status = maker_->RunKeeping(InputOf(record, 1), 0, keeping.memory, 64 << 20,
                              [&](const Record& fields) { kept = fields.fields[0].bytes(); });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(kept, static_cast<size_t>(kSide * kSide * 3));
  EXPECT_EQ(keeping.Sample(0), plain.Sample(0));
  EXPECT_EQ(host_->deaths, 0u);
}

// Everything in one map.
class Indexes final : public SeekIndexes {
 public:
  bool Find(const ContentHash& image, std::vector<std::byte>* document) const override {
    if (!(image == hash) || kept.empty()) return false;
    *document = kept;
    return true;
  }
  void Put(const ContentHash& image, absl::Span<const std::byte> document) override {
    hash = image;
    kept.assign(document.begin(), document.end());
  }
  ContentHash hash;
  std::vector<std::byte> kept;
};

TEST_F(IsolatedMakerTest, LearnsAndUsesSeekIndexes) {
  std::mt19937 random(7);
  TestRecord record =
      RecordOf(testing::EncodeJpeg(testing::NoisyImage({700, 500}, 3, random), {}), 0);
  ASSERT_NO_FATAL_FAILURE(Make(kRealDecoder, kTraining, record));
  Indexes isolated, here;
  maker_->UseSeekIndexes(&isolated);
  here_.Use(plan_.get(), &here);
  for (int64_t id = 0; id < 4; ++id) {
    TestBatch expected(*plan_, 1), got(*plan_, 1);
    ASSERT_TRUE(here_.Run(InputOf(record, id), 0, expected.memory).ok());
    ASSERT_TRUE(maker_->Run(InputOf(record, id), 0, got.memory).ok());
    EXPECT_EQ(got.Sample(0), expected.Sample(0));
    EXPECT_EQ(isolated.kept, here.kept);
    EXPECT_EQ(isolated.hash, here.hash);
  }
  EXPECT_FALSE(isolated.kept.empty());
  EXPECT_EQ(maker_->TakeCost().decoded.with_seek_index, 3u);
}

TEST_F(IsolatedMakerTest, MakesTheWholeSeekIndexesThatAreMadeHere) {
  std::mt19937 random(7);
  const testing::Pixels image = testing::NoisyImage({700, 500}, 3, random);
  std::vector<std::string> files = Files();
  files.push_back(testing::EncodeJpeg(image, {}));
  TestRecord first = RecordOf(files.back(), 0);
  ASSERT_NO_FATAL_FAILURE(Make(kRealDecoder, kTraining, first));
  testing::SeekIndexMap isolated, here;
  TestBatch batch(*plan_, 1);
  maker_->UseSeekIndexes(&isolated);
  ASSERT_TRUE(maker_->Run(InputOf(first, 1), 0, batch.memory).ok());
  const size_t of_a_crop = isolated.bytes();
  here_.Use(plan_.get(), &here);
  for (const std::string& file : files) {
    TestRecord record = RecordOf(file, 0);
    ASSERT_TRUE(here_.MakeSeekIndexes(*record.record()).ok());
    ASSERT_TRUE(maker_->MakeSeekIndexes(*record.record()).ok());
  }
  EXPECT_EQ(isolated.documents(), here.documents());
  EXPECT_GT(isolated.bytes(), of_a_crop) << "all of an image, whatever the graph looks at";

  // Several images in one record; one is known, and not learned again.
  std::vector<std::string> several = {files.back(), testing::EncodeJpeg(image, {.luma_h = 2}),
                                      "\xff\xd8 no image"};
  TestRecord record;
  for (const std::string& file : several) record.AddEncoded({file.begin(), file.end()});
  record.AddLabel(3);
  const int puts = isolated.puts;
  ASSERT_TRUE(maker_->MakeSeekIndexes(*record.record()).ok());
  EXPECT_EQ(isolated.puts, puts + 1);
  ASSERT_TRUE(here_.MakeSeekIndexes(*record.record()).ok());
  EXPECT_EQ(isolated.documents(), here.documents());
  EXPECT_EQ(host_->started, 1u);
  EXPECT_EQ(host_->deaths, 0u);
}

TEST_F(IsolatedMakerTest, ATerminalsAndAServiceManagersSignalsAreNotForIt) {
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kRealDecoder, kTraining, record));
  TestBatch got(*plan_, 1);
  ASSERT_TRUE(maker_->Run(InputOf(record, 1), 0, got.memory).ok());
  ASSERT_EQ(Children().size(), 1u);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1}) kill(Children()[0], signal);
  ASSERT_TRUE(maker_->Run(InputOf(record, 1), 0, got.memory).ok());
  EXPECT_EQ(host_->started, 1u);
  EXPECT_EQ(host_->deaths, 0u);
}

// SIGCHLD may be ignored by whoever starts the program, and that is inherited: then the kernel
// reaps its children.
TEST_F(IsolatedMakerTest, ADeathThatNobodyKnowsTheCauseOfIsNotTheRecordsFault) {
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kRealDecoder, kTraining, record));
  signal(SIGCHLD, SIG_IGN);
  for (int round = 0; round < 2; ++round) {
    TestBatch got(*plan_, 1);
    const absl::Status made = maker_->Run(InputOf(record, 1), 0, got.memory);
    EXPECT_TRUE(made.ok()) << made;
    for (const int child : Children()) kill(child, SIGKILL);
  }
  signal(SIGCHLD, SIG_DFL);
}

TEST_F(IsolatedMakerTest, ARecordOnWhichTheKernelRunsOutOfMemoryTwiceIsBad) {
  const std::string yaml = PipelineText("  - decode\n  - resize: {size: [4, 4]}\n", "[image]");
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kHostileDecoder, yaml, record, "kill"));
  uint64_t kills = 0;
  host_->oom_kills = [&kills] { return kills++; };  // one more at each look
  TestBatch batch(*plan_, 1);
  const absl::Status status = maker_->Run(InputOf(record, 1), 0, batch.memory);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("want of memory (SIGKILL), 2 times"));
  EXPECT_EQ(host_->started, 2u);
}

TEST_F(IsolatedMakerTest, NobodyWaitsForASampleThatIsNotWantedAnyMore) {
  const std::string yaml = PipelineText("  - decode\n  - resize: {size: [4, 4]}\n", "[image]");
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kHostileDecoder, yaml, record, "sleep"));
  std::atomic<bool> gone{false};
  maker_->UseClock(nullptr, &gone);
  std::thread leaver([&gone] {
    usleep(100'000);
    gone = true;
  });
  TestBatch batch(*plan_, 1);
  const absl::Status status = maker_->Run(InputOf(record, 1), 0, batch.memory);
  leaver.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(host_->deaths, 0u);  // it was not at fault
}

TEST_F(IsolatedMakerTest, NothingIsStartedForASampleThatIsNotWantedAnyMore) {
  const std::string yaml = PipelineText("  - decode\n  - resize: {size: [4, 4]}\n", "[image]");
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kRealDecoder, yaml, record));
  const std::atomic<bool> gone{true};
  maker_->UseClock(nullptr, &gone);
  std::vector<std::byte> document;
  EXPECT_TRUE(
      absl::IsCancelled(maker_->Pack(testing::AsBytes(Files()[0]), plan_->limits(), &document)));
  TestBatch batch(*plan_, 1);
  EXPECT_TRUE(absl::IsCancelled(maker_->Run(InputOf(record, 1), 0, batch.memory)));
  EXPECT_EQ(host_->started, 0u);
  EXPECT_EQ(host_->deaths, 0u);
}

TEST_F(IsolatedMakerTest, ADecoderGetsTheMemoryOfItsSampleAndNoMore) {
  if (kSanitized) GTEST_SKIP() << "sanitizers map more than any limit";
  const std::string yaml = PipelineText(
      "  - decode\n  - random_equalize\n  - layout\n  - center_crop: {size: 4}\n", "[image]");
  // Three times 48 MB: of the decoder, the image that is looked at, and its planes.
  const graph_testing::Bytes file = graph_testing::EncodedImage(4000, 4000, ".png");
  TestRecord record = RecordOf(std::string(file.begin(), file.end()), 5);
  ASSERT_NO_FATAL_FAILURE(
      Make(kRealDecoder, yaml + "limits: {max_decode_ms: 60000, max_sample_ms: 60000}\n", record));
  TestBatch batch(*plan_, 1);
  SampleWorkspace workspace;
  const SampleInput input = InputOf(record, 1);
  const int64_t need = plan_->NeedOf(input, SampleWay::kWhole, workspace).bytes;
  maker_->Allow(16 << 20);
  EXPECT_TRUE(absl::IsDataLoss(maker_->Run(input, 0, batch.memory)));
  maker_->Allow(need);
  const absl::Status made = maker_->Run(input, 0, batch.memory);
  EXPECT_TRUE(made.ok()) << made;
}

TEST_F(IsolatedMakerTest, AProcessThatStandsStillIsReplacedAndTheSampleIsMade) {
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kRealDecoder, kTraining, record, "test.yaml", 1));
  TestBatch expected(*plan_, 1), got(*plan_, 1);
  ASSERT_TRUE(maker_->Run(InputOf(record, 1), 0, expected.memory).ok());
  ASSERT_EQ(Children().size(), 1u);
  kill(Children()[0], SIGSTOP);
  const absl::Status status = maker_->Run(InputOf(record, 1), 0, got.memory);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(got.Sample(0), expected.Sample(0));
  EXPECT_EQ(host_->started, 2u);
}

TEST_F(IsolatedMakerTest, StoppingTheHostWakesWhoeverWaits) {
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kRealDecoder, kTraining, record, "test.yaml", 300));
  ASSERT_TRUE(maker_->Start().ok());
  kill(Children()[0], SIGSTOP);
  std::thread stops([&] {
    usleep(200'000);
    host_->Stop();
  });
  TestBatch batch(*plan_, 1);
  const absl::Status status = maker_->Run(InputOf(record, 1), 0, batch.memory);
  stops.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(host_->started, 1u);
  EXPECT_TRUE(Children().empty());
}

TEST_F(IsolatedMakerTest, TheMemoryOfDecodersIsPartOfTheSum) {
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kRealDecoder, kTraining, record));
  host_->budget = MemoryBudget::Create(1 << 20);
  const absl::Status status = maker_->Start();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("decoders"));
  host_->budget = MemoryBudget::Create(1 << 30);
  EXPECT_TRUE(maker_->Start().ok());
  EXPECT_GT(host_->budget->planned_bytes(), 0);
  maker_ = nullptr;
  EXPECT_EQ(host_->budget->planned_bytes(), 0);
}

}  // namespace
}  // namespace feedwater::server
