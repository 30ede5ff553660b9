#include "client/cli/shard_section.h"

#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/atomic_file.h"
#include "server/base/escape.h"
#include "server/base/yaml_word.h"

namespace feedwater::cli {
namespace {

// More class names than these go into a file of their own.
constexpr size_t kListedClasses = 1000, kListedClassBytes = 32 << 10;

// In place of an absolute root, which may name where the folder was once.
constexpr const char* kOwnRoot = "shards";

}  // namespace

std::string SafeFileName(absl::string_view name) {
  std::string safe;
  for (const char c : name) {
    const bool is_safe = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
                         c == '_' || (c == '.' && !safe.empty());
    safe.push_back(is_safe ? c : '_');
  }
  return safe.empty() ? "dataset" : safe;
}

absl::StatusOr<ShardPlace> FindShardPlace(const LocalPipeline& local, const std::string& folder) {
  ShardPlace place;
  size_t longest = 0;
  if (local.settings.config.absolute_roots) {
    place.root = folder;
  } else {
    place.root = SafeFileName(local.loaded->spec.name);
    place.hint = absl::StrCat("no declared root holds ", folder, "; feedwater.yaml needs  roots: {",
                              place.root, ": ", folder, "}");
  }
  // Whoever reads the source may know no names of roots, as private daemons do not.
  const bool is_named = !HasAbsoluteRoot(local.loaded->spec.dataset);
  for (const auto& [name, declared] : local.settings.config.roots) {
    if (!is_named) break;
    std::error_code error;
    const std::filesystem::path root = std::filesystem::canonical(std::string(declared), error);
    if (error) continue;
    const std::filesystem::path relative = std::filesystem::path(folder).lexically_relative(root);
    if (relative.empty() || *relative.begin() == "..") continue;
    if (root.string().size() <= longest) continue;
    longest = root.string().size();
    place.root = name;
    place.path = relative == "." ? "" : relative.string();
    place.hint.clear();
  }
  if (server::ToUtf8(place.path) == place.path && server::ToUtf8(place.root) == place.root)
    return place;
  return absl::InvalidArgumentError(
      absl::StrCat("the name of the folder ", folder, " is not UTF-8, and ", kSectionFile,
                   " has to name it. Cure: another folder, or rename this one"));
}

ShardSection::ShardSection(const LocalPipeline& local, const RecordMembers& members,
                           const std::vector<server::FieldSpec>& fields,
                           const ShardJournal& journal, ShardPlace place)
    : local_(local),
      members_(members),
      fields_(fields),
      journal_(journal),
      place_(std::move(place)) {}

// A list where it is short, else a file.
absl::StatusOr<std::string> ShardSection::ClassLines() const {
  const std::vector<std::string>& classes = local_.dataset().classes();
  const std::string file = absl::StrCat(journal_.folder(), "/", kClassFile);
  size_t bytes = 0;
  bool is_listed = classes.size() <= kListedClasses;
  std::vector<std::string> words;
  for (const std::string& name : classes) {
    bytes += name.size();
    is_listed = is_listed && bytes <= kListedClassBytes &&
                IsPlainText({reinterpret_cast<const std::byte*>(name.data()), name.size()});
    if (is_listed) words.push_back(server::YamlWord(name));
  }
  if (is_listed) {
    unlink(file.c_str());  // of another time
    return classes.empty() ? "" : absl::StrCat("  classes: [", absl::StrJoin(words, ", "), "]\n");
  }
  FW_RETURN_IF_ERROR(server::WriteFileAtomically(file, {absl::StrJoin(classes, "\n"), "\n"}, 0666));
  return absl::StrCat("  class_file: ", kClassFile, "\n");
}

// NAME-{000000..000012}.tar
std::string ShardSection::FilesText() const {
  constexpr size_t kDigits = 6, kTail = kDigits + 4;  // of the first: 000000.tar
  const size_t shards = journal_.shards().size();
  const std::string first = journal_.FileOf(0), last = journal_.FileOf(shards - 1);
  if (shards == 1) return first;
  const std::string stem = first.substr(0, first.size() - kTail);
  return absl::StrCat(stem, "{", first.substr(stem.size(), kDigits), "..",
                      last.substr(stem.size(), last.size() - stem.size() - 4), "}.tar");
}

absl::Status ShardSection::Write(const std::string& origin) {
  FW_ASSIGN_OR_RETURN(const std::string classes, ClassLines());
  text_ = absl::StrCat(
      "dataset:\n  format: webdataset\n  root: ", server::YamlWord(place_.root), "\n",
      place_.path.empty() ? "" : absl::StrCat("  path: ", server::YamlWord(place_.path), "\n"),
      "  files: [", server::YamlWord(FilesText()), "]\n", classes, "  fields:\n",
      members_.Section(journal_.kinds(), "    "));
  const std::string head =
      absl::StrCat("# ", server::Escaped(origin), "\n",
                   hint().empty() ? "" : absl::StrCat("# ", server::Escaped(hint()), "\n"));
  return server::WriteFileAtomically(file(), {head, text_}, 0666);
}

absl::Status ShardSection::Load() {
  FW_RETURN_IF_ERROR(server::ReadYamlFile(file(), server::YamlLimits(), &text_).status());
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const server::Dataset>> ShardSection::Open(
    const std::string& key_field) const {
  FW_ASSIGN_OR_RETURN(const server::YamlNode node, server::ParseYaml(text_, file()));
  const server::YamlNode* found = node.Find("dataset");
  if (found == nullptr || !found->is_map()) return node.Error("no section `dataset:` is here");
  server::YamlNode dataset = *found;
  std::string root = place_.root, path;
  for (auto& [key, value] : dataset.entries) {
    if (key.scalar == "root") {
      if (absl::StartsWith(value.scalar, "/")) value.scalar = kOwnRoot;
      root = value.scalar;
    }
    if (key.scalar == "path") path = value.scalar;
    if (key.scalar != "fields" || key_field.empty()) continue;
    server::YamlNode name = key, from = key;
    name.scalar = key_field;
    from.scalar = "__key__";
    value.entries.emplace_back(std::move(name), std::move(from));
  }
  // The shards lie where their section does.
  std::string folder = journal_.folder();
  if (!path.empty()) {
    if (!absl::EndsWith(folder, "/" + path)) {
      return node.Error(absl::StrCat("the shards lie in ", folder, ", which does not end with the ",
                                     "section's path, ", server::Printable(path)));
    }
    folder.resize(folder.size() - path.size() - 1);
  }
  server::DatasetOptions options;
  options.rebuild = true;  // what was written is looked at, and not what is said of it
  FW_ASSIGN_OR_RETURN(options.roots, server::Roots::Create({{root, folder}}));
  options.save = false;
  options.budget = local_.budget;
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const server::Dataset> written,
                      server::OpenDataset(dataset, options));
  bool is_same = written->size() == journal_.records() &&
                 written->fields().size() == fields_.size() + (key_field.empty() ? 0 : 1) &&
                 written->classes() == local_.dataset().classes();
  for (size_t i = 0; is_same && i < fields_.size(); ++i) {
    const server::FieldSpec &now = written->fields()[i], &was = fields_[i];
    is_same = now.name == was.name && now.spec.dtype == was.spec.dtype &&
              now.spec.shape == was.spec.shape;
  }
  if (is_same) return written;
  return absl::DataLossError(absl::StrCat(
      "the shards in ", journal_.folder(), " do not hold the ", journal_.records(),
      " records that were written; cure: rm -r ", journal_.folder(), ", and write them again"));
}

}  // namespace feedwater::cli
