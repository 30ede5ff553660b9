// The list of bad samples: one entry a record, over restarts, whatever stands in the file.
#include "server/pipeline/bad_sample_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/source/given_records.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kDataset[] = "0123456789abcdef0123456789abcdef";

BadSample Bad(int64_t record, const std::string& reason = "damaged") {
  BadSample bad;
  bad.record = record;
  bad.stood_in = record + 1;
  bad.path = absl::StrCat("cat/", record, ".jpg");
  bad.offset = 64;
  bad.length = 1234;
  bad.reason = reason;
  return bad;
}

PipelineSpec Spec(const std::string& name, BadSamplePolicy policy) {
  PipelineSpec spec;
  spec.name = name;
  spec.digest = "digest of " + name;
  spec.on_bad_sample = policy;
  return spec;
}
const PipelineSpec kTrain = Spec("train", BadSamplePolicy::kSubstitute);
const PipelineSpec kVal = Spec("val", BadSamplePolicy::kSkipWithCount);

class BadSampleLogTest : public ::testing::Test {
 protected:
  std::string file() const { return temp_.path() + "/bad_samples.jsonl"; }
  std::string Content() const {
    std::ifstream in(file(), std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  int64_t Lines() const {
    const std::string text = Content();
    return std::count(text.begin(), text.end(), '\n');
  }

  TempFolder temp_;
};

TEST_F(BadSampleLogTest, HasOneEntryARecordAndKeepsItOverARestart) {
  {
    auto log = BadSampleLog::Open(temp_.path());
    log->Add(kDataset, kTrain, Bad(17));
    log->Add(kDataset, kTrain, Bad(17));
    log->Add(kDataset, kVal, Bad(17, "cut short"));
    log->Add("another dataset", kTrain, Bad(17));
    log->Add(kDataset, kTrain, Bad(3));
    EXPECT_EQ(log->records(), 3u);
  }
  EXPECT_EQ(Lines(), 3);
  auto log = BadSampleLog::Open(temp_.path());
  const auto report = log->Get();
  ASSERT_EQ(report.entries.size(), 3u);
  EXPECT_EQ(report.file, file());
  EXPECT_EQ(report.entries[0].record, 3);
  const BadSampleLog::Entry& entry = report.entries[1];
  EXPECT_EQ(entry.dataset, kDataset);
  EXPECT_EQ(entry.record, 17);
  EXPECT_EQ(entry.count, 3u);
  EXPECT_EQ(entry.pipeline, "val");
  EXPECT_EQ(entry.path, "cat/17.jpg");
  EXPECT_EQ(entry.offset, 64);
  EXPECT_EQ(entry.length, 1234);
  EXPECT_EQ(entry.reason, "cut short");
  EXPECT_EQ(entry.action, "skip_with_count");
  EXPECT_EQ(entry.stood_in, 18);
  EXPECT_GT(entry.first_seen, 1'600'000'000);
  EXPECT_GE(entry.last_seen, entry.first_seen);
  EXPECT_EQ(entry.crashes, 0);
}

TEST_F(BadSampleLogTest, ANewRecordIsInTheFileAtOnce) {
  auto log = BadSampleLog::Open(temp_.path());
  log->Add(kDataset, kTrain, Bad(17));
  EXPECT_EQ(Lines(), 1) << "a kill -9 now loses nothing";
  log->Add(kDataset, kTrain, Bad(17));
  EXPECT_EQ(Lines(), 1);
  log->Flush();
  EXPECT_THAT(Content(), HasSubstr(R"("count":2)"));
  log->Add(kDataset, kTrain, Bad(18));
  EXPECT_EQ(Lines(), 2) << "also after the file was replaced";
}

TEST_F(BadSampleLogTest, ReadsAroundWhateverStandsInTheFile) {
  std::string good;
  {
    auto log = BadSampleLog::Open(temp_.path());
    log->Add(kDataset, kTrain, Bad(17));
    good = Content();
  }
  const std::string rubbish = absl::StrCat(
      "\n{}\n[1]\nnull\n\xff\xfe\n{\"dataset\":5,\"record\":1}\n{\"dataset\":\"x\",\"record\":-1}\n"
      "{\"dataset\":\"x\",\"record\":1e99}\n{\"dataset\":\"x\",\"record\":\"1\"}\n",
      std::string(100'000, '['), "\n", good.substr(0, good.size() / 2), "\n");
  std::ofstream(file(), std::ios::binary) << rubbish << good << good.substr(0, 40);
  auto log = BadSampleLog::Open(temp_.path());
  EXPECT_EQ(log->records(), 1u);
  EXPECT_EQ(Content(), good) << "written anew without it";
  // A line that a crash cut short does not spoil the next one.
  log->Add(kDataset, kTrain, Bad(18));
  EXPECT_EQ(Lines(), 2);
}

TEST_F(BadSampleLogTest, IsBoundedAndSaysWhatItLeavesOut) {
  auto log = BadSampleLog::Open(temp_.path());
  const auto most = static_cast<int64_t>(BadSampleLog::kMaxRecords);
  const std::string endless(1 << 20, 'x');
  for (int64_t record = 0; record < most + 5; ++record)
    log->Add(kDataset, kTrain, Bad(record, record < 3 ? endless : "damaged"));
  const auto report = log->Get();
  EXPECT_EQ(report.entries.size(), BadSampleLog::kMaxRecords);
  EXPECT_EQ(report.not_listed, 5u);
  EXPECT_LE(report.entries[0].reason.size(), 1536u);
  EXPECT_LT(std::filesystem::file_size(file()), 8u << 20);
}

TEST_F(BadSampleLogTest, OneUsersManyDoNotPushAnothersOut) {
  constexpr int64_t kMallory = 1001, kAlice = 1002;
  auto log = BadSampleLog::Open(temp_.path());
  const auto most = static_cast<int64_t>(BadSampleLog::kMaxRecords);
  const auto of_alice = [&] {
    int n = 0;
    for (const BadSampleLog::Entry& entry : log->Get().entries) n += entry.user == kAlice;
    return n;
  };
  for (int64_t record = 0; record < 3; ++record) log->Add("hers", kTrain, Bad(record), kAlice);
  for (int64_t record = 0; record < most + 2000; ++record)
    log->Add("his", kTrain, Bad(record), kMallory);
  EXPECT_EQ(of_alice(), 3);
  for (int64_t record = 3; record < 13; ++record) log->Add("hers", kTrain, Bad(record), kAlice);
  EXPECT_EQ(of_alice(), 13) << "and new ones find room";
  EXPECT_EQ(log->records(), BadSampleLog::kMaxRecords);
  EXPECT_EQ(log->Get().not_listed, 2000u + 3 + 10);
  log.reset();
  log = BadSampleLog::Open(temp_.path());
  EXPECT_EQ(of_alice(), 13) << "also after a restart";
}

// An iterable dataset's samples are others in each epoch, and would fill the user's list for good.
TEST_F(BadSampleLogTest, OfAnIterableDatasetTheEarliestEpochMakesRoom) {
  constexpr int64_t kUser = 1001;
  const auto in_epoch = [](int epoch) {
    return absl::StrFormat("%.*s%012x", kOfAnyEpoch, kDataset, epoch);
  };
  auto log = BadSampleLog::Open(temp_.path());
  const auto most = static_cast<int64_t>(BadSampleLog::kMaxRecords);
  log->AddCrash(in_epoch(8), 7, "", 0, 5, SIGSEGV);
  for (int64_t record = 0; record < 10; ++record) log->Add("other", kTrain, Bad(record), kUser);
  for (int64_t record = 0; record < most; ++record)
    log->Add(in_epoch(8 + static_cast<int>(record / 100)), kTrain, Bad(record % 100), kUser);
  const int last = 8 + static_cast<int>(most / 100);
  for (int64_t record = 0; record < 300; ++record) {
    log->Add(in_epoch(last + static_cast<int>(record / 100)), kTrain, Bad(record % 100), kUser);
  }
  std::map<std::string, int> of;
  for (const BadSampleLog::Entry& entry : log->Get().entries) ++of[entry.dataset];
  EXPECT_EQ(log->records(), BadSampleLog::kMaxRecords);
  EXPECT_EQ(of["other"], 10) << "another dataset's stay";
  EXPECT_EQ(of[in_epoch(8)], 1) << "which ended the daemon";
  EXPECT_EQ(of[in_epoch(9)], 0);
  EXPECT_EQ(of[in_epoch(10)], 0);
  EXPECT_EQ(of[in_epoch(12)], 100);
  for (int epoch = last; epoch < last + 3; ++epoch) EXPECT_EQ(of[in_epoch(epoch)], 100) << epoch;
  log->Add(in_epoch(3), kTrain, Bad(1), kUser);
  EXPECT_EQ(log->Get().entries.size(), BadSampleLog::kMaxRecords) << "one before has no room";
}

TEST_F(BadSampleLogTest, WhatItWritesItReadsAgainWhateverItsTextsAre) {
  const auto most = static_cast<int64_t>(BadSampleLog::kMaxRecords);
  {
    auto log = BadSampleLog::Open(temp_.path());
    log->AddCrash(kDataset, 17, "cat/17.jpg", 0, 5, SIGSEGV);
    log->AddCrash(kDataset, 17, "cat/17.jpg", 0, 5, SIGSEGV);
    PipelineSpec pipeline = Spec(std::string(256, '\x01'), BadSamplePolicy::kFail);
    for (int64_t record = 0; record < most; ++record) {
      BadSample bad = Bad(record, std::string(2000, record % 2 == 0 ? '\x01' : '\xff'));
      bad.path = std::string(4000, '\x02');
      for (int edit = 0; edit < 16; edit += record == 0 ? 1 : 16) {
        pipeline.digest = absl::StrFormat("%032d", edit);
        log->Add("his", pipeline, bad);
      }
    }
    // Of an iterable dataset the samples of each epoch are new ones.
    for (int64_t record = 0; record < 8000; ++record)
      log->Add("her", pipeline, Bad(record, std::string(2000, '\x01')));
    EXPECT_LE(std::filesystem::file_size(file()), uintmax_t{64} << 20);
  }
  EXPECT_LE(std::filesystem::file_size(file()), uintmax_t{64} << 20);
  auto log = BadSampleLog::Open(temp_.path());
  EXPECT_EQ(log->records(), BadSampleLog::kMaxRecords);
  EXPECT_EQ(log->quarantined(), 1u) << "it is still put aside";
}

TEST_F(BadSampleLogTest, WhatOwnCodeSaysIsItsUsersAlone) {
  constexpr int64_t kAlice = 1000, kMallory = 1001;
  BadSample bad = Bad(17, "ValueError: /home/alice/key");
  bad.is_of_own_code = true;
  {
    auto log = BadSampleLog::Open(temp_.path());
    log->Add(kDataset, kTrain, bad, kAlice);
    log->Add(kDataset, kVal, Bad(18), kAlice);
  }
  auto log = BadSampleLog::Open(temp_.path());
  const auto entries = log->Get().entries;
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].ReasonFor(kAlice), "ValueError: /home/alice/key");
  EXPECT_EQ(entries[0].ReasonFor(0), "ValueError: /home/alice/key");
  EXPECT_THAT(entries[0].ReasonFor(kMallory), HasSubstr("user 1000's own code"));
  EXPECT_EQ(entries[1].ReasonFor(kMallory), "damaged") << "of the library";
  log->Add(kDataset, kTrain, Bad(17), kMallory);
  EXPECT_EQ(log->Get().entries[0].ReasonFor(kMallory), "damaged") << "met by the library, too";
}

TEST_F(BadSampleLogTest, ARecordIsBadForThePipelinesThatMetIt) {
  {
    auto log = BadSampleLog::Open(temp_.path());
    log->Add(kDataset, kTrain, Bad(17));
    log->AddCrash(kDataset, 18, "cat/18.jpg", 0, 5, SIGSEGV);
  }
  auto log = BadSampleLog::Open(temp_.path());
  EXPECT_TRUE(log->Get().entries[0].IsBadFor(kTrain.digest));
  EXPECT_FALSE(log->Get().entries[0].IsBadFor(kVal.digest));
  EXPECT_FALSE(log->Get().entries[1].IsBadFor(kTrain.digest)) << "it is tried again";
  log->AddCrash(kDataset, 18, "cat/18.jpg", 0, 5, SIGSEGV);
  EXPECT_TRUE(log->Get().entries[1].IsBadFor(kTrain.digest));

  log->Add(kDataset, kVal, Bad(17));
  EXPECT_TRUE(log->Get().entries[0].IsBadFor(kVal.digest));
  for (int edit = 0; edit < 20; ++edit) {
    log->Add(kDataset, Spec(absl::StrCat("edited", edit), BadSamplePolicy::kFail), Bad(17));
    log->Add(kDataset, kTrain, Bad(17));
  }
  EXPECT_TRUE(log->Get().entries[0].IsBadFor(kTrain.digest)) << "it still meets it";
  EXPECT_EQ(log->Get().entries[0].pipelines.size(), BadSampleLog::kMaxPipelines);
  EXPECT_TRUE(log->Get().entries[0].IsBadFor("digest of edited19"));
}

TEST_F(BadSampleLogTest, WhatIsNoFileInItsPlaceHoldsNothingUp) {
  ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
  auto log = BadSampleLog::Open(temp_.path());  // would wait for a reader
  log->Add(kDataset, kTrain, Bad(17));
  EXPECT_EQ(log->records(), 1u);
  log.reset();
  EXPECT_TRUE(std::filesystem::is_regular_file(file())) << "replaced when it is saved";
}

TEST_F(BadSampleLogTest, ASampleOfTwoCrashesIsPutAsideForGood) {
  {
    auto log = BadSampleLog::Open(temp_.path());
    log->AddCrash(kDataset, 17, "cat/17.jpg", 0, 5, SIGSEGV);
    EXPECT_EQ(log->WhyQuarantined(kDataset, 17), "");
    EXPECT_EQ(log->quarantined(), 0u);
  }
  {
    auto log = BadSampleLog::Open(temp_.path());
    log->AddCrash(kDataset, 17, "cat/17.jpg", 0, 5, SIGSEGV);
    EXPECT_THAT(log->WhyQuarantined(kDataset, 17), StartsWith("put aside"));
  }
  auto log = BadSampleLog::Open(temp_.path());
  EXPECT_EQ(log->quarantined(), 1u);
  EXPECT_THAT(log->WhyQuarantined(kDataset, 17), StartsWith("put aside"));
  EXPECT_EQ(log->WhyQuarantined(kDataset, 18), "");
  EXPECT_EQ(log->WhyQuarantined("another dataset", 17), "");
  EXPECT_TRUE(log->Get().entries[0].quarantined());
}

TEST_F(BadSampleLogTest, WithoutAPlaceToWriteItWorksInMemory) {
  std::filesystem::create_directory(file());  // nobody can write there, root neither
  auto log = BadSampleLog::Open(temp_.path());
  log->Add(kDataset, kTrain, Bad(17));
  log->Flush();
  EXPECT_EQ(log->records(), 1u);
}

}  // namespace
}  // namespace feedwater::server
