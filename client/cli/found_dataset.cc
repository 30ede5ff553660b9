#include "client/cli/found_dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/found_coco.h"
#include "client/cli/interrupt.h"
#include "server/base/escape.h"
#include "server/base/registry.h"
#include "server/base/yaml_word.h"
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

// The maps by which a format might read the data: none where it says too little, several where it
// does so in several ways, of which the first that can be opened is taken.
std::vector<std::string> MapsOf(const std::string& format, const DataPlace& place,
                                std::vector<std::string>* reasons) {
  const auto text = server::YamlWord;
  const auto map = [&](const std::string& path, absl::string_view more) {
    return absl::StrCat("{format: ", format, ", root: ", text(place.root),
                        path.empty() ? "" : absl::StrCat(", path: ", text(path)), more, "}");
  };
  if (format == "coco") {
    const absl::StatusOr<std::shared_ptr<const server::Root>> root =
        place.roots->FindNow(place.root);
    if (!root.ok()) return {};
    std::vector<std::string> maps, why;
    for (const CocoFiles& files : FindCoco({*root, place.path}, &why))
      maps.push_back(map(files.images, absl::StrCat(", annotations: ", text(files.annotations))));
    for (const std::string& reason : why) reasons->push_back(absl::StrCat("  coco: ", reason));
    return maps;
  }
  const auto& params = Registry<FormatEntry>::Get().Find(format)->params;
  if (std::any_of(params.begin(), params.end(), [](const auto& param) { return param.required; }))
    return {};  // nothing in the data says it
  return {map(place.path, "")};
}

absl::StatusOr<FoundDataset> Guess(const Context& context, const DatasetQuestion& question) {
  FW_ASSIGN_OR_RETURN(const DataPlace place, PlaceOfData(context, question));
  std::vector<std::string> formats = Registry<FormatEntry>::Get().Names();
  std::stable_sort(formats.begin(), formats.end(), [](const std::string& a, const std::string& b) {
    return GeneralityOf(a) < GeneralityOf(b);
  });
  FoundDataset described;
  described.unpacked = std::make_shared<const UnpackedForALook>();
  std::vector<std::string> reasons;
  for (const std::string& format : formats) {
    for (const std::string& map : MapsOf(format, place, &reasons)) {
      FW_ASSIGN_OR_RETURN(const server::YamlNode node, server::ParseYaml(map, "guess"));
      server::DatasetOptions options;
      options.roots = place.roots;
      options.save = false;
      options.staging = described.unpacked->staging();
      options.given_up = Interrupted;
      auto dataset = server::OpenDataset(node, options);
      if (Interrupted()) return absl::CancelledError("interrupted");
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
      break;
    }
  }
  if (described.dataset != nullptr) return described;
  return absl::InvalidArgumentError(absl::StrCat(
      "no format reads '", server::Printable(question.name), "' as it is",
      reasons.empty() ? "" : absl::StrCat(":\n", absl::StrJoin(reasons, "\n")),
      "\nFormats that need parameters: raw (record_bytes), tokens (length); `feedwater "
      "describe format` lists all"));
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
  stored->parsed = dataset.Parse(record, spans, &stored->record);
  return absl::OkStatus();
}

}  // namespace feedwater::cli
