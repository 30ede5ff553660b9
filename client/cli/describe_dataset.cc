#include "client/cli/describe_dataset.h"

#include <algorithm>
#include <cstring>
#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/json_text.h"
#include "client/cli/mix_text.h"
#include "client/cli/text.h"
#include "server/base/escape.h"
#include "server/base/units.h"
#include "server/codec/image.h"
#include "server/service/messages.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;
using server::DType;
using server::Layout;
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
  StoredRecord stored;
  for (const int64_t i : ShownRecords(dataset)) {
    FW_RETURN_IF_ERROR(ReadStored(dataset, i, &stored));
    std::vector<std::string> row;
    for (size_t f = 0; stored.parsed.ok() && f < dataset.fields().size(); ++f)
      row.push_back(ValueText(dataset.fields()[f], stored.record.fields[f], images));
    if (!stored.parsed.ok())
      row.push_back(absl::StrCat("bad: ", server::Escaped(stored.parsed.message())));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string TypeText(const server::FieldSpec& field) {
  if (field.spec.layout == Layout::kEncoded) return "bytes";
  return field.spec.ToString();
}

absl::Status Print(const Context& context, const FoundDataset& described) {
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
                     {"other_parts", described.other_parts},
                     {"notes", dataset.notes()},
                     {"digest", dataset.digest()}};
    if (const json mix = MixJson(epoch); !mix.is_null()) {
      document["mix"] = mix;
      document["positions_per_epoch"] = epoch.positions_per_epoch();
    }
    PrintJson(document);
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
  if (!described.other_parts.empty()) {
    std::cout << "\n" << Bold("and what lies with it") << "\n";
    for (const std::string& section : described.other_parts) std::cout << section;
  }
  if (!described.root_hint.empty()) std::cout << "\n" << Wrapped(described.root_hint, 2);
  if (!described.others.empty()) {
    std::cout << "\nRead by other formats, too: " << absl::StrJoin(described.others, ", ") << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DescribeDatasetOf(const Context& context, const DatasetQuestion& question) {
  if (question.name.empty()) {
    return absl::InvalidArgumentError(
        "describe dataset needs a pipeline, or a folder of data with --guess");
  }
  const absl::StatusOr<FoundDataset> described = FindDataset(context, question);
  if (absl::IsCancelled(described.status())) return described.status();
  // Whatever else is wrong here is wrong with the input.
  if (!described.ok()) return absl::InvalidArgumentError(described.status().message());
  return Print(context, *described);
}

}  // namespace feedwater::cli
