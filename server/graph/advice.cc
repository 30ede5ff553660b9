#include "server/graph/advice.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

constexpr double kPixelRange = 255;

std::vector<double> NumbersOf(const YamlNode* list) {
  std::vector<double> numbers;
  if (list == nullptr) return numbers;
  for (const YamlNode& item : list->items) {
    double number = 0;
    if (absl::SimpleAtod(item.scalar, &number)) numbers.push_back(number);
  }
  return numbers;
}

std::string InPixelUnits(std::vector<double> numbers) {
  for (double& number : numbers) number *= kPixelRange;
  return absl::StrCat("[", absl::StrJoin(numbers, ", "), "]");
}

// torchvision's mean and std are of pixels 0..1. A mean of 0 and a std of 1 change nothing and may
// well be meant.
std::string AdviceOnNormalize(const OpSpec& op) {
  const std::vector<double> mean = NumbersOf(op.params.Find("mean")),
                            std = NumbersOf(op.params.Find("std"));
  const auto all_within = [](const std::vector<double>& numbers, double least, double most) {
    return !numbers.empty() && std::all_of(numbers.begin(), numbers.end(), [=](double number) {
      return number >= least && number <= most;
    });
  };
  if (!all_within(mean, 0, 1) || !all_within(std, 0, 1)) return "";
  if (all_within(mean, 0, 0) && all_within(std, 1, 1)) return "";
  return absl::StrCat(op.node.Where(),
                      ": normalize: mean and std look like those of pixels from 0 to 1; here they "
                      "are from 0 to 255: `mean: ",
                      InPixelUnits(mean), ", std: ", InPixelUnits(std), "`");
}

}  // namespace

std::vector<std::string> AdviceOn(const PipelineSpec& spec) {
  std::vector<std::string> advice;
  for (const auto* graph : {&spec.graph, &spec.batch_graph}) {
    for (const OpSpec& op : *graph) {
      std::string text = op.name == "normalize" ? AdviceOnNormalize(op) : "";
      if (!text.empty()) advice.push_back(std::move(text));
    }
  }
  return advice;
}

namespace {

// The sources of a mix stand at places of a period, and `interleave` gives a rank every W-th
// position: where the two have a common divisor, a rank sees but a part of the places.
std::string AdviceOnInterleaving(const OrderConfig& order) {
  if (order.mix == nullptr || order.shard != ShardMode::kInterleave) return "";
  const int64_t period = order.mix->schedule().period();
  const int64_t common = std::gcd(period, order.world_size);
  if (common == 1 || order.mix->sources().size() == 1) return "";
  return absl::StrCat("with `shard: interleave` the ranks do not get the same shares of the mix: ",
                      "its sources follow one another with a period of ", period,
                      " samples, of which a rank of ", order.world_size, " sees one in ", common,
                      ". To have each source on every rank take `sampler: {shard: batch}`");
}

std::string AdviceOnEmptyBatches(const OrderConfig& order) {
  const int64_t first = FirstEmptyRank(order), last = order.world_size - 1;
  if (first > last) return "";
  return absl::StrCat(
      first == last ? absl::StrCat("rank ", first, " of ", order.world_size, " gets")
                    : absl::StrCat("ranks ", first, " to ", last, " of ", order.world_size, " get"),
      " an empty last batch in each epoch: `last: partial` shares what ",
      FormatCount(order.positions(), order.mix == nullptr ? "record" : "sample"),
      " leave after full batches, ", FormatCount(first, "sample"),
      ". To have equal batches on all ranks take `sampler: {last: pad}`, with `is_real` among the "
      "outputs, which says which samples count");
}

}  // namespace

std::string AdviceOn(const OrderConfig& order) {
  std::string advice = AdviceOnEmptyBatches(order);
  const std::string more = AdviceOnInterleaving(order);
  return absl::StrCat(advice, advice.empty() || more.empty() ? "" : "; ", more);
}

}  // namespace feedwater::server
