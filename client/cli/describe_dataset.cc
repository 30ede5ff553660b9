#include "client/cli/describe_dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/mix_text.h"
#include "client/cli/text.h"
#include "server/base/escape.h"
#include "server/base/registry.h"
#include "server/base/units.h"
#include "server/codec/image.h"
#include "server/pipeline/record_reader.h"
#include "server/service/messages.h"
#include "server/source/format.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;
using server::DType;
using server::FormatEntry;
using server::Layout;
using server::Registry;
using server::Tensor;

constexpr int64_t kShownRecords = 3;
constexpr int64_t kShownNumbers = 8;
constexpr size_t kShownText = 60;

// --- values

template <typename T>
std::string NumbersText(const Tensor& tensor) {
  std::vector<std::string> numbers;
  const int64_t count = tensor.elements();
  for (int64_t i = 0; i < std::min(count, kShownNumbers); ++i) {
    T value;
    std::memcpy(&value, tensor.data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    numbers.push_back(absl::StrCat(+value));
  }
  if (tensor.spec.shape.empty()) return absl::StrJoin(numbers, "");
  return absl::StrCat("[", absl::StrJoin(numbers, ", "), count > kShownNumbers ? ", ..." : "", "]");
}

std::string ElementsText(const Tensor& tensor) {
  switch (tensor.spec.dtype) {
    case DType::kUInt8:
    case DType::kBool:
      return NumbersText<uint8_t>(tensor);
    case DType::kInt8:
      return NumbersText<int8_t>(tensor);
    case DType::kInt16:
      return NumbersText<int16_t>(tensor);
    case DType::kUInt16:
      return NumbersText<uint16_t>(tensor);
    case DType::kInt32:
      return NumbersText<int32_t>(tensor);
    case DType::kInt64:
      return NumbersText<int64_t>(tensor);
    case DType::kFloat32:
      return NumbersText<float>(tensor);
    case DType::kFloat64:
      return NumbersText<double>(tensor);
    default:
      return tensor.spec.ToString();
  }
}

// "jpeg 500x375, 110 KiB", "'a dog'", "[1, 2, 3]".
std::string ValueText(const server::FieldSpec& field, const Tensor& tensor,
                      server::ImageWorkspace& images) {
  const bool is_bytes = field.spec.dtype == DType::kUInt8 && field.spec.shape == server::Shape{-1};
  if (!is_bytes) return ElementsText(tensor);
  const absl::string_view bytes(reinterpret_cast<const char*>(tensor.data), tensor.bytes());
  if (field.spec.layout == Layout::kEncoded) {
    const auto info = server::ReadImageInfo({tensor.data, tensor.bytes()}, false, {}, images);
    if (info.ok()) {
      return absl::StrCat(info->format, " ", info->size.width, "x", info->size.height, ", ",
                          server::FormatBytes(static_cast<int64_t>(bytes.size())));
    }
  }
  const absl::string_view begin = bytes.substr(0, kShownText);
  const bool is_text = std::all_of(begin.begin(), begin.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t' || c == '\r';
  });
  if (!is_text) return server::FormatBytes(static_cast<int64_t>(bytes.size()));
  return absl::StrCat("'", server::Escaped(begin), bytes.size() > kShownText ? "...'" : "'");
}

// --- what is described

// What formats unpack of data that is only looked at, removed with the last look.
class UnpackedForALook {
 public:
  static constexpr int64_t kLimitBytes = int64_t{1} << 30;

  UnpackedForALook() {
    std::error_code error;
    std::string folder =
        (std::filesystem::temp_directory_path(error) / "feedwater-describe-XXXXXX").string();
    if (error || mkdtemp(folder.data()) == nullptr) return;
    folder_ = folder;
    staging_ = server::StagingArea::Below(folder_, kLimitBytes);
  }
  ~UnpackedForALook() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  UnpackedForALook(const UnpackedForALook&) = delete;
  const std::shared_ptr<server::StagingArea>& staging() const { return staging_; }

 private:
  std::string folder_;
  std::shared_ptr<server::StagingArea> staging_;
};

struct Described {
  std::unique_ptr<UnpackedForALook> unpacked;  // outlives the dataset
  std::string section;                         // to be copied, with a line's end
  std::string root_hint;                       // where the root still has to be declared
  std::shared_ptr<const server::Dataset> dataset;
  std::vector<std::string> others;  // formats that read it, too
};

// The first ones; of a mix those of its first sources.
std::vector<int64_t> ShownRecords(const server::Dataset& dataset) {
  std::vector<int64_t> records;
  if (const server::DatasetMix* mix = dataset.mix(); mix != nullptr) {
    for (const server::DatasetMix::Source& source : mix->sources) records.push_back(source.first);
  } else {
    for (int64_t i = 0; i < dataset.size() && i < kShownRecords; ++i) records.push_back(i);
  }
  if (records.size() > kShownRecords) records.resize(kShownRecords);
  return records;
}

absl::StatusOr<std::vector<std::vector<std::string>>> FirstRecords(const server::Dataset& dataset) {
  std::vector<std::vector<std::string>> rows;
  server::ImageWorkspace images;
  server::Record record;
  std::vector<server::Extent> extents;
  for (const int64_t i : ShownRecords(dataset)) {
    dataset.Extents(i, &extents);
    std::vector<std::string> parts;
    std::vector<absl::Span<const std::byte>> spans;
    absl::Status status;
    for (const server::Extent& extent : extents) {
      if (extent.length > server::RecordReader::kMaxRecordBytes)
        return absl::InvalidArgumentError(
            absl::StrCat("record ", i, " has ", extent.length, " bytes"));
      const auto part =
          server::ReadRange(dataset.RootOf(extent.object), dataset.ObjectPath(extent.object),
                            extent.offset, static_cast<size_t>(extent.length));
      if (!part.ok()) return part.status();
      parts.push_back(absl::StrCat(*part, std::string(64, '\0')));
      parts.back().resize(part->size());
    }
    for (const std::string& part : parts)
      spans.emplace_back(reinterpret_cast<const std::byte*>(part.data()), part.size());
    status = dataset.Parse(i, spans, &record);
    std::vector<std::string> row;
    for (size_t f = 0; status.ok() && f < dataset.fields().size(); ++f)
      row.push_back(ValueText(dataset.fields()[f], record.fields[f], images));
    if (!status.ok()) row.push_back(absl::StrCat("bad: ", server::Escaped(status.message())));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string TypeText(const server::FieldSpec& field) {
  if (field.spec.layout == Layout::kEncoded) return "bytes";
  return field.spec.ToString();
}

absl::Status Print(const Context& context, const Described& described) {
  const server::Dataset& dataset = *described.dataset;
  FW_ASSIGN_OR_RETURN(const std::vector<std::vector<std::string>> rows, FirstRecords(dataset));
  v1::DescribePipelineResponse epoch;
  FW_RETURN_IF_ERROR(server::TellMix(dataset, &epoch));
  if (context.json) {
    json fields = json::array();
    for (const server::FieldSpec& field : dataset.fields()) {
      fields.push_back(
          {{"name", field.name},
           {"dtype", std::string(server::DTypeName(field.spec.dtype))},
           {"shape", std::vector<int64_t>(field.spec.shape.begin(), field.spec.shape.end())},
           {"layout", std::string(server::LayoutName(field.spec.layout))},
           {"doc", field.doc}});
    }
    json document = {{"records", dataset.size()},
                     {"classes", dataset.classes()},
                     {"fields", fields},
                     {"first", rows},
                     {"dataset", described.section},
                     {"other_formats", described.others},
                     {"notes", dataset.notes()},
                     {"digest", dataset.digest()}};
    if (const json mix = MixJson(epoch); !mix.is_null()) {
      document["mix"] = mix;
      document["positions_per_epoch"] = epoch.positions_per_epoch();
    }
    std::cout << document.dump(2, ' ', false, json::error_handler_t::replace) << "\n";
    return absl::OkStatus();
  }
  std::cout << server::FormatCount(dataset.size(), "record");
  if (!dataset.classes().empty()) {
    std::cout << ", "
              << server::FormatCount(static_cast<int64_t>(dataset.classes().size()), "class");
  }
  std::cout << "\n";
  if (!dataset.notes().empty()) std::cout << Wrapped(server::Escaped(dataset.notes()), 2);
  if (epoch.mix_size() > 0) {
    std::cout << "\n"
              << Bold("mix") << ", " << server::FormatCount(epoch.positions_per_epoch(), "sample")
              << " an epoch\n";
    for (const std::string& line : MixLines(epoch)) std::cout << "  " << line << "\n";
  }
  size_t name_width = 0, type_width = 0;
  for (const server::FieldSpec& field : dataset.fields()) {
    name_width = std::max(name_width, server::Escaped(field.name).size());
    type_width = std::max(type_width, TypeText(field).size());
  }
  std::cout << "\n"
            << Bold(epoch.mix_size() > 0 ? "fields, and the first record of each source"
                                         : "fields, and the first records")
            << "\n";
  for (size_t f = 0; f < dataset.fields().size(); ++f) {
    const server::FieldSpec& field = dataset.fields()[f];
    std::vector<std::string> values;
    for (const auto& row : rows) values.push_back(f < row.size() ? row[f] : "bad");
    std::cout << "  " << Padded(server::Escaped(field.name), name_width) << "  "
              << Padded(TypeText(field), type_width) << "  " << absl::StrJoin(values, " | ")
              << "\n";
  }
  std::cout << "\n" << Bold("to copy into a pipeline") << "\n" << described.section;
  if (!described.root_hint.empty()) std::cout << "\n" << Wrapped(described.root_hint, 2);
  if (!described.others.empty()) {
    std::cout << "\nRead by other formats, too: " << absl::StrJoin(described.others, ", ") << "\n";
  }
  return absl::OkStatus();
}

// --- a pipeline's dataset

std::string SectionOf(const server::YamlNode& node);

std::string FlowText(const server::YamlNode& node) {
  switch (node.kind) {
    case server::YamlNode::Kind::kNull:
      return "null";
    case server::YamlNode::Kind::kScalar:
      return server::ParamType<std::string>::Text(node.scalar);
    case server::YamlNode::Kind::kList: {
      std::vector<std::string> items;
      for (const server::YamlNode& item : node.items) items.push_back(FlowText(item));
      return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
    }
    case server::YamlNode::Kind::kMap:
      return SectionOf(node);
  }
  return "";
}

// Words that need no quotes stay as people write them.
std::string SectionOf(const server::YamlNode& node) {
  std::vector<std::string> entries;
  for (const auto& [key, value] : node.entries)
    entries.push_back(absl::StrCat(FlowText(key), ": ", FlowText(value)));
  return absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
}

absl::StatusOr<Described> OfPipeline(const Context& context, const DatasetQuestion& question) {
  LocalOptions options;
  options.config = {question.config, context.address};
  FW_ASSIGN_OR_RETURN(const LocalPipeline local, OpenLocalPipeline(question.name, options));
  Described described;
  described.dataset = local.loaded->dataset;
  described.section = absl::StrCat("dataset: ", SectionOf(local.loaded->spec.dataset), "\n");
  return described;
}

// --- data of which nothing is known

// Where the data lies: below a declared root, or below one that has to be declared.
struct DataPlace {
  std::shared_ptr<const server::Roots> roots;
  std::string root, path, hint;
};

absl::StatusOr<DataPlace> PlaceOfData(const Context& context, const DatasetQuestion& question) {
  std::error_code error;
  const std::filesystem::path data = std::filesystem::canonical(question.name, error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("'", server::Printable(question.name), "': ", error.message()));
  }
  DataPlace place;
  const auto source = FindConfig({question.config, context.address});
  if (!question.config.empty() && !source.ok()) return source.status();
  if (source.ok()) {
    const auto settings = ReadConfig(*source);
    if (!question.config.empty() && !settings.ok()) return settings.status();
    if (settings.ok()) {
      for (const auto& [name, folder] : settings->config.roots) {
        const std::filesystem::path root = std::filesystem::weakly_canonical(folder, error);
        const std::filesystem::path relative = data.lexically_relative(root);
        if (error || relative.empty() || *relative.begin() == "..") continue;
        place.roots = settings->roots;
        place.root = name;
        if (relative != ".") place.path = relative.string();
        return place;
      }
    }
  }
  const std::filesystem::path folder = data.parent_path();
  place.root = "data";
  place.path = data.filename().string();
  FW_ASSIGN_OR_RETURN(place.roots, server::Roots::Create({{place.root, folder.string()}}));
  place.hint = absl::StrCat("No declared root holds it; feedwater.yaml needs  roots: {", place.root,
                            ": ", folder.string(), "}");
  return place;
}

int GeneralityOf(const std::string& format) {
  return Registry<FormatEntry>::Get().Find(format)->generality;
}

absl::StatusOr<Described> Guess(const Context& context, const DatasetQuestion& question) {
  FW_ASSIGN_OR_RETURN(const DataPlace place, PlaceOfData(context, question));
  std::vector<std::string> formats = Registry<FormatEntry>::Get().Names();
  std::stable_sort(formats.begin(), formats.end(), [](const std::string& a, const std::string& b) {
    return GeneralityOf(a) < GeneralityOf(b);
  });
  Described described;
  described.unpacked = std::make_unique<UnpackedForALook>();
  std::vector<std::string> reasons;
  for (const std::string& format : formats) {
    const auto& params = Registry<FormatEntry>::Get().Find(format)->params;
    if (std::any_of(params.begin(), params.end(), [](const auto& param) { return param.required; }))
      continue;  // nothing in the data says it
    const std::string map = absl::StrCat(
        "{format: ", format, ", root: ", server::ParamType<std::string>::Text(place.root),
        place.path.empty()
            ? ""
            : absl::StrCat(", path: ", server::ParamType<std::string>::Text(place.path)),
        "}");
    FW_ASSIGN_OR_RETURN(const server::YamlNode node, server::ParseYaml(map, "guess"));
    server::DatasetOptions options;
    options.roots = place.roots;
    options.save = false;
    options.staging = described.unpacked->staging();
    auto dataset = server::OpenDataset(node, options);
    if (!dataset.ok()) {
      // Its files are there, and something is missing to read them.
      if (absl::IsInvalidArgument(dataset.status()) ||
          absl::IsFailedPrecondition(dataset.status()) ||
          absl::IsResourceExhausted(dataset.status()))
        reasons.push_back(absl::StrCat("  ", format, ": ", dataset.status().message()));
      continue;
    }
    if (described.dataset == nullptr) {
      described.dataset = *std::move(dataset);
      described.section = absl::StrCat("dataset: ", map, "\n");
      described.root_hint = place.hint;
    } else if (GeneralityOf(format) == 0 || described.others.empty()) {
      described.others.push_back(format);
    }
  }
  if (described.dataset != nullptr) return described;
  return absl::InvalidArgumentError(absl::StrCat(
      "no format reads '", server::Printable(question.name), "' as it is",
      reasons.empty() ? "" : absl::StrCat(":\n", absl::StrJoin(reasons, "\n")),
      "\nFormats that need to be told more: raw (record_bytes), tokens (length); `feedwater "
      "describe format` lists all"));
}

}  // namespace

absl::Status DescribeDatasetOf(const Context& context, const DatasetQuestion& question) {
  if (question.name.empty()) {
    return absl::InvalidArgumentError(
        "describe dataset needs a pipeline, or a folder of data with --guess");
  }
  struct stat info;
  const bool is_folder = stat(question.name.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  auto described =
      question.guess || is_folder ? Guess(context, question) : OfPipeline(context, question);
  // Whatever is wrong here is wrong with the input.
  if (!described.ok()) return absl::InvalidArgumentError(described.status().message());
  return Print(context, *described);
}

}  // namespace feedwater::cli
