#include "server/service/config.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "feedwater/version.h"
#include "server/base/units.h"
#include "server/graph/plugin_file.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMinMemoryBytes = 64LL << 20;
// `memory: auto` leaves a fifth to the kernel and to the trainers that share the cgroup.
constexpr int64_t kAutoMemoryPercent = 80;
// The rest of `memory` stays for arenas and indexes: a cache never gives back what it has filled.
constexpr int64_t kAutoCachePercent = 25;
constexpr int64_t kAutoSeekIndexPercent = 4;
constexpr size_t kMaxSocketPath = 107;  // sockaddr_un::sun_path less its zero

// --- the tree of the file, with overrides put in

const YamlNode* FindPath(const YamlNode& root, std::initializer_list<absl::string_view> keys) {
  const YamlNode* node = &root;
  for (absl::string_view key : keys) {
    const YamlNode* next = node->is_map() ? node->Find(key) : nullptr;
    if (next == nullptr) return node;  // the nearest that has a place
    node = next;
  }
  return node;
}

absl::Status At(const YamlNode& root, std::initializer_list<absl::string_view> keys,
                const absl::Status& status) {
  if (status.ok()) return status;
  return FindPath(root, keys)
      ->Error(absl::StrCat(absl::StrJoin(keys, "."), ": ", status.message()));
}

// Every node below says that it came from this argument.
void SetPlace(const std::shared_ptr<const std::string>& place, YamlNode* node) {
  node->file = place;
  node->line = node->column = 0;
  for (YamlNode& item : node->items) SetPlace(place, &item);
  for (auto& [key, value] : node->entries) {
    SetPlace(place, &key);
    SetPlace(place, &value);
  }
}

absl::Status Override(const std::string& text, YamlNode* root) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set ", text, ": takes KEY=VALUE, such as --set storage.engine=pread"));
  }
  std::string path = text.substr(0, equals);
  auto place = std::make_shared<const std::string>(absl::StrCat("--set ", path));
  FW_ASSIGN_OR_RETURN(YamlNode value, ParseYaml(text.substr(equals + 1), *place));
  SetPlace(place, &value);

  YamlNode* map = root;
  std::vector<std::string> keys = absl::StrSplit(path, '.');
  for (size_t i = 0; i < keys.size(); ++i) {
    if (map->kind == YamlNode::Kind::kNull) map->kind = YamlNode::Kind::kMap;
    if (!map->is_map() || keys[i].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(*place, ": '", keys[i], "' cannot be set: ",
                       keys[i].empty() ? "the key is empty" : "what it stands in is no map"));
    }
    YamlNode* found = nullptr;
    for (auto& [key, entry] : map->entries) {
      if (key.scalar == keys[i]) found = &entry;
    }
    if (found == nullptr) {
      YamlNode key, empty;
      key.kind = YamlNode::Kind::kScalar;
      key.scalar = keys[i];
      SetPlace(place, &key);
      SetPlace(place, &empty);
      map->entries.emplace_back(std::move(key), std::move(empty));
      found = &map->entries.back().second;
    }
    if (i + 1 == keys.size()) {
      *found = std::move(value);
      break;
    }
    map = found;
  }
  return absl::OkStatus();
}

// --- folders

// `..` stays: behind a link it is the parent of what the link names.
std::string Absolute(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  fs::path kept;
  for (const fs::path& part : error ? path : absolute) {
    if (!part.empty() && part != ".") kept /= part;
  }
  return kept.string();
}

std::string Environment(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

// Of a list such as systemd's RUNTIME_DIRECTORY, the first.
std::string FirstFolder(const char* name) {
  std::string list = Environment(name);
  std::string first = list.substr(0, list.find(':'));
  return !first.empty() && first[0] == '/' ? first : "";
}

std::string HomeFolder() {
  if (std::string home = Environment("HOME"); !home.empty() && home[0] == '/') return home;
  passwd user{};
  passwd* found = nullptr;
  std::vector<char> buffer(65536);
  if (getpwuid_r(geteuid(), &user, buffer.data(), buffer.size(), &found) == 0 && found != nullptr &&
      found->pw_dir[0] == '/') {
    return found->pw_dir;
  }
  return "";
}

std::string PrivateTmp() { return absl::StrCat("/tmp/feedwater-", geteuid()); }

std::string DefaultRuntimeDir(int node) {
  if (std::string given = FirstFolder("RUNTIME_DIRECTORY"); !given.empty()) return given;
  if (geteuid() == 0) return absl::StrCat("/run/feedwater/", node);
  if (std::string xdg = Environment("XDG_RUNTIME_DIR"); !xdg.empty() && xdg[0] == '/') {
    return absl::StrCat(xdg, "/feedwater/", node);
  }
  return absl::StrCat(PrivateTmp(), "/", node);
}

std::string DefaultStateDir(int node) {
  if (std::string given = FirstFolder("STATE_DIRECTORY"); !given.empty()) return given;
  if (geteuid() == 0) return absl::StrCat("/var/lib/feedwater/", node);
  if (std::string xdg = Environment("XDG_STATE_HOME"); !xdg.empty() && xdg[0] == '/') {
    return absl::StrCat(xdg, "/feedwater/", node);
  }
  std::string home = HomeFolder();
  return home.empty() ? absl::StrCat(PrivateTmp(), "/state/", node)
                      : absl::StrCat(home, "/.local/state/feedwater/", node);
}

// What stands in the way of a folder at this path: the part of it that is there and is none.
std::string FileOnTheWay(const fs::path& path) {
  fs::path part;
  for (const fs::path& name : path) {
    part /= name;
    std::error_code error;
    const fs::file_status found = fs::status(part, error);
    if (!fs::exists(found)) return "";  // made at the start, or said then why not
    if (!fs::is_directory(found)) return part.string();
  }
  return "";
}

class Resolver {
 public:
  explicit Resolver(const std::string& file_name)
      : file_name_(file_name), folder_(fs::path(Absolute(file_name)).parent_path()) {}

  absl::StatusOr<std::string> Path(const YamlNode& node, const std::string& text) const {
    if (text.empty()) return node.Error("an empty path");
    if (text.find('\0') != std::string::npos) return node.Error("a path with a zero byte");
    fs::path path(text);
    bool in_file = node.file != nullptr && *node.file == file_name_;
    return Absolute(path.is_relative() && in_file ? folder_ / path : path);
  }

 private:
  const std::string file_name_;
  const fs::path folder_;
};

absl::Status ResolvePlugins(const YamlNode& root, const Resolver& resolver, Settings* settings) {
  std::vector<std::string>& paths = settings->config.plugins;
  const YamlNode* list = FindPath(root, {"plugins"});
  for (size_t i = 0; i < paths.size(); ++i) {
    const YamlNode& place = i < list->items.size() ? list->items[i] : *list;
    FW_ASSIGN_OR_RETURN(paths[i], resolver.Path(place, paths[i]));
    settings->plugin_places.push_back(place);
  }
  return absl::OkStatus();
}

absl::Status ResolvePaths(const YamlNode& root, const std::string& file_name, Purpose purpose,
                          Settings* settings) {
  Resolver resolver(file_name);
  const int node = settings->numa_node;
  DaemonConfig* const config = &settings->config;
  FW_RETURN_IF_ERROR(ResolvePlugins(root, resolver, settings));
  if (config->runtime_dir.empty()) config->runtime_dir = DefaultRuntimeDir(node < 0 ? 0 : node);
  if (config->state_dir.empty()) config->state_dir = DefaultStateDir(node < 0 ? 0 : node);
  FW_ASSIGN_OR_RETURN(config->runtime_dir,
                      resolver.Path(*FindPath(root, {"runtime_dir"}), config->runtime_dir));
  FW_ASSIGN_OR_RETURN(config->state_dir,
                      resolver.Path(*FindPath(root, {"state_dir"}), config->state_dir));
  for (const auto& [key, path] :
       {std::pair<const char*, const std::string&>("runtime_dir", config->runtime_dir),
        {"state_dir", config->state_dir}}) {
    if (const std::string file = FileOnTheWay(path); !file.empty()) {
      return FindPath(root, {key})->Error(absl::StrCat(key, ": ", file, " is not a folder"));
    }
  }
  if (config->runtime_dir.size() + sizeof("/control.sock") - 1 > kMaxSocketPath) {
    return FindPath(root, {"runtime_dir"})
        ->Error(absl::StrCat("runtime_dir: '", config->runtime_dir, "' is ",
                             config->runtime_dir.size(),
                             " bytes long; a socket's path has room for ",
                             kMaxSocketPath - sizeof("/control.sock") + 1));
  }
  const YamlNode* list = FindPath(root, {"pipelines"});
  for (size_t i = 0; i < config->pipelines.size(); ++i) {
    const YamlNode& place = i < list->items.size() ? list->items[i] : *list;
    FW_ASSIGN_OR_RETURN(config->pipelines[i], resolver.Path(place, config->pipelines[i]));
    std::error_code error;
    if (!fs::is_directory(config->pipelines[i], error)) {
      // A name that is looked for there is not found.
      if (purpose == Purpose::kCommand && error == std::errc::permission_denied) continue;
      std::error_code unknown;
      const bool is_missing = !fs::exists(config->pipelines[i], unknown) && !unknown;
      return place.Error(absl::StrCat(
          "pipelines: ", config->pipelines[i], " is not a folder",
          error ? absl::StrCat(" (", error.message(), ")") : "",
          "; cure: ", is_missing ? absl::StrCat("mkdir -p ", config->pipelines[i], ", or ") : "",
          "leave it out (`pipelines: []` has none)"));
    }
  }
  for (auto& [name, path] : config->roots) {
    const YamlNode& place = *FindPath(root, {"roots", name});
    if (name.empty()) return place.Error("roots: a root needs a name");
    if (name[0] == '/') {
      return place.Error(absl::StrCat("roots: '", name,
                                      "' is no name of a root: it begins with '/'; absolute_roots: "
                                      "true lets pipelines name folders by their paths"));
    }
    FW_ASSIGN_OR_RETURN(path, resolver.Path(place, path));
  }
  return absl::OkStatus();
}

// Whether it is the machine that lacks the node or the CPUs, and not the text that is wrong.
bool IsNumaNode(const std::string& text) {
  int node;
  return absl::SimpleAtoi(text, &node) && node >= 0;
}
bool AreCpus(const std::string& text) {
  int64_t count;
  return absl::SimpleAtoi(text, &count) ? count > 0 : text == "auto" || ParseCpuList(text).ok();
}

// The CPUs and their node; for a command those of this process where it lacks them.
absl::Status ResolveCpus(const YamlNode& root, Purpose purpose, Settings* settings) {
  const DaemonConfig& config = settings->config;
  const bool is_command = purpose == Purpose::kCommand;
  auto cpus = ChooseCpus(config.cpus, settings->numa_node);
  if (!cpus.ok() && is_command && AreCpus(config.cpus)) {
    settings->lacking.emplace_back(At(root, {"cpus"}, cpus.status()).message());
    settings->numa_node = -1;
    cpus = ChooseCpus("auto", -1);
  }
  FW_RETURN_IF_ERROR(At(root, {"cpus"}, cpus.status()));
  settings->cpus = *std::move(cpus);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ResolveMemory(const std::string& text, Purpose purpose) {
  int64_t available = MemoryLimitBytes();
  if (text == "auto") return available / 100 * kAutoMemoryPercent;
  auto parsed = ParseBytes(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("auto, or a size such as 8GiB: ", parsed.status().message()));
  }
  if (*parsed < kMinMemoryBytes) {
    return absl::InvalidArgumentError(absl::StrCat(FormatBytes(*parsed),
                                                   " is too little to work with; at least ",
                                                   FormatBytes(kMinMemoryBytes)));
  }
  if (available > 0 && *parsed > available && purpose == Purpose::kDaemon) {
    return absl::InvalidArgumentError(
        absl::StrCat(FormatBytes(*parsed), " is over the ", FormatBytes(available),
                     " that this machine or the cgroup of this process has; the kernel would end "
                     "the daemon on the way there"));
  }
  return *parsed;
}

absl::StatusOr<int64_t> ResolvePart(const std::string& text, int64_t memory, int64_t auto_percent) {
  if (text == "auto") return memory / 100 * auto_percent;
  auto parsed = ParseBytes(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("auto, or a size such as 8GiB: ", parsed.status().message()));
  }
  if (*parsed > memory) {
    return absl::InvalidArgumentError(absl::StrCat(FormatBytes(*parsed), " is over `memory` = ",
                                                   FormatBytes(memory), ", which it is part of"));
  }
  return *parsed;
}

absl::StatusOr<AccessList> ResolveAccess(const YamlNode& root, const AccessConfig& config) {
  AccessList list;
  for (const std::string& name : config.users) {
    auto uid = FindUser(name);
    FW_RETURN_IF_ERROR(At(root, {"access", "users"}, uid.status()));
    list.users.insert(*uid);
  }
  for (const std::string& name : config.groups) {
    auto gid = FindGroup(name);
    FW_RETURN_IF_ERROR(At(root, {"access", "groups"}, gid.status()));
    list.groups.insert(*gid);
  }
  return list;
}

absl::Status CheckVersion(const YamlNode& root) {
  if (!root.is_map()) return absl::OkStatus();  // Schema::Read says what is wrong
  const YamlNode* version = root.Find("version");
  if (version == nullptr || !version->is_scalar() ||
      version->scalar == absl::StrCat(kConfigVersion))
    return absl::OkStatus();
  return version->Error(absl::StrCat("version ", version->scalar,
                                     " of the configuration is unknown: feedwaterd ",
                                     kFeedwaterVersion, " reads version ", kConfigVersion));
}

absl::StatusOr<Settings> Resolve(YamlNode root, const std::string& file_name,
                                 const std::vector<std::string>& overrides, Purpose purpose) {
  for (const std::string& override : overrides) FW_RETURN_IF_ERROR(Override(override, &root));
  FW_RETURN_IF_ERROR(CheckVersion(root));
  Settings settings;
  FW_ASSIGN_OR_RETURN(settings.config, ConfigSchema().Read(root, "the configuration"));
  DaemonConfig& config = settings.config;

  const bool is_command = purpose == Purpose::kCommand;
  auto node = ChooseNumaNode(config.numa_node);
  if (!node.ok() && is_command && IsNumaNode(config.numa_node)) {
    settings.lacking.emplace_back(At(root, {"numa_node"}, node.status()).message());
    node = -1;
  }
  FW_RETURN_IF_ERROR(At(root, {"numa_node"}, node.status()));
  settings.numa_node = *node;
  FW_RETURN_IF_ERROR(ResolvePaths(root, file_name, purpose, &settings));
  FW_RETURN_IF_ERROR(ResolveCpus(root, purpose, &settings));
  auto memory = ResolveMemory(config.memory, purpose);
  FW_RETURN_IF_ERROR(At(root, {"memory"}, memory.status()));
  settings.memory_limit_bytes = *memory;
  auto cache = ResolvePart(config.cache.ram, settings.memory_limit_bytes, kAutoCachePercent);
  FW_RETURN_IF_ERROR(At(root, {"cache", "ram"}, cache.status()));
  settings.cache_memory_bytes = *cache;
  auto seek =
      ResolvePart(config.cache.seek_indexes, settings.memory_limit_bytes, kAutoSeekIndexPercent);
  FW_RETURN_IF_ERROR(At(root, {"cache", "seek_indexes"}, seek.status()));
  settings.seek_index_bytes = *seek;
  auto engine = ChooseEngine(config.storage.engine);
  if (absl::IsFailedPrecondition(engine.status()) && is_command) {
    settings.lacking.emplace_back(At(root, {"storage", "engine"}, engine.status()).message());
    engine = ChooseEngine("auto");
  }
  FW_RETURN_IF_ERROR(At(root, {"storage", "engine"}, engine.status()));
  settings.engine = *std::move(engine);
  FW_ASSIGN_OR_RETURN(settings.access, ResolveAccess(root, config.access));
  StringMap folders = config.roots;
  if (config.absolute_roots) {
    if (AdmitsOthers(settings.access)) {
      return At(root, {"absolute_roots"},
                absl::InvalidArgumentError(
                    "would let the users whom `access` admits read all that the daemon's user may "
                    "read; cure: declare roots, or admit nobody"));
    }
    folders.emplace("/", "/");  // as Roots::Create takes it
  }
  std::string wrong;
  auto roots = is_command ? Roots::Create(folders, &wrong, /*patience=*/absl::ZeroDuration())
                          : Roots::Create(folders, &wrong);
  FW_RETURN_IF_ERROR(At(root, {"roots", wrong}, roots.status()));
  settings.roots = *std::move(roots);
  return settings;
}

}  // namespace

bool AdmitsOthers(const AccessList& access) {
  return !access.groups.empty() ||
         std::any_of(access.users.begin(), access.users.end(),
                     [](uid_t user) { return user != geteuid() && user != 0; });
}

bool IsolatesImages(const DaemonConfig& config, const AccessList& access) {
  if (config.isolation != "auto") return config.isolation == "process";
  return AdmitsOthers(access);
}

const Schema<DaemonConfig>& ConfigSchema() {
  static const auto* schema = new Schema<DaemonConfig>(DaemonConfig::Keys());
  return *schema;
}

PipelineCaps CapsOf(const LimitsConfig& limits) {
  PipelineCaps caps;
  caps.images.max_pixels = limits.max_pixels;
  caps.images.max_scans = static_cast<int>(limits.max_scans);
  caps.images.max_decode_ms = limits.max_decode_ms;
  caps.images.max_sample_ms = limits.max_sample_ms;
  caps.max_ops = limits.max_ops;
  caps.max_outputs = limits.max_outputs;
  return caps;
}

absl::StatusOr<Settings> ParseSettings(absl::string_view text, const std::string& file_name,
                                       const std::vector<std::string>& overrides, Purpose purpose) {
  FW_ASSIGN_OR_RETURN(YamlNode root, ParseYaml(text, file_name));
  return Resolve(std::move(root), file_name, overrides, purpose);
}

absl::StatusOr<Settings> LoadSettings(const std::string& path,
                                      const std::vector<std::string>& overrides, Purpose purpose) {
  FW_ASSIGN_OR_RETURN(YamlNode root, ReadYamlFile(path));
  FW_ASSIGN_OR_RETURN(Settings settings, Resolve(std::move(root), path, overrides, purpose));
  settings.file = Absolute(path);
  settings.overrides = overrides;
  return settings;
}

absl::Status LoadPlugins(const Settings& settings, std::vector<std::string>* left_out) {
  for (size_t i = 0; i < settings.config.plugins.size(); ++i) {
    const absl::Status loaded = LoadPlugin(settings.config.plugins[i]);
    if (loaded.ok()) continue;
    const absl::Status error =
        settings.plugin_places[i].Error(absl::StrCat("plugins: ", loaded.message()));
    if (left_out == nullptr || !absl::IsPermissionDenied(loaded)) return error;
    left_out->emplace_back(error.message());
  }
  return absl::OkStatus();
}

std::vector<std::string> SettledOverrides(const Settings& settings) {
  using nlohmann::json;
  std::vector<std::string> overrides = settings.overrides;
  std::set<std::string> keys;
  for (const std::string& override : overrides) keys.insert(override.substr(0, override.find('=')));
  const auto set = [&](absl::string_view key, const json& value) {
    overrides.push_back(
        absl::StrCat(key, "=", value.dump(-1, ' ', false, json::error_handler_t::replace)));
  };
  const DaemonConfig& config = settings.config;
  set("runtime_dir", config.runtime_dir);
  set("state_dir", config.state_dir);
  // A root that stands in the file is the file's, as a reload takes it.
  for (const auto& [name, path] : config.roots) {
    const std::string key = absl::StrCat("roots.", name);
    if (keys.count(key) > 0 && keys.count("roots") == 0) set(key, path);
  }
  if (keys.count("roots") > 0) set("roots", config.roots);
  if (keys.count("pipelines") > 0) set("pipelines", config.pipelines);
  if (keys.count("plugins") > 0) set("plugins", config.plugins);
  return overrides;
}

}  // namespace feedwater::server
