#include "server/graph/advice.h"

#include <algorithm>
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

std::string AdviceOn(const OrderConfig& order) {
  const int64_t first = FirstEmptyRank(order), last = order.world_size - 1;
  if (first > last) return "";
  return absl::StrCat(
      first == last ? absl::StrCat("rank ", first, " of ", order.world_size, " gets")
                    : absl::StrCat("ranks ", first, " to ", last, " of ", order.world_size, " get"),
      " an empty last batch in each epoch: `last: partial` shares what ",
      FormatCount(order.records, "record"), " leave after full batches, ",
      FormatCount(first, "sample"),
      ". To have equal batches on all ranks take `sampler: {last: pad}`, with `is_real` among the "
      "outputs, which says which samples count");
}

}  // namespace feedwater::server
