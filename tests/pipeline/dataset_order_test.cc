// From an opened mix to its order, and what is said where that cannot be.
#include "server/pipeline/dataset_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/graph/advice.h"
#include "server/pipeline/ledger.h"
#include "tests/source/dataset_reader.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

class DatasetOrderTest : public ::testing::Test {
 protected:
  DatasetOrderTest() : opener_(folder_.path()) {
    folder_.Write("a/0.csv", "id\n1\n2\n");
    folder_.Write("a/1.csv", "id\n3\n");
    folder_.Write("b/0.csv", "id\n10\n20\n30\n40\n50\n");
  }
  std::shared_ptr<const Dataset> MustOpen(const std::string& stop, int weight = 1) {
    return opener_.MustOpen(
        absl::StrCat("{mix: [{format: csv, root: root, path: a, weight: ", weight,
                     "}, {format: csv, root: root, path: b}], stop: ", stop, "}"));
  }

  TempFolder folder_;
  Opener opener_;
};

TEST_F(DatasetOrderTest, OneDatasetIsNoMix) {
  const auto dataset = opener_.MustOpen("{format: csv, root: root, path: a}");
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(*MixOrderOf(*dataset), nullptr);
  const auto order = MakeOrderConfig(SamplerSpec(), *dataset, 2, 1);
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_EQ(order->mix, nullptr);
  EXPECT_EQ(order->positions(), 3);
  EXPECT_THAT(order->shard_starts, ::testing::ElementsAre(0, 2));
}

TEST_F(DatasetOrderTest, AMixKeepsItsSourcesShardsAndStop) {
  const auto dataset = MustOpen("7", 2);
  ASSERT_NE(dataset, nullptr);
  const auto order = MakeOrderConfig(SamplerSpec(), *dataset, 2, 1);
  ASSERT_TRUE(order.ok()) << order.status();
  ASSERT_NE(order->mix, nullptr);
  EXPECT_EQ(order->positions(), 7);
  EXPECT_EQ(order->records, 8);
  EXPECT_THAT(order->mix->schedule().weights(), ::testing::ElementsAre(2, 1));
  EXPECT_THAT(order->mix->sources()[0].shard_starts, ::testing::ElementsAre(0, 2));
  EXPECT_EQ((*MixOrderOf(*MustOpen("all")))->positions(), 10);
  EXPECT_LT((*MixOrderOf(*MustOpen("first")))->positions(), 7);
}

TEST_F(DatasetOrderTest, ErrorsNameTheSource) {
  const absl::Status status = MixOrderOf(*MustOpen("1", 9)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("source 1 (csv in root/b) has no sample"));
}

TEST_F(DatasetOrderTest, InterleavedRanksAreAdvised) {
  SamplerSpec spec;
  spec.shard = "interleave";
  spec.last = "drop";
  const auto dataset = MustOpen("all", 3);
  EXPECT_THAT(AdviceOn(*MakeOrderConfig(spec, *dataset, 1, 2)),
              HasSubstr("do not get the same shares of the mix"));
  EXPECT_EQ(AdviceOn(*MakeOrderConfig(spec, *dataset, 1, 3)), "");
  spec.shard = "batch";
  EXPECT_EQ(AdviceOn(*MakeOrderConfig(spec, *dataset, 1, 2)), "");
}

TEST_F(DatasetOrderTest, TheLedgerFindsRecordsByTheirRoot) {
  const auto dataset = MustOpen("all");
  SamplerSpec spec;
  spec.last = "partial";
  const auto order = std::make_shared<const OrderConfig>(*MakeOrderConfig(spec, *dataset, 1, 1));
  EXPECT_EQ(*FindRecord(*dataset, "root/a/1.csv"), 2);
  EXPECT_EQ(*FindRecord(*dataset, "a/1.csv"), 2);
  LedgerQuery query;
  query.record = 2;
  const auto ledger = ReadLedger(*dataset, order, query);
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  ASSERT_GE(ledger->entries.size(), 1u);
  for (const LedgerEntry& entry : ledger->entries) {
    EXPECT_EQ(entry.dataset_id, 0);
    EXPECT_EQ(entry.path, "root/a/1.csv");
    EXPECT_EQ(entry.position, entry.use.step);
  }
  query.record.reset();
  query.step = 0;
  EXPECT_EQ(ReadLedger(*opener_.MustOpen("{format: csv, root: root, path: a}"),
                       std::make_shared<const OrderConfig>(*MakeOrderConfig(
                           spec, *opener_.MustOpen("{format: csv, root: root, path: a}"), 1, 1)),
                       query)
                ->entries[0]
                .dataset_id,
            -1);
}

}  // namespace
}  // namespace feedwater::server
