// What is kept of a batch's bad samples until it is published.
#include "server/pipeline/bad_sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/fake_dataset.h"

namespace feedwater::server {
namespace {

constexpr auto kReasons = static_cast<int64_t>(BadPlaces::kReasons);

BadSample Bad(int64_t place, const std::string& reason) {
  BadSample bad;
  bad.place = place;
  bad.record = place + 1000;
  bad.reason = reason;
  return bad;
}

TEST(BadPlaces, KeepReasonsOfTheFirstPlacesWhoeverWasFaster) {
  feedwater::testing::FakeDataset dataset({.records = 5000});
  for (const bool reversed : {false, true}) {
    BadPlaces bad;
    const int64_t count = 3 * kReasons;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t place = reversed ? count - 1 - i : i;
      bad.Add({Bad(place, absl::StrCat("reason ", place))});
    }
    bad.Sort();
    ASSERT_EQ(bad.places().size(), static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const BadSample one = bad.At(dataset, bad.places()[static_cast<size_t>(i)]);
      EXPECT_EQ(one.place, i);
      EXPECT_EQ(one.record, i + 1000);
      EXPECT_EQ(one.path, BadRecord(dataset, i + 1000).path);
      EXPECT_FALSE(one.path.empty());
      EXPECT_EQ(one.reason, i < kReasons ? absl::StrCat("reason ", i) : "");
    }
  }
}

TEST(BadPlaces, CutLongReasons) {
  feedwater::testing::FakeDataset dataset({.records = 5000});
  BadPlaces bad;
  bad.Add({Bad(3, std::string(1 << 20, 'x'))});
  EXPECT_EQ(bad.At(dataset, bad.places()[0]).reason.size(), BadPlaces::kMaxReasonBytes);
}

TEST(BadPlaces, KeepOnlyWhatCounts) {
  BadPlaces bad;
  for (int64_t place : {4, 1, 3}) bad.Add({Bad(place, "bad")});
  bad.Sort();
  bad.KeepFirst(2);
  ASSERT_EQ(bad.places().size(), 2u);
  EXPECT_EQ(bad.places()[1].place, 3);
  bad.KeepOnly(3);
  ASSERT_EQ(bad.places().size(), 1u);
  EXPECT_EQ(bad.places()[0].record, 1003);
}

}  // namespace
}  // namespace feedwater::server
