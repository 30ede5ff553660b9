#include "client/cli/mix_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/escape.h"
#include "server/base/units.h"

namespace feedwater::cli {

std::vector<std::string> MixLines(const v1::DescribePipelineResponse& pipeline) {
  std::vector<std::string> lines;
  int64_t period = 0;
  for (const v1::MixSource& source : pipeline.mix()) period += source.weight();
  for (const v1::MixSource& source : pipeline.mix()) {
    lines.push_back(absl::StrFormat(
        "%s: %d of every %s, %s an epoch, %.3g of each of its %s", server::Escaped(source.name()),
        source.weight(), server::FormatCount(period, "sample"),
        server::FormatCount(source.samples_per_epoch(), "sample"),
        static_cast<double>(source.samples_per_epoch()) / static_cast<double>(source.records()),
        server::FormatCount(source.records(), "record")));
  }
  return lines;
}

nlohmann::json MixJson(const v1::DescribePipelineResponse& pipeline) {
  if (pipeline.mix_size() == 0) return nullptr;
  nlohmann::json sources = nlohmann::json::array();
  for (const v1::MixSource& source : pipeline.mix()) {
    sources.push_back({{"dataset_id", sources.size()},
                       {"name", source.name()},
                       {"weight", source.weight()},
                       {"records", source.records()},
                       {"samples_per_epoch", source.samples_per_epoch()}});
  }
  return sources;
}

std::string ConvertText(const server::Dataset& dataset, const std::string& options) {
  if (dataset.mix() == nullptr) return absl::StrCat("feedwater convert PIPELINE.yaml OUT", options);
  return absl::StrCat(
      "for each source of the mix write SOURCE.yaml, with that source as its "
      "`dataset:`, without `weight`, and call feedwater convert SOURCE.yaml OUT",
      options,
      "; what OUT/dataset.yaml has below `dataset:`, and the weight, replace the "
      "source");
}

}  // namespace feedwater::cli
