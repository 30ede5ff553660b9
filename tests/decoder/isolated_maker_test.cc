// Samples made in a process of their own: the bytes of the same sample made here, whatever the
// image; and what becomes of a record whose decoder dies, or is not itself any more.
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
#include "server/decoder/in_process_maker.h"
#include "tests/codec/seek_index_map.h"
#include "tests/codec/test_images.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using graph_testing::PipelineText;
using graph_testing::TestBatch;
using graph_testing::TestRecord;
using ::testing::HasSubstr;

const std::string kRealDecoder = FEEDWATER_BIN_DIR "/feedwater-decoder";
const std::string kHostileDecoder = FEEDWATER_BIN_DIR "/../tools/hostile_decoder";

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

// Processes of this one, zombies included.
std::vector<pid_t> Children() {
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
      limits.max_decode_ms = limits.max_sample_ms = 50;
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
};

const std::string kTraining = PipelineText(
    "  - decode: {in: data, out: image}\n  - random_resized_crop: {size: [24, 32]}\n"
    "  - random_horizontal_flip: {}\n  - normalize: {mean: [120, 110, 100], std: [50, 60, 70]}\n",
    "[image, label, sample_id, position, is_real]");

TestRecord RecordOf(const std::string& file, int64_t label) {
  TestRecord record;
  record.AddEncoded({file.begin(), file.end()}).AddLabel(label);
  return record;
}

// Images of every kind that there is a decoder for, good and damaged.
std::vector<std::string> Files() {
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
      "  - decode\n  - color_jitter: {brightness: 0.1}\n  - center_crop: {size: 4}\n", "[image]");
  // Three fields of 48 MB.
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

// --- a process that is somebody else's by now

const std::string kSmall = PipelineText("  - decode\n  - resize: {size: [4, 4]}\n", "[image]");

TEST_F(IsolatedMakerTest, ADecoderThatReadsNothingHoldsNobody) {
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kHostileDecoder, kSmall, record, "deaf"));
  TestBatch batch(*plan_, 1);
  absl::Status status;
  for (int64_t id = 0; id < 5000 && status.ok(); ++id)
    status = maker_->Run(InputOf(record, id), 0, batch.memory);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("without reading"));
}

TEST_F(IsolatedMakerTest, TimeInWhichADecoderKeepsAWorkerWithoutWorkingCountsAndBeats) {
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kHostileDecoder, kSmall, record, "doze"));
  ASSERT_TRUE(maker_->Start().ok());
  maker_->TakeCost();
  WorkClock clock;
  maker_->UseClock(&clock, nullptr);
  TestBatch batch(*plan_, 1);
  ASSERT_TRUE(maker_->Run(InputOf(record, 1), 0, batch.memory).ok());
  const MakingCost cost = maker_->TakeCost();
  EXPECT_GE(cost.held_ns, 200'000'000);
  EXPECT_LT(cost.cpu_ns, 250'000'000);
  EXPECT_GT(clock.beats(), 0u);
  EXPECT_EQ(maker_->TakeCost().held_ns, 0);
}

TEST_F(IsolatedMakerTest, ADecoderThatFillsItsMemoryEnds) {
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kHostileDecoder, kSmall, record, "hoard"));
  TestBatch batch(*plan_, 1);
  EXPECT_TRUE(maker_->Run(InputOf(record, 1), 0, batch.memory).ok());
  EXPECT_EQ(host_->running, 0);
  EXPECT_EQ(host_->deaths, 1u);
}

struct Hostile {
  const char* how;
  absl::StatusCode code;
  const char* message;
};

class HostileDecoder : public IsolatedMakerTest, public ::testing::WithParamInterface<Hostile> {};

TEST_P(HostileDecoder, CostsItsRecordAndNothingElse) {
  if (kSanitized && std::string(GetParam().how) == "segv") GTEST_SKIP() << "ASan takes the signal";
  const std::string yaml = PipelineText(
      "  - decode: {in: data, out: image}\n  - resize: {size: [4, 4]}\n  - "
      "random_horizontal_flip: {}\n",
      "[image, sample_id, position]");
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kHostileDecoder, yaml, record, GetParam().how));
  for (int64_t id = 1; id < 3; ++id) {
    TestBatch batch(*plan_, 1);
    int kept = 0;
    const absl::Status status = maker_->RunKeeping(InputOf(record, id), 0, batch.memory, 1 << 20,
                                                   [&kept](const Record& record) {
                                                     ++kept;
                                                     for (const Tensor& field : record.fields)
                                                       EXPECT_LE(field.bytes(), 1u << 20);
                                                   });
    EXPECT_TRUE(batch.GuardsHold());
    if (std::string(GetParam().how) != "scribble") {  // of which any answer may be read
      EXPECT_EQ(status.code(), GetParam().code) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
      if (status.ok()) {
        EXPECT_EQ(kept, 0) << "it is not what the plan keeps";
      }
    }
    if (!status.ok()) continue;
    int64_t told[2];
    std::memcpy(&told[0], batch.Output(1, 0).data(), sizeof(told[0]));
    std::memcpy(&told[1], batch.Output(2, 0).data(), sizeof(told[1]));
    EXPECT_EQ(told[0], id) << "record numbers are never the decoder's";
    EXPECT_EQ(told[1], id * 3);
  }
}

TEST_P(HostileDecoder, GivesNoSeekIndexThatIsNotItsImages) {
  const std::string how = GetParam().how;
  if (kSanitized && how == "segv") GTEST_SKIP() << "ASan takes the signal";
  const std::string yaml = PipelineText("  - decode\n  - resize: {size: [4, 4]}\n", "[image]");
  TestRecord record = RecordOf(Files()[0], 5);
  ASSERT_NO_FATAL_FAILURE(Make(kHostileDecoder, yaml, record, how));
  testing::SeekIndexMap indexes;
  maker_->UseSeekIndexes(&indexes);
  const absl::Status status = maker_->MakeSeekIndexes(*record.record());
  if (how == "scribble") {  // any answer may be read
    EXPECT_LE(indexes.puts, 1);
  } else {
    const bool machine = GetParam().code == absl::StatusCode::kResourceExhausted ||
                         GetParam().code == absl::StatusCode::kUnavailable;
    EXPECT_EQ(status.code(), machine ? GetParam().code : absl::StatusCode::kOk) << status;
    EXPECT_EQ(indexes.puts, how == "indexes_of_one" ? 1 : 0);
  }
  // What was kept is no index at all, and does no harm either.
  here_.Use(plan_.get(), nullptr);
  TestBatch plain(*plan_, 1), with(*plan_, 1);
  ASSERT_TRUE(here_.Run(InputOf(record, 1), 0, plain.memory).ok());
  here_.Use(plan_.get(), &indexes);
  ASSERT_TRUE(here_.Run(InputOf(record, 1), 0, with.memory).ok());
  EXPECT_EQ(with.Sample(0), plain.Sample(0));
}

INSTANTIATE_TEST_SUITE_P(
    Decoder, HostileDecoder,
    ::testing::Values(
        Hostile{"start", absl::StatusCode::kResourceExhausted, "ended with status 1 at its start"},
        Hostile{"stranger", absl::StatusCode::kUnavailable, "not of this daemon's version"},
        Hostile{"segv", absl::StatusCode::kDataLoss, "died of SIGSEGV on this record"},
        Hostile{"kill", absl::StatusCode::kResourceExhausted, "killed again and again"},
        Hostile{"exit", absl::StatusCode::kDataLoss, "ended with status 7 on this record"},
        Hostile{"spin", absl::StatusCode::kDataLoss, "had not answered after"},
        Hostile{"sleep", absl::StatusCode::kResourceExhausted, "stand still (2 times on one"},
        Hostile{"kill_start", absl::StatusCode::kResourceExhausted,
                "killed again and again (SIGKILL, 5 times at their start): too little memory"},
        Hostile{"close", absl::StatusCode::kDataLoss, "closed its socket"},
        Hostile{"sequence", absl::StatusCode::kDataLoss, "answered what it was not asked"},
        Hostile{"long", absl::StatusCode::kDataLoss, "answered what it was not asked"},
        Hostile{"code", absl::StatusCode::kDataLoss, ""},
        Hostile{"machine", absl::StatusCode::kDataLoss, ""},
        Hostile{"message", absl::StatusCode::kDataLoss, "a message longer than its place"},
        Hostile{"text", absl::StatusCode::kInvalidArgument, "a\\x0ab\\x1b[2J"},
        Hostile{"fields", absl::StatusCode::kDataLoss, "too many fields"},
        Hostile{"indexes", absl::StatusCode::kDataLoss, "too many fields"},
        Hostile{"outside", absl::StatusCode::kDataLoss, "lies outside"},
        Hostile{"overflow", absl::StatusCode::kDataLoss, "not that of its shape"},
        Hostile{"shape", absl::StatusCode::kDataLoss, "not that of its shape"},
        Hostile{"type", absl::StatusCode::kDataLoss, "unknown type"},
        Hostile{"axes", absl::StatusCode::kDataLoss, "too many axes"},
        Hostile{"other_shape", absl::StatusCode::kOk, ""},
        Hostile{"index_of_nothing", absl::StatusCode::kOk, ""},
        Hostile{"indexes_of_one", absl::StatusCode::kOk, ""},
        Hostile{"scribble", absl::StatusCode::kOk, ""}),
    [](const auto& info) { return std::string(info.param.how); });

}  // namespace
}  // namespace feedwater::server
