#include "client/cli/convert_options.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "client/cli/conversion.h"
#include "client/cli/converted_values.h"
#include "server/base/status.h"
#include "server/base/yaml.h"
#include "server/graph/element.h"

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
  if (!options.resize_fields.empty()) made_from["resize-fields"] = options.resize_fields;
  if (options.reads_images()) {
    made_from["max_pixels"] = limits.max_pixels;
    made_from["max_scans"] = limits.max_scans;
    made_from["max_decode_ms"] = limits.max_decode_ms;
  }
  return made_from;
}

absl::Status CheckResizeFields(const ConvertOptions& options,
                               const std::vector<server::FieldSpec>& fields,
                               const RecordMembers& members) {
  std::vector<std::string> known;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (members.is_encoded(i)) known.push_back(fields[i].name);
  }
  for (const std::string& name : options.resize_fields) {
    if (absl::c_linear_search(known, name)) continue;
    return absl::InvalidArgumentError(absl::StrCat("--resize-fields: the dataset has no field '",
                                                   server::Printable(name), "' of encoded images",
                                                   server::Suggest(name, known)));
  }
  return absl::OkStatus();
}

// The column that a field of coco or voc is.
std::string ColumnOf(const server::YamlNode& dataset, const std::string& field) {
  const server::YamlNode* fields = dataset.Find("fields");
  const server::YamlNode* asked = fields == nullptr ? nullptr : fields->Find(field);
  if (asked != nullptr && asked->is_map()) asked = asked->Find("from");
  return asked == nullptr || asked->scalar.empty() ? field : asked->scalar;
}

// Of a format that says what its columns are.
bool IsInPixels(const server::YamlNode& dataset, const server::FieldSpec& field) {
  const server::YamlNode* format = dataset.Find("format");
  if (format == nullptr || (format->scalar != "coco" && format->scalar != "voc")) return false;
  const std::string column = ColumnOf(dataset, field.name);
  for (const char* known : {"width", "height", "area", "boxes", "keypoints"}) {
    if (column == known) return true;
  }
  return false;
}

bool LooksInPixels(const server::FieldSpec& field) {
  const server::TensorSpec& spec = field.spec;
  if (spec.layout != server::Layout::kPlain || spec.dtype == server::DType::kUInt8) return false;
  const size_t axes = spec.shape.size();
  const int64_t row = axes == 0 ? 0 : spec.shape.back();
  if (row == 4) return axes <= 2;  // a box
  return server::IsFloating(spec.dtype) && (row == 2 || row == 3) && (axes == 2 || axes == 3);
}

// Before a record is written: the first ones show most often what a field is.
absl::Status CheckMasks(const LocalPipeline& local, const ConvertedValues& values) {
  constexpr int64_t kRecords = 16;
  FW_ASSIGN_OR_RETURN(RecordLoader loader, RecordLoader::Create(local));
  for (int64_t i = 0; i < std::min(local.dataset().size(), kRecords); ++i) {
    const absl::StatusOr<const server::Record*> record = loader.Load(i);
    if (!record.ok()) continue;  // told when its turn comes
    if (const absl::Status status = values.CheckMasks(**record); !status.ok())
      return server::Annotate(status, absl::StrCat("record ", i));
  }
  return absl::OkStatus();
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
  if (const auto names = made_from.find("resize-fields"); names != made_from.end()) {
    for (const json& name : *names)
      options.resize_fields.push_back(name.is_string() ? name.get<std::string>() : "");
  }
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

absl::Status CheckNothingIsInPixels(const Conversion& conversion, const ConvertOptions& options,
                                    const ConversionWork& work) {
  const server::PipelineSpec& spec = conversion.local().loaded->spec;
  if (!ConvertedValues(options, spec.limits, *work.members, work.fields).shrinks())
    return absl::OkStatus();
  for (const server::FieldSpec& field : work.fields) {
    // Whoever names the images that shrink knows what else is there.
    const bool may_be = options.resize_fields.empty() && LooksInPixels(field);
    if (!may_be && !IsInPixels(spec.dataset, field)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--resize-max: field '", server::Printable(field.name), "' (", field.spec.ToString(),
        ") seems to be in pixels of the images, and would stay as it is while they shrink. Cure: "
        "resize in the graph (op resize), where boxes and keypoints move with their image, or "
        "leave the field out of the dataset's `fields`",
        may_be ? "; where it is nothing of the kind, name the images with --resize-fields" : ""));
  }
  return absl::OkStatus();
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
  FW_RETURN_IF_ERROR(CheckResizeFields(options, work.fields, *shared));
  if (options.resize_max > 0) {
    FW_RETURN_IF_ERROR(
        CheckMasks(local, ConvertedValues(options, limits, *shared, local.dataset().fields())));
  }
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
