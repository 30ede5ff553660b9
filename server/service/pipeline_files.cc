#include "server/service/pipeline_files.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/clock.h"
#include "server/base/log_limiter.h"
#include "server/graph/plan.h"
#include "server/storage/engine.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

// The first regular file of that name; "" where there is none.
std::string Find(const std::vector<std::string>& folders, const std::string& name,
                 struct stat* info) {
  // As FindPipelineFiles, which lists what has one name below a folder.
  if (name.empty() || name[0] == '.' || absl::StrContains(name, '/') ||
      absl::StrContains(name, '\0'))
    return "";
  for (const std::string& folder : folders) {
    std::string path = (fs::path(folder) / absl::StrCat(name, ".yaml")).string();
    if (stat(path.c_str(), info) == 0 && S_ISREG(info->st_mode)) return path;
  }
  return "";
}

std::string MistakeIn(const PipelineFile& file) {
  return std::string(file.spec.ok() ? file.mistake.message() : file.spec.status().message());
}

bool IsSame(const PipelineFile& a, const PipelineFile& b) {
  return a.path == b.path && a.spec.ok() == b.spec.ok() && MistakeIn(a) == MistakeIn(b) &&
         (!a.spec.ok() || a.spec->text == b.spec->text);
}

// Whether a change that comes now shows in the stamp.
bool IsSettled(const struct stat& info) {
  const int64_t changed_ns =
      int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + int64_t{info.st_ctim.tv_nsec};
  const int64_t age_ns = ClockNs(CLOCK_REALTIME) - changed_ns;
  return age_ns < 0 || age_ns >= kFileTimeTickNs;
}

}  // namespace

std::map<std::string, std::string> FindPipelineFiles(const std::vector<std::string>& folders,
                                                     bool tell) {
  std::map<std::string, std::string> files;
  for (const std::string& folder : folders) {
    std::error_code error;
    std::vector<fs::path> found;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const fs::path& path = it->path();
      std::string name = path.filename().string();
      std::error_code ignored;
      if (path.extension() == ".yaml" && name[0] != '.' && it->is_regular_file(ignored))
        found.push_back(path);
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

absl::Status CheckRoot(const PipelineSpec& spec, const Roots& roots) {
  const YamlNode* root = spec.dataset.is_map() ? spec.dataset.Find("root") : nullptr;
  if (root == nullptr || !root->is_scalar())
    return absl::OkStatus();  // the dataset's own schema says what is wrong
  absl::Status found = roots.Find(root->scalar).status();
  return found.ok()
             ? found
             : absl::Status(found.code(), absl::StrCat(root->Where(), ": ", found.message()));
}

absl::StatusOr<PipelineSpec> CheckPipelineFile(const std::string& path, const Roots& roots,
                                               const PipelineCaps& caps) {
  FW_ASSIGN_OR_RETURN(PipelineSpec spec, ReadPipelineFile(path, caps));
  FW_RETURN_IF_ERROR(CheckRoot(spec, roots));
  FW_RETURN_IF_ERROR(Plan::Validate(spec));
  return spec;
}

void PipelineFiles::Reload(const std::vector<std::string>& folders,
                           std::shared_ptr<const Roots> roots) {
  Files before, files;
  {
    MutexLock lock(&mu_);
    before = files_;
  }
  for (const auto& [name, path] : FindPipelineFiles(folders)) {
    const auto known = before.find(name);
    files[name] = Read(name, path, known == before.end() ? nullptr : known->second.file, *roots);
  }
  MutexLock lock(&mu_);
  ++reloads_;
  folders_ = folders;
  roots_ = std::move(roots);
  files_ = std::move(files);
}

// The version before is used under these roots, too, which may be other ones than it was read for.
PipelineFiles::Known PipelineFiles::Read(const std::string& name, const std::string& path,
                                         const std::shared_ptr<const PipelineFile>& before,
                                         const Roots& roots) const {
  struct stat info {};
  const uint64_t stamp = stat(path.c_str(), &info) == 0 && IsSettled(info) ? FileStamp(info) : 0;
  PipelineFile file{path, CheckPipelineFile(path, roots, caps_), absl::OkStatus()};
  const bool was_good =
      before != nullptr && before->spec.ok() && CheckRoot(*before->spec, roots).ok();
  if (!file.spec.ok() && was_good && !absl::IsResourceExhausted(file.spec.status())) {
    file.mistake = file.spec.status();
    file.spec = before->spec;
  }
  if (before != nullptr && IsSame(file, *before)) return {stamp, before};
  const std::string mistake = MistakeIn(file);
  if (!mistake.empty() &&
      ClientLog().Admits("broken pipeline files", LogLimiter::kNoSource, LogLimiter::kOpenLines)) {
    spdlog::error(
        "pipeline {} {}: {}", name,
        file.spec.ok() ? "is used as it was before its file was broken" : "cannot be used",
        mistake);
  }
  return {stamp, std::make_shared<const PipelineFile>(std::move(file))};
}

absl::StatusOr<std::shared_ptr<const PipelineFile>> PipelineFiles::Look(const std::string& name) {
  std::vector<std::string> folders;
  std::shared_ptr<const Roots> roots;
  Known known;
  uint64_t reloads;
  {
    MutexLock lock(&mu_);
    folders = folders_;
    roots = roots_;
    reloads = reloads_;
    if (const auto found = files_.find(name); found != files_.end()) known = found->second;
  }
  struct stat info {};
  const std::string path = Find(folders, name, &info);
  if (path.empty()) {
    {
      MutexLock lock(&mu_);
      if (reloads == reloads_) files_.erase(name);
    }
    return Unknown(name, folders);
  }
  const bool is_same =
      known.file != nullptr && known.file->path == path && known.stamp == FileStamp(info);
  // The file may be good: there was no memory to read it.
  if (is_same && !absl::IsResourceExhausted(known.file->spec.status())) return known.file;
  known = Read(name, path, known.file, *roots);
  MutexLock lock(&mu_);
  if (reloads == reloads_) files_[name] = known;
  return known.file;
}

void PipelineFiles::LookAtAll() {
  std::vector<std::string> folders;
  Files known;
  {
    MutexLock lock(&mu_);
    folders = folders_;
    known = files_;
  }
  for (const auto& [name, path] : FindPipelineFiles(folders, /*tell=*/false)) {
    Look(name).IgnoreError();
    known.erase(name);
  }
  for (const auto& [name, gone] : known) Look(name).IgnoreError();
}

absl::Status PipelineFiles::Unknown(const std::string& name,
                                    const std::vector<std::string>& folders) const {
  std::vector<std::string> names;
  for (const auto& [found, path] : FindPipelineFiles(folders, /*tell=*/false))
    names.push_back(found);
  return absl::NotFoundError(absl::StrCat("unknown pipeline '", Printable(name), "'",
                                          Suggest(name, names), "; a file ", Printable(name),
                                          ".yaml is looked for in ", absl::StrJoin(folders, ", ")));
}

std::vector<std::string> PipelineFiles::Names() const {
  MutexLock lock(&mu_);
  std::vector<std::string> names;
  for (const auto& [name, known] : files_) names.push_back(name);
  return names;
}

std::string PipelineFiles::Describe() const {
  MutexLock lock(&mu_);
  std::vector<std::string> good, broken;
  for (const auto& [name, known] : files_)
    (MistakeIn(*known.file).empty() ? good : broken).push_back(name);
  std::string text = good.empty() ? "none" : absl::StrJoin(good, ", ");
  if (!broken.empty()) absl::StrAppend(&text, "; broken, see above: ", absl::StrJoin(broken, ", "));
  return text;
}

}  // namespace feedwater::server
