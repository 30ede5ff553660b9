// Samples that are fields of their records: they come straight from the page cache or from the
// record cache, and where that cannot be, as every other sample does, with the same bytes and the
// same errors.
#include "server/pipeline/direct_copies.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/fd.h"
#include "server/pipeline/stream.h"
#include "tests/storage/temp_folder.h"
#include "tests/testing/test_runtime.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::AttachRank;
using ::feedwater::testing::LoadPipeline;
using ::feedwater::testing::RunSteps;
using ::feedwater::testing::SeenBatch;
using ::feedwater::testing::TestJob;
using ::feedwater::testing::TestRank;
using ::feedwater::testing::TestRuntimeOptions;
using ::feedwater::testing::WorkingEngines;
using ::testing::HasSubstr;

constexpr int64_t kRecords = 300, kRecordBytes = 21, kBatch = 32;

std::string RecordBytesOf(int64_t record) {
  std::string bytes;
  for (int64_t i = 0; i < kRecordBytes; ++i)
    bytes.push_back(static_cast<char>(record * 31 + i * 7));
  return bytes;
}

constexpr char kRawDataset[] =
    "dataset: {format: raw, root: data, path: raw, record_bytes: 21, header_bytes: 5, fields: "
    "{tail: {offset: 9, dtype: float32, shape: [3]}, head: {offset: 1, dtype: uint8, shape: [2, "
    "4]}}}\n";

std::unique_ptr<DirectCopies> DirectFor(const LoadedPipeline& pipeline) {
  return DirectCopies::For(*pipeline.dataset, *pipeline.plan,
                           pipeline.cache == nullptr ? nullptr : &pipeline.kept);
}

class DirectCopiesTest : public ::testing::Test {
 protected:
  // Two files of a header and records, as raw/0.bin and raw/1.bin.
  void WriteRaw() {
    for (int file = 0; file < 2; ++file) {
      std::string content = "12345";
      for (int64_t r = file * 100; r < (file == 0 ? 100 : kRecords); ++r)
        content += RecordBytesOf(r);
      temp_.Write(absl::StrCat("raw/", file, ".bin"), content);
    }
    AwaitTick();
  }
  // Labels are the record's number modulo `labels`.
  void WriteMnist(int labels) {
    std::string images("\0\0\x08\x03\0\0\x01\x2c\0\0\0\x1c\0\0\0\x1c", 16);
    std::string numbers("\0\0\x08\x01\0\0\x01\x2c", 8);
    for (int64_t r = 0; r < kRecords; ++r) {
      images += std::string(28 * 28, static_cast<char>(r));
      numbers.push_back(static_cast<char>(r % labels));
    }
    temp_.Write("mnist/train-images-idx3-ubyte", images);
    temp_.Write("mnist/train-labels-idx1-ubyte", numbers);
    AwaitTick();
  }
  // What was written shows in the stamps of the files from now on.
  static void AwaitTick() {
    const int64_t until = MonotonicNs() + 2 * kFileTimeTickNs;
    while (MonotonicNs() < until) {
    }
  }

  std::shared_ptr<const LoadedPipeline> Load(const std::string& dataset, const std::string& rest) {
    DatasetOptions options;
    options.roots = temp_.AsRoot("data");
    const std::string yaml = absl::StrCat("version: 1\n", dataset, rest);
    const auto opened = OpenDataset(ParsePipeline(yaml, "test.yaml")->dataset, options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return LoadPipeline(yaml, *opened);
  }

  // Makes places 1 to 4 of a batch of 6 and gives the outputs. What was read, -1: not made; less by
  // 1000 for each sample from the cache.
  int64_t Make(const LoadedPipeline& pipeline, std::vector<std::string>* outputs) {
    const auto direct = DirectFor(pipeline);
    EXPECT_NE(direct, nullptr);
    if (direct == nullptr) return -1;
    const auto job =
        JobFiles::Create(pipeline.dataset, std::make_shared<FileCache>(8, false), nullptr);
    EXPECT_TRUE(job->Prepare().ok());
    return Make(direct.get(), pipeline, job.get(), outputs);
  }
  static int64_t Make(DirectCopies* direct, const LoadedPipeline& pipeline, JobFiles* job,
                      std::vector<std::string>* outputs) {
    std::vector<Placement> places(4);
    for (int64_t i = 0; i < 4; ++i) {
      places[i].record = 98 + i;
      places[i].position = 1000 + i;
    }
    BatchMemory memory;
    outputs->clear();
    for (const FieldSpec& output : pipeline.plan->outputs())
      outputs->emplace_back(static_cast<size_t>(6 * *output.SampleBytes()), '\xee');
    for (std::string& output : *outputs)
      memory.outputs.push_back(reinterpret_cast<std::byte*>(output.data()));
    memory.batch_size = 6;
    OpenedFiles files;
    DirectCopies::Scratch scratch;
    const auto made = direct->Make({pipeline.dataset.get(), job, pipeline.cache.get(), 0}, places,
                                   1, memory, &files, &scratch);
    return made.has_value() ? made->bytes - 1000 * made->from_cache : -1;
  }

  TempFolder temp_;
};

TEST_F(DirectCopiesTest, AreBytesOfRecordsInTheirPlaces) {
  WriteRaw();
  const auto pipeline = Load(kRawDataset, "outputs: [head, sample_id, tail, is_real, position]\n");
  std::vector<std::string> outputs;
  ASSERT_EQ(Make(*pipeline, &outputs), 4 * kRecordBytes);
  for (int64_t i = 0; i < 4; ++i) {
    const std::string record = RecordBytesOf(98 + i);
    EXPECT_EQ(outputs[0].substr(8 * (1 + i), 8), record.substr(1, 8));
    EXPECT_EQ(outputs[2].substr(12 * (1 + i), 12), record.substr(9, 12));
    int64_t id = 0, position = 0;
    std::memcpy(&id, &outputs[1][8 * (1 + i)], 8);
    std::memcpy(&position, &outputs[4][8 * (1 + i)], 8);
    EXPECT_EQ(id, 98 + i);
    EXPECT_EQ(position, 1000 + i);
    EXPECT_EQ(outputs[3][1 + i], 1);
  }
  for (const std::string& output : outputs) {  // nothing beside the places
    const size_t sample = output.size() / 6;
    EXPECT_EQ(output.substr(0, sample), std::string(sample, '\xee'));
    EXPECT_EQ(output.substr(5 * sample), std::string(sample, '\xee'));
  }
}

TEST_F(DirectCopiesTest, AreNotForGraphsCachesAndRaggedOutputs) {
  WriteRaw();
  EXPECT_EQ(DirectFor(*Load(kRawDataset, "outputs: [sample_id]\n")), nullptr);
  EXPECT_EQ(DirectFor(*Load(kRawDataset,
                            "graph:\n  - cast: {in: head, dtype: float32}\noutputs: [head]\n")),
            nullptr);
  WriteMnist(10);
  EXPECT_NE(DirectFor(*Load("dataset: {format: mnist, root: data, path: mnist}\n",
                            "outputs: [image, label]\n")),
            nullptr);
}

TEST_F(DirectCopiesTest, ComeFromTheCacheOnceItHasThem) {
  WriteMnist(10);
  const auto loaded =
      Load("dataset: {format: mnist, root: data, path: mnist}\n",
           "sampler: {shuffle: full, last: pad}\noutputs: [label, image, sample_id]\n");
  auto pipeline = std::make_shared<LoadedPipeline>(*loaded);
  pipeline->cache_kind = CacheKind::kBytes;
  pipeline->kept = KeptFormOf(CacheKind::kBytes, *pipeline->dataset, *pipeline->plan);
  RecordCache::Options options;
  options.records = kRecords;
  options.memory_limit = 8 << 20;
  options.memory_quota = std::make_shared<ByteQuota>(8 << 20);
  pipeline->cache = *RecordCache::Open(std::move(options));

  std::vector<std::string> outputs;
  EXPECT_EQ(Make(*pipeline, &outputs), -1) << "the cache is to get the records first";
  const auto first = RunSteps(TestRuntimeOptions(2), TestJob(pipeline, kBatch), 10);
  const uint64_t before = pipeline->cache->counts().memory_hits;
  const auto second = RunSteps(TestRuntimeOptions(2), TestJob(pipeline, kBatch), 10);
  for (size_t step = 0; step < first.size(); ++step) EXPECT_EQ(first[step], second[step]) << step;
  EXPECT_GE(pipeline->cache->counts().memory_hits, before + 10u * kBatch);

  ASSERT_EQ(Make(*pipeline, &outputs), -1000 * 4);
  for (int64_t i = 0; i < 4; ++i) {
    int64_t label = 0;
    std::memcpy(&label, &outputs[0][8 * (1 + i)], 8);
    EXPECT_EQ(label, (98 + i) % 10);
    EXPECT_EQ(outputs[1].substr(784 * (1 + i), 784), std::string(784, static_cast<char>(98 + i)));
  }

  WriteMnist(9);  // what the cache has is of another file
  EXPECT_EQ(Make(*pipeline, &outputs), -1);
}

// What is not in memory is waited for by ordinary reads, all at once.
TEST_F(DirectCopiesTest, LeaveWhatIsNotInMemoryToTheOrdinaryWay) {
  WriteRaw();
  const auto pipeline = Load(kRawDataset, "outputs: [head, tail]\n");
  std::vector<std::string> outputs;
  ASSERT_GT(Make(*pipeline, &outputs), 0);
  const Fd file(open((temp_ / "raw/1.bin").c_str(), O_RDONLY));
  ASSERT_EQ(fdatasync(file.get()), 0);
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  unsigned char is_there = 0;
  void* const page = mmap(nullptr, 1, PROT_READ, MAP_SHARED, file.get(), 0);
  ASSERT_EQ(mincore(page, 1, &is_there), 0);
  munmap(page, 1);
  if ((is_there & 1) != 0) GTEST_SKIP() << "this file system keeps its pages";
  EXPECT_EQ(Make(*pipeline, &outputs), -1);
  char byte;
  ASSERT_EQ(pread(file.get(), &byte, 1, 0), 1);
  EXPECT_GT(Make(*pipeline, &outputs), 0);
}

// Parse would find the value that does not fit, and so would nobody here.
TEST_F(DirectCopiesTest, AreNotForRecordsWithAFieldThatIsConverted) {
  const auto npy = [](const std::string& descr, const std::string& data) {
    std::string header =
        absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (3, 2), }");
    header.resize(117, ' ');
    header += '\n';
    return std::string("\x93NUMPY\x01\0\x76\0", 10) + header + data;
  };
  temp_.Write("arrays/x.npy", npy("|u1", "abcdef"));
  temp_.Write("arrays/y.npy", npy("<i8", std::string(48, '\1')));
  AwaitTick();
  const auto load = [&](const std::string& y) {
    return Load(absl::StrCat("dataset: {format: npy, root: data, path: arrays, fields: {x: x.npy",
                             y, "}}\n"),
                "outputs: [x]\n");
  };
  EXPECT_NE(DirectFor(*load("")), nullptr);
  EXPECT_NE(DirectFor(*load(", y: y.npy")), nullptr);
  EXPECT_EQ(DirectFor(*load(", y: {from: y.npy, dtype: uint8}")), nullptr);
}

TEST_F(DirectCopiesTest, LeaveALabelBeyondTheClassesToTheOrdinaryWay) {
  WriteMnist(10);
  const std::string dataset = "dataset: {format: mnist, root: data, path: mnist}\n";
  std::vector<std::string> outputs;
  ASSERT_EQ(Make(*Load(dataset, "outputs: [image, label]\n"), &outputs), 4 * (784 + 1));
  int64_t label = 0;
  std::memcpy(&label, &outputs[1][8 * 2], 8);
  EXPECT_EQ(label, 99 % 10);

  WriteMnist(11);  // now some are 10
  EXPECT_EQ(Make(*Load(dataset, "outputs: [image, label]\n"), &outputs), -1)
      << "that of record 98 is 10";
  EXPECT_EQ(Make(*Load(dataset, "outputs: [image]\n"), &outputs), -1)
      << "a record is bad by its label even where nobody asks for that";
}

// CIFAR-100: two labels, and planes that become pixels.
TEST_F(DirectCopiesTest, InterleaveThePlanesOfCifar) {
  std::string content;
  for (int64_t r = 0; r < kRecords; ++r) {
    content.push_back(static_cast<char>(r % 20));
    content.push_back(static_cast<char>(r % 100));
    for (int64_t i = 0; i < 3072; ++i) content.push_back(static_cast<char>(r * 31 + i * 7 + i / 9));
  }
  temp_.Write("cifar/train.bin", content);
  AwaitTick();
  const std::string dataset = "dataset: {format: cifar100, root: data, path: cifar}\n";
  const auto pipeline = Load(dataset, "outputs: [coarse_label, image, label]\n");
  std::vector<std::string> outputs;
  ASSERT_EQ(Make(*pipeline, &outputs), 4 * 3074);
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t record = 98 + i;
    const std::string planes = content.substr(record * 3074 + 2, 3072);
    std::string pixels;
    for (int64_t p = 0; p < 1024; ++p) {
      for (int64_t c = 0; c < 3; ++c) pixels.push_back(planes[c * 1024 + p]);
    }
    EXPECT_EQ(outputs[1].substr(3072 * (1 + i), 3072), pixels) << record;
    int64_t label = 0, coarse = 0;
    std::memcpy(&coarse, &outputs[0][8 * (1 + i)], 8);
    std::memcpy(&label, &outputs[2][8 * (1 + i)], 8);
    EXPECT_EQ(label, record % 100);
    EXPECT_EQ(coarse, record % 20);
  }
  for (const std::string& output : outputs) {  // nothing beside the places
    const size_t sample = output.size() / 6;
    EXPECT_EQ(output.substr(0, sample), std::string(sample, '\xee'));
    EXPECT_EQ(output.substr(5 * sample), std::string(sample, '\xee'));
  }
}

TEST_F(DirectCopiesTest, LeaveAFileThatWasCutToTheOrdinaryWay) {
  WriteRaw();
  const auto pipeline = Load(kRawDataset, "outputs: [head, tail]\n");
  const auto direct = DirectFor(*pipeline);
  const auto job =
      JobFiles::Create(pipeline->dataset, std::make_shared<FileCache>(8, false), nullptr);
  ASSERT_TRUE(job->Prepare().ok());
  std::vector<std::string> outputs;
  ASSERT_GT(Make(direct.get(), *pipeline, job.get(), &outputs), 0);
  std::filesystem::resize_file(temp_ / "raw/0.bin", 0);
  EXPECT_EQ(Make(direct.get(), *pipeline, job.get(), &outputs), -1);
}

TEST_F(DirectCopiesTest, EndAJobWhoseFileChanges) {
  WriteRaw();
  const auto pipeline = Load(kRawDataset, "sampler: {shuffle: full}\noutputs: [head, sample_id]\n");
  const auto runtime = *Runtime::Create(TestRuntimeOptions(1));
  const TestRank rank = AttachRank(*runtime, TestJob(pipeline, kBatch), 0);
  ASSERT_NE(rank.stream->job().direct(), nullptr);
  rank.slots->Release(rank.slots->Next()->slot);
  {
    std::fstream file(temp_ / "raw/1.bin", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(5);
    file << std::string(kRecordBytes * 200, 'x');
  }
  absl::Status ended;
  for (int64_t step = 0; step < 100 && ended.ok(); ++step) {
    const auto event = rank.slots->Next();
    ASSERT_TRUE(event.has_value());
    if (event->slot < 0) {
      ended = event->failure.status;
      break;
    }
    const SeenBatch batch = rank.Copy(*event);
    const std::vector<int64_t> ids = batch.Int64s(1);
    for (size_t k = 0; k < ids.size(); ++k)
      ASSERT_EQ(batch.outputs[0].substr(8 * k, 8), RecordBytesOf(ids[k]).substr(1, 8));
    rank.slots->Release(event->slot);
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(ended)) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("raw/1.bin"));
}

TEST_F(DirectCopiesTest, GiveEverySampleOnceWhateverTheWorkersAndTheWorld) {
  WriteRaw();
  const auto pipeline = Load(
      kRawDataset,
      "sampler: {shuffle: full, last: pad}\noutputs: [head, tail, sample_id, position, is_real]\n");
  for (const int workers : {1, 3}) {
    for (const int64_t world : {1, 2}) {
      const int64_t steps = (kRecords + kBatch * world - 1) / (kBatch * world);
      const auto seen =
          RunSteps(TestRuntimeOptions(workers), TestJob(pipeline, kBatch, world), steps);
      std::map<int64_t, int> times;
      for (const auto& step : seen) {
        for (const SeenBatch& batch : step) {
          const std::vector<int64_t> ids = batch.Int64s(2);
          for (size_t k = 0; k < ids.size(); ++k) {
            ASSERT_EQ(batch.outputs[0].substr(8 * k, 8), RecordBytesOf(ids[k]).substr(1, 8));
            ASSERT_EQ(batch.outputs[1].substr(12 * k, 12), RecordBytesOf(ids[k]).substr(9, 12));
            times[ids[k]] += batch.outputs[4][k] != 0 ? 1 : 0;
          }
        }
      }
      ASSERT_EQ(times.size(), static_cast<size_t>(kRecords));
      for (const auto& [record, count] : times) EXPECT_EQ(count, 1) << record;
    }
  }
}

}  // namespace
}  // namespace feedwater::server
