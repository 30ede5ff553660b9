// cutmix: each pixel is the sample's own or its partner's, the partner's ones form one box, and the
// label knows its area.
#include <gmock/gmock.h>

#include <set>

#include "tests/graph/mixed_batch.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words

constexpr int64_t kSamples = 6, kHeight = 8, kWidth = 10;

std::vector<std::vector<Bytes>> Cut(const std::string& graph, uint64_t global_batch) {
  return MixedBatch(graph, "cutmix", kSamples, {kWidth, kHeight}, global_batch);
}

TEST(Cutmix, ABoxOfThePartnerStandsInEverySampleAndTheLabelKnowsItsArea) {
  int batches_with_a_box = 0;
  for (uint64_t number = 0; number < 30; ++number) {
    const auto samples = Cut("", number);
    ASSERT_EQ(samples.size(), static_cast<size_t>(kSamples));
    std::set<std::set<int64_t>> boxes;
    std::set<uint8_t> partners;
    for (int64_t k = 0; k < kSamples; ++k) {
      const Bytes& image = samples[k][0];
      const auto label = As<float>(samples[k][1]);
      std::set<int64_t> box;
      uint8_t partner = static_cast<uint8_t>(k + 1);
      for (int64_t i = 0; i < kHeight * kWidth; ++i) {
        ASSERT_EQ(image[3 * i], image[3 * i + 2]);
        if (image[3 * i] == k + 1) continue;
        ASSERT_TRUE(box.empty() || image[3 * i] == partner) << "two partners in one sample";
        partner = image[3 * i];
        box.insert(i);
      }
      if (partner == k + 1) {
        EXPECT_FLOAT_EQ(label[k], 1);
        continue;
      }
      partners.insert(partner);
      boxes.insert(box);
      EXPECT_EQ(box.size(),
                static_cast<size_t>((*box.rbegin() / kWidth - *box.begin() / kWidth + 1) *
                                    (*box.rbegin() % kWidth - *box.begin() % kWidth + 1)))
          << "no rectangle";
      const float share = static_cast<float>(box.size()) / (kHeight * kWidth);
      EXPECT_NEAR(label[k], 1 - share, 1e-6);
      EXPECT_NEAR(label[partner - 1], share, 1e-6);
    }
    EXPECT_LE(boxes.size(), 1u) << "one box for the whole batch";
    batches_with_a_box += !boxes.empty();
  }
  EXPECT_GT(batches_with_a_box, 15);
}

TEST(Cutmix, PlanesGiveTheSameBoxAsPixels) {
  for (uint64_t number = 0; number < 5; ++number) {
    const auto pixels = Cut("", number),
               planes = Cut("- layout: {layout: CHW}\n- cast: {dtype: float32}", number);
    ASSERT_EQ(pixels.size(), planes.size());
    for (size_t k = 0; k < pixels.size(); ++k) {
      EXPECT_EQ(pixels[k][1], planes[k][1]);
      const auto values = As<float>(planes[k][0]);
      for (size_t i = 0; i < kHeight * kWidth; ++i) {
        for (size_t c = 0; c < 3; ++c)
          ASSERT_EQ(values[c * kHeight * kWidth + i], pixels[k][0][3 * i + c]);
      }
    }
  }
}

}  // namespace
}  // namespace feedwater::server
