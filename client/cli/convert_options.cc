#include "client/cli/convert_options.h"

#include <memory>
#include <utility>

#include "client/cli/conversion.h"
#include "client/cli/converted_values.h"
#include "server/base/status.h"

namespace feedwater::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr std::pair<ConvertOptions::Jpeg, const char*> kJpegs[] = {
    {ConvertOptions::Jpeg::kKeep, "keep"},
    {ConvertOptions::Jpeg::kBaseline, "baseline"},
    {ConvertOptions::Jpeg::kCoefficients, "coefficients"}};

// What decides a byte, beside the dataset and --shard-bytes.
json MadeFromOptions(const ConvertOptions& options, const server::ImageLimits& limits) {
  json made_from = {{"shuffle", options.shuffle ? json(*options.shuffle) : json("none")},
                    {"resize-max", options.resize_max},
                    {"quality", options.resize_max > 0 ? options.quality : 0},
                    {"jpeg", NameOf(options.jpeg)}};
  if (options.reads_images()) made_from["max_pixels"] = limits.max_pixels;
  return made_from;
}

}  // namespace

std::optional<ConvertOptions::Jpeg> JpegOf(absl::string_view name) {
  for (const auto& [jpeg, known] : kJpegs) {
    if (known == name) return jpeg;
  }
  return std::nullopt;
}

absl::string_view NameOf(ConvertOptions::Jpeg jpeg) {
  return kJpegs[static_cast<size_t>(jpeg)].second;
}

absl::StatusOr<ConvertOptions> ConvertOptionsOf(const json& made_from) {
  ConvertOptions options;
  const auto number = [&](const char* key, int64_t most) {
    const auto found = made_from.find(key);
    if (found == made_from.end() || !found->is_number_unsigned()) return int64_t{-1};
    const auto value = found->get<uint64_t>();
    return value > static_cast<uint64_t>(most) ? int64_t{-1} : static_cast<int64_t>(value);
  };
  options.shard_bytes = number("shard-bytes", INT64_MAX);
  options.resize_max = static_cast<int>(number("resize-max", INT32_MAX));
  options.quality = static_cast<int>(number("quality", 100));
  const auto shuffle = made_from.find("shuffle"), jpeg = made_from.find("jpeg");
  const auto form = jpeg != made_from.end() && jpeg->is_string() ? JpegOf(jpeg->get<std::string>())
                                                                 : std::nullopt;
  if (options.shard_bytes < 0 || options.resize_max < 0 || options.quality < 0 ||
      shuffle == made_from.end() || !form) {
    return absl::InvalidArgumentError(
        "no folder of `feedwater convert`, or one of another version");
  }
  if (shuffle->is_number_unsigned()) options.shuffle = shuffle->get<uint64_t>();
  options.jpeg = *form;
  return options;
}

absl::StatusOr<ConversionWork> ConvertWork(const Conversion& conversion,
                                           const ConvertOptions& options) {
  const LocalPipeline& local = conversion.local();
  ConversionWork work;
  work.fields = local.dataset().fields();
  FW_ASSIGN_OR_RETURN(const std::vector<bool> is_text, conversion.FindTexts());
  FW_ASSIGN_OR_RETURN(RecordMembers members, RecordMembers::Plan(work.fields, is_text));
  const auto shared = std::make_shared<const RecordMembers>(members);
  work.members = std::move(members);
  const server::ImageLimits& limits = local.loaded->spec.limits;
  work.made_from = MadeFromOptions(options, limits);
  work.maker.shard_bytes = options.shard_bytes;
  work.maker.shuffle = options.shuffle;
  work.maker.new_values = [options, limits, shared,
                           &local]() -> absl::StatusOr<std::unique_ptr<ValueMaker>> {
    return std::make_unique<ConvertedValues>(options, limits, *shared, local.dataset().fields());
  };
  return work;
}

}  // namespace feedwater::cli
