#include "server/graph/plugin_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/escape.h"
#include "server/base/fd.h"
#include "server/base/float_mode.h"
#include "server/base/no_throw.h"
#include "server/graph/op_spec.h"
#include "server/graph/plugin_op.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

constexpr char kSymbol[] = "feedwater_plugin";
constexpr char kVariable[] = "FEEDWATER_PLUGIN_";  // and a number: STAMP PATH

std::vector<LoadedPlugin>& Loaded() {
  static auto* loaded = new std::vector<LoadedPlugin>;
  return *loaded;
}

std::string StampOf(const struct stat& info) {
  return absl::StrCat(info.st_dev, ":", info.st_ino, ":", info.st_size, ":", info.st_mtim.tv_sec,
                      ".", info.st_mtim.tv_nsec);
}

absl::Status CannotBeRead(int error, const std::string& path) {
  const absl::Status status = ErrnoStatus(error, path);
  return absl::IsPermissionDenied(status) ? status : absl::InvalidArgumentError(status.message());
}

// That nobody but root and this process's user can write it or put another one in its place.
absl::Status CheckOwner(const std::string& path, const struct stat& info) {
  const std::string whoever = absl::StrCat(
      ": anyone who can write it could run code in this process; it must be owned by root or by "
      "its "
      "user (uid ",
      geteuid(), "), and be writable by nobody else; cure: ");
  if (info.st_uid != 0 && info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " belongs to user ", info.st_uid, whoever, "chown root ", path));
  }
  const bool is_kept_apart = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0;  // as /tmp
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) == 0 || is_kept_apart) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is writable by ", (info.st_mode & S_IWOTH) != 0 ? "all" : "its group",
                   whoever, "chmod go-w ", path));
}

absl::Status CheckFolders(const std::string& path) {
  for (fs::path folder = fs::path(path).parent_path();; folder = folder.parent_path()) {
    struct stat info {};
    if (stat(folder.c_str(), &info) != 0) return ErrnoStatus(errno, folder.string());
    FW_RETURN_IF_ERROR(CheckOwner(folder.string(), info));
    if (folder == folder.parent_path()) return absl::OkStatus();
  }
}

// Opens the file, a shared library that may be loaded; gives its stamp.
absl::StatusOr<std::string> CheckFile(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0) return CannotBeRead(errno, path);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(path + " is no file");
  FW_RETURN_IF_ERROR(CheckOwner(path, info));
  FW_RETURN_IF_ERROR(CheckFolders(path));
  char magic[4] = {};
  if (pread(fd.get(), magic, sizeof(magic), 0) != sizeof(magic) ||
      absl::string_view(magic, sizeof(magic)) != "\177ELF") {
    return absl::InvalidArgumentError(path + " is no shared library: it does not begin as one");
  }
  return StampOf(info);
}

struct Close {
  void operator()(void* library) const { dlclose(library); }
};

const char* LastError() {
  const char* const error = dlerror();
  return error == nullptr ? "for no known reason" : error;
}

// Who has brought an op.
std::string OwnerOf(const std::string& op) {
  for (const LoadedPlugin& plugin : Loaded()) {
    if (std::find(plugin.ops.begin(), plugin.ops.end(), op) != plugin.ops.end())
      return absl::StrCat("that of ", plugin.path);
  }
  return "a built-in one";
}

// The ops of a library, checked, with `start` called.
absl::StatusOr<std::vector<OpEntry>> OpsOf(void* library) {
  dlerror();
  void* const symbol = dlsym(library, kSymbol);
  if (symbol == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("has no symbol ", kSymbol,
                     ": it is no plug-in of Feedwater, or hides the function; cure: define it with "
                     "FEEDWATER_PLUGIN_EXPORT"));
  }
  const feedwater_plugin_info* info = nullptr;
  FW_RETURN_IF_ERROR(Annotate(NoThrow([&] {
                                info = reinterpret_cast<decltype(feedwater_plugin)*>(symbol)();
                                return absl::OkStatus();
                              }),
                              "feedwater_plugin() threw an exception"));
  FW_RETURN_IF_ERROR(CheckPluginAbi(info));
  FW_ASSIGN_OR_RETURN(std::vector<OpEntry> ops, PluginOps(*info));
  for (const OpEntry& op : ops) {
    if (Registry<OpEntry>::Get().Find(op.name) == nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat("offers op '", op.name, "', but there is ",
                                                   OwnerOf(op.name),
                                                   " of that name already; cure: rename it"));
  }
  if (info->start == nullptr) return ops;
  std::string said;
  FW_RETURN_IF_ERROR(Annotate(NoThrow([&] {
                                const char* const text = info->start();
                                if (text != nullptr) said = PluginMessage(text);
                                return absl::OkStatus();
                              }),
                              "threw an exception in its start"));
  if (!said.empty()) return absl::InvalidArgumentError(absl::StrCat("cannot start: ", said));
  return ops;
}

// What an op's own documentation says must be right, too.
absl::Status CheckExample(const OpEntry& op) {
  if (op.example == absl::StrCat("- ", op.name)) return absl::OkStatus();  // none was given
  const absl::StatusOr<YamlNode> list = ParseYaml(op.example, "its example");
  const absl::Status good = list.ok() ? ReadOps(*list, /*is_batch=*/false).status() : list.status();
  return Annotate(good, absl::StrCat("op '", op.name, "'"));
}

absl::Status Load(const std::string& path, const std::string& stamp) {
  FW_ASSIGN_OR_RETURN(const std::string found, CheckFile(path));
  if (!stamp.empty() && stamp != found) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has changed since the daemon loaded it; cure: restart the daemon"));
  }
  const KeptFloatMode mode;  // a library built with -ffast-math sets another one as it is loaded
  dlerror();
  std::unique_ptr<void, Close> library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " cannot be loaded: ", Escaped(LastError())));
  }
  // Between the look and the loading another file may have come to stand there.
  FW_ASSIGN_OR_RETURN(const std::string loaded, CheckFile(path));
  if (loaded != found) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " was replaced while it was loaded; cure: start again"));
  }
  absl::StatusOr<std::vector<OpEntry>> ops = OpsOf(library.get());
  if (!ops.ok()) return absl::InvalidArgumentError(absl::StrCat(path, " ", ops.status().message()));
  LoadedPlugin plugin{path, found, {}};
  for (OpEntry& op : *ops) {
    op.plugin = path;
    plugin.ops.push_back(op.name);
    spdlog::info("plug-in {}: op {}, version {}", path, op.name, Escaped(op.version));
    Registry<OpEntry>::Get().Add(op.name, op);
  }
  (void)library.release();
  Loaded().push_back(std::move(plugin));
  for (const OpEntry& op : *ops) {
    if (const absl::Status good = CheckExample(op); !good.ok())
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", good.message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadPlugin(const std::string& path, const std::string& stamp) {
  const std::unique_ptr<char, decltype(&free)> real(realpath(path.c_str(), nullptr), free);
  if (real == nullptr) return CannotBeRead(errno, path);
  for (const LoadedPlugin& plugin : Loaded()) {
    if (plugin.path == real.get()) return absl::OkStatus();
  }
  return Load(real.get(), stamp);
}

const std::vector<LoadedPlugin>& LoadedPlugins() { return Loaded(); }

std::vector<std::string> ChangedPlugins() {
  std::vector<std::string> changed;
  for (const LoadedPlugin& plugin : Loaded()) {
    struct stat info {};
    if (stat(plugin.path.c_str(), &info) != 0 || StampOf(info) != plugin.stamp)
      changed.push_back(plugin.path);
  }
  return changed;
}

std::vector<std::string> PluginVariables() {
  std::vector<std::string> variables;
  for (const LoadedPlugin& plugin : Loaded()) {
    variables.push_back(
        absl::StrCat(kVariable, variables.size(), "=", plugin.stamp, " ", plugin.path));
  }
  return variables;
}

absl::Status LoadPluginsOfEnvironment() {
  for (int number = 0;; ++number) {
    const char* const variable = getenv(absl::StrCat(kVariable, number).c_str());
    if (variable == nullptr) return absl::OkStatus();
    const std::string text = variable;
    const size_t space = text.find(' ');
    if (space == std::string::npos)
      return absl::InvalidArgumentError(absl::StrCat(kVariable, number, " has no path"));
    FW_RETURN_IF_ERROR(LoadPlugin(text.substr(space + 1), text.substr(0, space)));
  }
}

}  // namespace feedwater::server
