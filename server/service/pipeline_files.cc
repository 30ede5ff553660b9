#include "server/service/pipeline_files.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/log_limiter.h"
#include "server/graph/plan.h"
#include "server/source/format.h"
#include "server/source/mix.h"
#include "server/storage/engine.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

constexpr int kReadAttempts = 3;  // of a file that is being written

// The configuration's file, as it is now: editors put another one in its place.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& path)
      : is_there_(!path.empty() && stat(path.c_str(), &info_) == 0) {}
  bool Is(const struct stat& file) const {
    return is_there_ && file.st_dev == info_.st_dev && file.st_ino == info_.st_ino;
  }

 private:
  struct stat info_ {};
  bool is_there_;
};

// The first regular file of that name; "" where there is none. An error where it cannot be told: a
// later folder's file would be another pipeline.
absl::StatusOr<std::string> Find(const PipelineFolders& where, const std::string& name,
                                 struct stat* info) {
  // As FindPipelineFiles, which lists what has one name below a folder.
  if (name.empty() || name[0] == '.' || absl::StrContains(name, '/') ||
      absl::StrContains(name, '\0'))
    return std::string();
  const ConfigFile config(where.config_file);
  for (const std::string& folder : where.folders) {
    std::string path = (fs::path(folder) / absl::StrCat(name, ".yaml")).string();
    if (stat(path.c_str(), info) == 0) {
      if (S_ISREG(info->st_mode) && !config.Is(*info)) return path;
    } else if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG) {
      return ErrnoStatus(errno, absl::StrCat("pipeline file ", path));
    }
  }
  return std::string();
}

std::string MistakeIn(const PipelineFile& file) {
  return std::string(file.spec.ok() ? file.mistake.message() : file.spec.status().message());
}

bool IsSame(const PipelineFile& a, const PipelineFile& b) {
  return a.reload == b.reload && a.path == b.path && a.spec.ok() == b.spec.ok() &&
         MistakeIn(a) == MistakeIn(b) && (!a.spec.ok() || a.spec->text == b.spec->text);
}

// Somebody may be writing the file, and the half of a pipeline can be one, too: it is left to rest
// for a tick. Returns its stamp; 0: there is no file.
uint64_t SettledStamp(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return 0;
  AwaitClockTick(info);
  return FileStamp(info);
}

// Errors of storage pass; a mistake stands in the file until somebody mends it.
bool IsOfTheText(const absl::Status& status) {
  return status.ok() || absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
         absl::IsOutOfRange(status) || absl::IsFailedPrecondition(status) ||
         absl::IsUnimplemented(status);
}

}  // namespace

std::map<std::string, std::string> FindPipelineFiles(const PipelineFolders& where, bool tell) {
  std::map<std::string, std::string> files;
  const ConfigFile config(where.config_file);
  for (const std::string& folder : where.folders) {
    std::error_code error;
    std::vector<fs::path> found;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const fs::path& path = it->path();
      struct stat info {};
      if (path.extension() == ".yaml" && path.filename().string()[0] != '.' &&
          stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && !config.Is(info)) {
        found.push_back(path);
      }
    }
    if (error && tell) spdlog::warn("pipelines folder {}: {}", folder, error.message());
    std::sort(found.begin(), found.end());
    for (const fs::path& path : found) {
      auto [it, added] = files.emplace(path.stem().string(), path.string());
      if (!added && tell)
        spdlog::warn("{} is hidden by {}: the first folder with a pipeline's name has it",
                     path.string(), it->second);
    }
  }
  return files;
}

namespace {

absl::Status CheckRootOf(const YamlNode& dataset, const Roots& roots) {
  const YamlNode* root = dataset.is_map() ? dataset.Find("root") : nullptr;
  if (root == nullptr || !root->is_scalar())
    return absl::OkStatus();  // the dataset's own schema says what is wrong
  return Annotate(roots.CheckDeclared(root->scalar), root->Where());
}

}  // namespace

absl::Status CheckRoot(const PipelineSpec& spec, const Roots& roots) {
  if (!IsMix(spec.dataset)) return CheckRootOf(spec.dataset, roots);
  FW_ASSIGN_OR_RETURN(const MixSpec mix, ReadMix(spec.dataset));
  for (const MixSpec::Source& source : mix.sources)
    FW_RETURN_IF_ERROR(CheckRootOf(source.dataset, roots));
  return absl::OkStatus();
}

absl::StatusOr<PipelineSpec> CheckPipelineFile(const std::string& path, const Roots& roots,
                                               const PipelineCaps& caps) {
  DeclaredFiles files(roots);
  FW_ASSIGN_OR_RETURN(PipelineSpec spec, ReadPipelineFile(path, caps, &files));
  FW_RETURN_IF_ERROR(CheckRoot(spec, roots));
  FW_RETURN_IF_ERROR(Plan::Validate(spec));
  return spec;
}

void PipelineFiles::Reload(const PipelineFolders& where, std::shared_ptr<const Roots> roots) {
  Files files;
  Setting setting{where, std::move(roots), 0};
  {
    MutexLock lock(&mu_);
    files = files_;
    setting.reload = setting_.reload + 1;
  }
  const auto found = FindPipelineFiles(where);
  for (auto& [name, known] : files) {
    if (found.count(name) == 0) known = {0, nullptr, known.last_good};
  }
  for (const auto& [name, path] : found) files[name] = Read(name, path, files[name], setting);
  MutexLock lock(&mu_);
  setting_ = std::move(setting);
  files_ = std::move(files);
}

// The version before is used under these roots, too, which may be other ones than it was read for.
PipelineFiles::Known PipelineFiles::Read(const std::string& name, const std::string& path,
                                         const Known& before, const Setting& setting) const {
  PipelineFile file{path, absl::UnknownError(""), absl::OkStatus(), setting.roots, setting.reload};
  uint64_t stamp = 0;
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    stamp = SettledStamp(path);
    file.spec = CheckPipelineFile(path, *setting.roots, caps_);
    if (SettledStamp(path) == stamp) break;
    stamp = 0;
  }
  if (!IsOfTheText(file.spec.status())) stamp = 0;
  Known known{stamp, nullptr, before.last_good};
  const bool has_good =
      before.last_good != nullptr && CheckRoot(*before.last_good->spec, *setting.roots).ok();
  if (!file.spec.ok() && has_good && !absl::IsResourceExhausted(file.spec.status())) {
    file.mistake = file.spec.status();
    file.spec = before.last_good->spec;
  }
  if (before.file != nullptr && IsSame(file, *before.file)) {
    known.file = before.file;
    return known;
  }
  const std::string mistake = MistakeIn(file);
  if (!mistake.empty() &&
      ClientLog().Admits("broken pipeline files", LogLimiter::kNoSource, LogLimiter::kOpenLines)) {
    spdlog::error(
        "pipeline {} {}: {}", name,
        file.spec.ok() ? "is used as it was before its file was broken" : "cannot be used",
        mistake);
  }
  known.file = std::make_shared<const PipelineFile>(std::move(file));
  if (mistake.empty()) known.last_good = known.file;
  return known;
}

absl::StatusOr<std::shared_ptr<const PipelineFile>> PipelineFiles::Look(const std::string& name) {
  Setting setting;
  Known known;
  {
    MutexLock lock(&mu_);
    setting = setting_;
    if (const auto found = files_.find(name); found != files_.end()) known = found->second;
  }
  struct stat info {};
  FW_ASSIGN_OR_RETURN(const std::string path, Find(setting.where, name, &info));
  if (path.empty()) {
    {
      MutexLock lock(&mu_);
      const auto found = files_.find(name);
      if (found != files_.end() && setting.reload == setting_.reload)
        found->second = {0, nullptr, found->second.last_good};
    }
    return Unknown(name, setting.where);
  }
  const bool is_same =
      known.file != nullptr && known.file->path == path && known.stamp == FileStamp(info);
  if (is_same) return known.file;
  known = Read(name, path, known, setting);
  // There was no memory to read it, and no version before: the file may be good.
  if (absl::IsResourceExhausted(known.file->spec.status())) return known.file->spec.status();
  MutexLock lock(&mu_);
  if (setting.reload == setting_.reload) files_[name] = known;
  return known.file;
}

void PipelineFiles::LookAtAll() {
  PipelineFolders where;
  Files known;
  {
    MutexLock lock(&mu_);
    where = setting_.where;
    known = files_;
  }
  for (const auto& [name, path] : FindPipelineFiles(where, /*tell=*/false)) {
    Look(name).IgnoreError();
    known.erase(name);
  }
  for (const auto& [name, gone] : known) Look(name).IgnoreError();
}

absl::Status PipelineFiles::Unknown(const std::string& name, const PipelineFolders& where) const {
  std::vector<std::string> names;
  for (const auto& [found, path] : FindPipelineFiles(where, /*tell=*/false)) names.push_back(found);
  return absl::NotFoundError(
      absl::StrCat("unknown pipeline '", Printable(name), "'", Suggest(name, names), "; a file ",
                   Printable(name), ".yaml is looked for in ", absl::StrJoin(where.folders, ", ")));
}

std::vector<std::string> PipelineFiles::Names() const {
  MutexLock lock(&mu_);
  std::vector<std::string> names;
  for (const auto& [name, known] : files_) {
    if (known.file != nullptr) names.push_back(name);
  }
  return names;
}

std::string PipelineFiles::Describe() const {
  MutexLock lock(&mu_);
  std::vector<std::string> good, broken;
  for (const auto& [name, known] : files_) {
    if (known.file != nullptr) (MistakeIn(*known.file).empty() ? good : broken).push_back(name);
  }
  std::string text = good.empty() ? "none" : absl::StrJoin(good, ", ");
  if (!broken.empty()) absl::StrAppend(&text, "; broken, see above: ", absl::StrJoin(broken, ", "));
  return text;
}

}  // namespace feedwater::server
