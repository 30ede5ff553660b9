// Counters of several who count under the same names.
#include "server/base/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// The gate and the listener of control.sock both count refused connections.
TEST(AddCounters, ThoseOfOneNameAreAdded) {
  Counters sum = {{"accepted", 7}, {"refused", 1}};
  AddCounters({{"refused", 2}, {"waits", 3}}, &sum);
  EXPECT_THAT(sum, ElementsAre(Pair("accepted", 7), Pair("refused", 3), Pair("waits", 3)));
}

}  // namespace
}  // namespace feedwater::server
