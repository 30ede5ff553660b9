// Goal: whatever programs of users do not answer, a worker is left to those that need none.
#include "server/pipeline/worker_shares.h"

#include <gtest/gtest.h>

#include <vector>

namespace feedwater::server {
namespace {

// How many workers jobs of these users get that wait for their programs and never end.
int HeldByCalls(int workers, const std::vector<uint32_t>& uids, int users) {
  WorkerShares shares(workers);
  shares.AdmitOthers(true);
  int held = 0;
  for (int worker = 0; worker < workers; ++worker) {
    for (const uint32_t uid : uids) {
      if (!shares.MayTake(uid, worker, users, /*calls_out=*/true)) continue;
      shares.Taken(uid, worker, true);
      ++held;
      break;
    }
  }
  return held;
}

TEST(WorkerShares, CallsThatDoNotEndLeaveAQuarterOfTheWorkersToTheOthers) {
  EXPECT_EQ(HeldByCalls(8, {1}, 1), 6) << "whoever comes later";
  EXPECT_EQ(HeldByCalls(8, {1, 2}, 2), 6) << "two users together";
  EXPECT_EQ(HeldByCalls(2, {1}, 1), 1);
  EXPECT_EQ(HeldByCalls(2, {1, 2}, 3), 1);
  EXPECT_EQ(HeldByCalls(1, {1}, 1), 1) << "the only one";
  WorkerShares shares(2);
  shares.AdmitOthers(true);
  shares.Taken(1, 0, true);
  EXPECT_FALSE(shares.MayTake(2, 1, 2, true));
  EXPECT_FALSE(shares.MayTake(2, WorkerShares::kAnyWorker, 2, true));
  EXPECT_TRUE(shares.MayTake(2, 1, 2, false));
  EXPECT_TRUE(shares.MayTake(1, 0, 2, true)) << "it holds no further one";
  shares.Done(1, 0, true);
  EXPECT_TRUE(shares.MayTake(2, 1, 2, true));
}

TEST(WorkerShares, WhereNobodyElseIsAdmittedNothingIsBounded) {
  WorkerShares shares(4);
  for (int worker = 0; worker < 4; ++worker) {
    EXPECT_TRUE(shares.MayTake(1, worker, 1, true));
    shares.Taken(1, worker, true);
  }
}

}  // namespace
}  // namespace feedwater::server
