// Goal: whatever jobs there are, everybody gets a status, and their own jobs in it first.
#include "server/service/reports.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "server/service/answers.h"

namespace feedwater::server {
namespace {

constexpr uid_t kAlice = 1001, kMallory = 1002;

JobStats JobOf(uid_t owner, const std::string& name, size_t reason_bytes = 100) {
  JobStats job;
  job.job = name;
  job.owner_uid = owner;
  job.cache_reason = std::string(reason_bytes, 'r');
  job.ranks.resize(2);
  job.loaded = std::make_shared<const LoadedPipeline>();
  return job;
}

std::vector<std::string> Names(const v1::GetStatusResponse& status) {
  std::vector<std::string> names;
  for (const v1::Job& job : status.jobs()) names.push_back(job.job());
  return names;
}

TEST(StatusOfJobs, IsCutWhereTheAnswerIsFullBehindTheCallersOwn) {
  std::vector<JobStats> jobs;
  for (int i = 0; i < 500; ++i) jobs.push_back(JobOf(kMallory, absl::StrCat("flood ", i), 20000));
  jobs.push_back(JobOf(kAlice, "own"));
  v1::GetStatusResponse status;
  status.set_version("of the daemon");
  AddJobs(jobs, kAlice, kMaxAnswerBytes, &status);
  EXPECT_LE(static_cast<int64_t>(status.ByteSizeLong()), kMaxAnswerBytes);
  EXPECT_GT(static_cast<int64_t>(status.ByteSizeLong()), kMaxAnswerBytes - 21000);
  ASSERT_GT(status.jobs_size(), 100);
  EXPECT_EQ(status.jobs(0).job(), "own");
  EXPECT_EQ(status.jobs(1).job(), "flood 0");
  EXPECT_EQ(status.jobs_size() + static_cast<int>(status.jobs_not_listed()), 501);
}

TEST(StatusOfJobs, LeavesOutWhatDoesNotFitAndNothingElse) {
  const std::vector<JobStats> jobs = {JobOf(kAlice, "a"), JobOf(kMallory, "large", 5000),
                                      JobOf(kMallory, "b"), JobOf(kAlice, "c")};
  v1::GetStatusResponse all, cut;
  AddJobs(jobs, kAlice, kMaxAnswerBytes, &all);
  EXPECT_THAT(Names(all), ::testing::ElementsAre("a", "c", "large", "b"));
  EXPECT_EQ(all.jobs_not_listed(), 0u);
  AddJobs(jobs, kAlice, 2000, &cut);
  EXPECT_THAT(Names(cut), ::testing::ElementsAre("a", "c", "b"));
  EXPECT_EQ(cut.jobs_not_listed(), 1u);
}

}  // namespace
}  // namespace feedwater::server
