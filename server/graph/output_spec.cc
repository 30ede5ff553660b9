#include "server/graph/output_spec.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "server/graph/op_spec.h"

namespace feedwater::server {
namespace {

struct OutputParams {
  std::optional<int64_t> max_rows, pad_to;
  std::optional<double> pad_value;
};

// More rows than this do not fit into any memory; what fits is for the slot's limit to say.
constexpr int64_t kMostRows = int64_t{1} << 40;
// Every integer below it is exact as a double.
constexpr double kLargestPadding = 9007199254740992.0;

const Schema<OutputParams>& OutputSchema() {
  static const auto* schema = new Schema<OutputParams>(
      Schema<OutputParams>()
          .Param("max_rows", &OutputParams::max_rows,
                 "Rows of a sample at most, of a field whose number of rows differs: a batch has "
                 "room for as many of each sample. A sample with more is bad. Default: as many as "
                 "fit into 16 KiB, and at least one.",
                 Range(1, kMostRows))
          .Param("pad_to", &OutputParams::pad_to,
                 "Rows that each sample gets, of such a field: the output has a fixed shape, and "
                 "pad_value fills the rows after the sample's own. A sample with more is bad. The "
                 "output NAME_length has the number of its own rows.",
                 Range(1, kMostRows))
          .Param("pad_value", &OutputParams::pad_value, "What pad_to fills up with. Default: 0.",
                 Range(-kLargestPadding, kLargestPadding)));
  return *schema;
}

// `boxes`, or `boxes: {max_rows: 128}`.
absl::Status ReadOutput(const YamlNode& node, OutputSpec* output) {
  if (!node.is_map()) {
    FW_RETURN_IF_ERROR(CheckFieldName(node));
    output->name = node.scalar;
    return absl::OkStatus();
  }
  if (node.entries.size() != 1) {
    return node.Error(absl::StrCat(
        "an entry of 'outputs' is a field, or one field with what is said of it such as {boxes: "
        "{max_rows: 128}}, not a map of ",
        node.entries.size(), " keys"));
  }
  const auto& [key, value] = node.entries[0];
  FW_RETURN_IF_ERROR(CheckFieldName(key));
  output->name = key.scalar;
  FW_ASSIGN_OR_RETURN(const OutputParams params,
                      OutputSchema().Read(value, absl::StrCat("output '", output->name, "'")));
  output->max_rows = params.max_rows;
  output->pad_to = params.pad_to;
  output->pad_value = params.pad_value.value_or(0);
  if (params.max_rows.has_value() && params.pad_to.has_value()) {
    return value.Error(absl::StrCat("output '", output->name,
                                    "' has max_rows and pad_to: the first one is for rows as they "
                                    "are, the second one for a fixed number of them"));
  }
  if (params.pad_value.has_value() && !params.pad_to.has_value()) {
    return value.Error(absl::StrCat("output '", output->name,
                                    "' has pad_value without pad_to, which says how many rows "
                                    "there are to be"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<OutputSpec>> ReadOutputs(const YamlNode& node) {
  if (!node.is_list() || node.items.empty()) {
    return node.Error(
        absl::StrCat("'outputs' must be a list of fields such as [image, label], not ",
                     node.is_list() ? "an empty list" : node.Found()));
  }
  std::vector<OutputSpec> outputs;
  absl::flat_hash_set<std::string> seen;
  for (const YamlNode& item : node.items) {
    OutputSpec output;
    FW_RETURN_IF_ERROR(ReadOutput(item, &output));
    if (!seen.insert(output.name).second)
      return item.Error(absl::StrCat("'outputs' names '", output.name, "' twice"));
    outputs.push_back(std::move(output));
  }
  return outputs;
}

std::vector<ParamInfo> OutputParameters() { return OutputSchema().params(); }

}  // namespace feedwater::server
