#include "client/cli/found_dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <random>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/format_maps.h"
#include "client/cli/found_tfrecord.h"
#include "client/cli/interrupt.h"
#include "client/cli/unread_data.h"
#include "server/base/escape.h"
#include "server/base/registry.h"
#include "server/base/yaml_word.h"
#include "server/graph/verified_record.h"
#include "server/pipeline/record_reader.h"
#include "server/source/format.h"

namespace feedwater::cli {
namespace {

using server::FormatEntry;
using server::Registry;

// --- a pipeline's dataset

bool HasPipelineSuffix(const std::string& name) {
  return absl::EndsWith(name, ".yaml") || absl::EndsWith(name, ".yml");
}

std::string SectionOf(const server::YamlNode& node);

// As people write it: beside words, numbers and true need no quotes either, since a parameter says
// what it takes them for.
std::string ScalarText(const std::string& scalar) {
  double number = 0;
  const bool is_number = absl::SimpleAtod(scalar, &number) &&
                         scalar.find_first_not_of("0123456789.-+e") == std::string::npos;
  return is_number || scalar == "true" || scalar == "false" ? scalar : server::YamlWord(scalar);
}

std::string FlowText(const server::YamlNode& node) {
  switch (node.kind) {
    case server::YamlNode::Kind::kNull:
      return "null";
    case server::YamlNode::Kind::kScalar:
      return ScalarText(node.scalar);
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

std::string SectionOf(const server::YamlNode& node) {
  std::vector<std::string> entries;
  for (const auto& [key, value] : node.entries)
    entries.push_back(absl::StrCat(FlowText(key), ": ", FlowText(value)));
  return absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
}

absl::StatusOr<FoundDataset> OfPipeline(const Context& context, const DatasetQuestion& question) {
  LocalOptions options;
  options.config = {question.config, context.address};
  FoundDataset described;
  FW_ASSIGN_OR_RETURN(described.pipeline, OpenLocalPipeline(question.name, options));
  const server::LoadedPipeline& loaded = *described.pipeline->loaded;
  described.dataset = loaded.dataset;
  described.section = absl::StrCat("dataset: ", SectionOf(loaded.spec.dataset), "\n");
  return described;
}

// --- data of which nothing is known

constexpr int64_t kUnpackedBytes = int64_t{1} << 30;  // of data that is only looked at

// A folder that holds the data and all that may belong to it: of a file of annotations, images lie
// beside it or beside its folder.
std::filesystem::path RootOf(const std::filesystem::path& data) {
  std::error_code error;
  if (std::filesystem::is_directory(data, error)) return data;
  const std::filesystem::path folder = data.parent_path();
  return absl::EndsWithIgnoreCase(data.string(), ".json") ? folder.parent_path() : folder;
}

absl::StatusOr<DataPlace> PlaceOfData(const Context& context, const DatasetQuestion& question) {
  std::error_code error;
  const std::filesystem::path data = std::filesystem::canonical(question.name, error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("'", server::Printable(question.name), "': ", error.message()));
  }
  DataPlace place;
  bool needs_hint = true;
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
      needs_hint = !settings->config.absolute_roots;
    }
  }
  const std::filesystem::path root = RootOf(data);
  place.root = root.string();
  if (root != data) place.path = data.lexically_relative(root).string();
  FW_ASSIGN_OR_RETURN(place.roots, server::Roots::Create({{"/", "/"}}));
  if (needs_hint) {
    place.hint = absl::StrCat(
        "No declared root holds it. A daemon of one's own reads a root that is a path, and so does "
        "one with `absolute_roots: true`; others need in feedwater.yaml  roots: {data: ",
        server::YamlWord(place.root), "}  and here  root: data");
  }
  return place;
}

// Whether a file begins with what no text has.
bool IsBinary(const server::DatasetLocation& file) {
  constexpr size_t kLooked = 1024;
  const auto head = server::ReadHead(*file.root, file.path, kLooked);
  return head.ok() && head->find('\0') != std::string::npos;
}

bool IsOfText(const std::string& format) { return format == "csv" || format == "jsonl"; }

int GeneralityOf(const std::string& format) {
  return Registry<FormatEntry>::Get().Find(format)->generality;
}

// Opens data as one format after the other.
class Guesses {
 public:
  explicit Guesses(FoundDataset* found) : found_(*found) {
    formats_ = Registry<FormatEntry>::Get().Names();
    std::stable_sort(formats_.begin(), formats_.end(),
                     [](const std::string& a, const std::string& b) {
                       return GeneralityOf(a) < GeneralityOf(b);
                     });
  }

  // Fills `found` with what reads the data: formats that are as general as `most` at most.
  absl::Status TryAll(const DataPlace& place, int most) {
    const absl::StatusOr<server::DatasetLocation> data = place.Location();
    const bool is_tfrecord = data.ok() && IsTfrecord(*data),
               is_binary = data.ok() && IsBinary(*data);
    if (data.ok() && IsPickledCifar(*data)) return absl::OkStatus();
    const bool has_pickles = data.ok() && HoldsPickledCifar(*data);
    for (const std::string& format : formats_) {
      if (GeneralityOf(format) > most) break;
      if (is_tfrecord && format != "tfrecord") continue;
      if (is_binary && IsOfText(format)) continue;
      if (has_pickles && format == "webdataset") continue;
      const bool is_known = found_.dataset != nullptr;
      bool is_split = false;
      for (const FormatMap& map : MapsOf(format, place, &refusals_)) {
        if (is_split && !map.is_split) continue;
        FW_ASSIGN_OR_RETURN(std::shared_ptr<const server::Dataset> dataset,
                            Open(format, map.text, place));
        if (dataset == nullptr) continue;
        const std::string section = absl::StrCat("dataset: ", map.text, "\n");
        if (is_known) {
          if (GeneralityOf(format) == 0 || found_.others.empty()) found_.others.push_back(format);
          break;
        }
        if (is_split) {
          found_.other_parts.push_back(section);
          continue;
        }
        found_.dataset = std::move(dataset);
        found_.section = section;
        found_.root_hint = place.hint;
        format_ = format;
        is_split = map.is_split;
        if (!is_split) break;
      }
    }
    return absl::OkStatus();
  }

  // Folders beside the one that was found, as far as its format reads them.
  absl::Status TryOtherParts(const std::vector<DataPlace>& places) {
    for (const DataPlace& place : places) {
      for (const FormatMap& map : MapsOf(format_, place, &refusals_)) {
        FW_ASSIGN_OR_RETURN(const std::shared_ptr<const server::Dataset> dataset,
                            Open(format_, map.text, place));
        if (dataset == nullptr) continue;
        found_.other_parts.push_back(absl::StrCat("dataset: ", map.text, "\n"));
        break;
      }
    }
    return absl::OkStatus();
  }

  const std::vector<Refusal>& refusals() const { return refusals_; }

 private:
  // Null: it cannot be read as that.
  absl::StatusOr<std::shared_ptr<const server::Dataset>> Open(const std::string& format,
                                                              const std::string& map,
                                                              const DataPlace& place) {
    FW_ASSIGN_OR_RETURN(const server::YamlNode node, server::ParseYaml(map, "guess"));
    server::DatasetOptions options;
    options.roots = place.roots;
    options.save = false;
    options.staging = found_.unpacked->staging();
    options.given_up = Interrupted;
    auto dataset = server::OpenDataset(node, options);
    if (Interrupted()) return absl::CancelledError("interrupted");
    if (dataset.ok()) return dataset;
    // Its files are there, and something is missing to read them.
    if (absl::IsInvalidArgument(dataset.status()) || absl::IsFailedPrecondition(dataset.status()) ||
        absl::IsResourceExhausted(dataset.status()) || absl::IsPermissionDenied(dataset.status()))
      refusals_.push_back({format, dataset.status()});
    return std::shared_ptr<const server::Dataset>();
  }

  FoundDataset& found_;
  std::vector<std::string> formats_;
  std::string format_;  // that reads it
  std::vector<Refusal> refusals_;
};

absl::StatusOr<FoundDataset> Guess(const Context& context, const DatasetQuestion& question) {
  FW_ASSIGN_OR_RETURN(const DataPlace place, PlaceOfData(context, question));
  FW_RETURN_IF_ERROR(place.Location().status());
  FoundDataset found;
  found.unpacked = std::make_shared<const UnpackedForALook>();
  Guesses guesses(&found);
  std::vector<DataPlace> parts;
  for (const std::string& name : SplitFolders(place)) parts.push_back(place.Below(name));
  // Folders such as `train` and `val` are no classes.
  constexpr int kAnyFormat = INT_MAX;
  FW_RETURN_IF_ERROR(guesses.TryAll(place, parts.empty() ? kAnyFormat : 0));
  while (found.dataset == nullptr && !parts.empty()) {
    const DataPlace part = parts.front();
    parts.erase(parts.begin());
    FW_RETURN_IF_ERROR(guesses.TryAll(part, kAnyFormat));
    if (found.dataset != nullptr) FW_RETURN_IF_ERROR(guesses.TryOtherParts(parts));
    if (parts.empty() && found.dataset == nullptr)
      FW_RETURN_IF_ERROR(guesses.TryAll(place, kAnyFormat));
  }
  if (found.dataset != nullptr) return found;
  return absl::InvalidArgumentError(WhyUnread(question.name, place, guesses.refusals()));
}

}  // namespace

// The folder is made when the first file is unpacked. Nobody can have made it before: its name has
// 128 random bits.
UnpackedForALook::UnpackedForALook() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) return;
  CatchInterrupts();
  std::random_device random;
  std::string name = "feedwater-describe-";
  for (int i = 0; i < 4; ++i) absl::StrAppend(&name, absl::Hex(random(), absl::kZeroPad8));
  folder_ = (folder / name).string();
  staging_ = server::StagingArea::Below(folder_, kUnpackedBytes);
}

UnpackedForALook::~UnpackedForALook() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

absl::StatusOr<FoundDataset> FindDataset(const Context& context, const DatasetQuestion& question) {
  struct stat info;
  const bool is_there = stat(question.name.c_str(), &info) == 0;
  const bool is_data = is_there && (S_ISDIR(info.st_mode) || !HasPipelineSuffix(question.name));
  return question.guess || is_data ? Guess(context, question) : OfPipeline(context, question);
}

absl::Status ReadStored(const server::Dataset& dataset, int64_t record, StoredRecord* stored) {
  std::vector<server::Extent> extents;
  dataset.Extents(record, &extents);
  stored->parts.clear();
  for (const server::Extent& extent : extents) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    if (extent.length > server::RecordReader::kMaxRecordBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("record ", record, " has ", extent.length, " bytes"));
    }
    FW_ASSIGN_OR_RETURN(
        std::string part,
        server::ReadRange(dataset.RootOf(extent.object), dataset.ObjectPath(extent.object),
                          extent.offset, static_cast<size_t>(extent.length)));
    const size_t size = part.size();
    part.append(server::kReadPadding, '\0');
    part.resize(size);
    stored->parts.push_back(std::move(part));
  }
  std::vector<absl::Span<const std::byte>> spans;
  for (const std::string& part : stored->parts)
    spans.emplace_back(reinterpret_cast<const std::byte*>(part.data()), part.size());
  stored->parsed = server::ParseVerified(dataset, record, spans, &stored->record);
  return absl::OkStatus();
}

}  // namespace feedwater::cli
