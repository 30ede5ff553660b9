// What somebody outside can cause as often as they like has a bounded number of lines in the log.
#include "server/base/log_limiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

int Admitted(LogLimiter* limiter, const char* kind, int64_t source, int events) {
  int lines = 0;
  for (int i = 0; i < events; ++i) lines += limiter->Admits(kind, source);
  return lines;
}

TEST(LogLimiter, AFloodHasAFewLinesAndOneThatCountsTheRest) {
  LogLimiter limiter;
  EXPECT_EQ(Admitted(&limiter, "refused", 7, 100'000), LogLimiter::kLines);
  EXPECT_THAT(limiter.Summaries(), IsEmpty()) << "the minute is not over";
  limiter.Advance(LogLimiter::kPeriodNs);
  EXPECT_THAT(limiter.Summaries(),
              ElementsAre("refused by user 7: 99996 more times in the last 60 s"));
  EXPECT_THAT(limiter.Summaries(), IsEmpty());
  EXPECT_EQ(Admitted(&limiter, "refused", 7, 100), LogLimiter::kLines) << "a new minute";
}

TEST(LogLimiter, AFewEventsHaveTheirLinesAndNoSummary) {
  LogLimiter limiter;
  EXPECT_EQ(Admitted(&limiter, "refused", 7, 3), 3);
  limiter.Advance(LogLimiter::kPeriodNs);
  EXPECT_THAT(limiter.Summaries(), IsEmpty());
}

TEST(LogLimiter, KindsAndUsersHaveLinesOfTheirOwn) {
  LogLimiter limiter;
  Admitted(&limiter, "refused", 7, 1000);
  EXPECT_EQ(Admitted(&limiter, "refused", 8, 2), 2);
  EXPECT_EQ(Admitted(&limiter, "handshake_timeout", 7, 2), 2);
}

TEST(LogLimiter, ManyUsersShareAPlaceForEachKind) {
  LogLimiter limiter;
  int lines = 0;
  for (int64_t user = 0; user < 100'000; ++user) lines += limiter.Admits("refused", user);
  EXPECT_EQ(lines, static_cast<int>(LogLimiter::kMaxSources) + LogLimiter::kLines);
  limiter.Advance(LogLimiter::kPeriodNs);
  EXPECT_THAT(limiter.Summaries(), ElementsAre("refused: 99740 more times in the last 60 s"));
}

}  // namespace
}  // namespace feedwater::server
