// feedwater.yaml: what a file means, and that every mistake in one is answered with its place.
#include "server/service/config.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/storage/system_calls.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

class Config : public ::testing::Test {
 protected:
  Config() {
    char folder[] = "/tmp/feedwater-config-XXXXXX";
    folder_ = mkdtemp(folder);
    fs::create_directories(folder_ + "/pipelines");
    fs::create_directories(folder_ + "/photos");
    file_ = folder_ + "/feedwater.yaml";
  }
  ~Config() override { fs::remove_all(folder_); }

  // A good file with these lines at its end.
  std::string Text(const std::string& more = "") const {
    return absl::StrCat("version: 1\npipelines: [pipelines]\nroots: {photos: photos}\n", more);
  }
  absl::StatusOr<Settings> Parse(const std::string& text,
                                 const std::vector<std::string>& overrides = {}) const {
    return ParseSettings(text, file_, overrides);
  }

  std::string folder_, file_;
};

TEST_F(Config, PathsOfAFileStartAtItsFolder) {
  auto settings = Parse(Text("runtime_dir: run/./here\nstate_dir: ../elsewhere\n"));
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->config.pipelines, std::vector<std::string>{folder_ + "/pipelines"});
  EXPECT_EQ(settings->config.roots.at("photos"), folder_ + "/photos");
  EXPECT_EQ(settings->config.runtime_dir, folder_ + "/run/here");
  EXPECT_EQ(settings->config.state_dir, folder_ + "/../elsewhere");
  EXPECT_TRUE(settings->roots->Find("photos").ok());
}

// Behind a link `..` is the parent of what the link names, as for everybody else on the machine.
TEST_F(Config, TwoDotsBehindALinkLeadWhereTheyLeadTheKernel) {
  for (const char* name : {"/real/v7", "/real/set", "/real/pipelines", "/a/set", "/a/pipelines"})
    fs::create_directories(folder_ + name);
  fs::create_directory_symlink("../real/v7", folder_ + "/a/link");
  std::ofstream(folder_ + "/real/feedwater.yaml")
      << "version: 1\npipelines: [./pipelines/]\nroots: {d: " << folder_
      << "/a/link/../set/, e: set}\nruntime_dir: run\nstate_dir: " << folder_
      << "/a/link/../state\nplugins: [" << folder_ << "/a/link/../op.so]\n";
  std::ofstream(folder_ + "/a/feedwater.yaml") << "no configuration\n";
  const std::string real = folder_ + "/a/link/..";
  const auto settings = LoadSettings(real + "/./feedwater.yaml", {});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->file, real + "/feedwater.yaml");
  const DaemonConfig& config = settings->config;
  EXPECT_EQ(config.roots.at("d"), real + "/set");
  EXPECT_EQ(config.roots.at("e"), real + "/set");
  EXPECT_EQ(config.pipelines, std::vector<std::string>{real + "/pipelines"});
  EXPECT_EQ(config.runtime_dir, real + "/run");
  EXPECT_EQ(config.state_dir, real + "/state");
  EXPECT_EQ(config.plugins, std::vector<std::string>{real + "/op.so"});
  const auto root = settings->roots->Find("d");
  ASSERT_TRUE(root.ok()) << root.status();
  std::ofstream(folder_ + "/real/set/x") << "1";
  EXPECT_TRUE((*root)->Stat("x").ok());
}

TEST_F(Config, EveryOtherKeyHasADefault) {
  auto settings = Parse(Text());
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_FALSE(settings->cpus.empty());
  EXPECT_GT(settings->memory_limit_bytes, 0);
  EXPECT_LT(settings->memory_limit_bytes, MemoryLimitBytes());
  EXPECT_EQ(settings->config.limits.sessions_per_uid, 32);
  EXPECT_EQ(settings->config.limits.pipeline_bytes.bytes, 256 << 10);
  EXPECT_TRUE(settings->access.empty());
  EXPECT_EQ(settings->config.runtime_dir[0], '/');
}

TEST_F(Config, SystemdsFoldersAreTheDefaultBelowSystemd) {
  setenv("RUNTIME_DIRECTORY", "/run/feedwater/3:/run/other", 1);
  setenv("STATE_DIRECTORY", "/var/lib/feedwater/3", 1);
  auto settings = Parse(Text());
  unsetenv("RUNTIME_DIRECTORY");
  unsetenv("STATE_DIRECTORY");
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->config.runtime_dir, "/run/feedwater/3");
  EXPECT_EQ(settings->config.state_dir, "/var/lib/feedwater/3");
}

TEST_F(Config, AnOverrideTakesThePlaceOfAKeyOrAddsOne) {
  auto settings = Parse(Text("cpus: 1\nstorage: {engine: auto}\n"),
                        {"storage.engine=pread", "limits.sessions_per_uid=3", "memory=256MiB",
                         "access.users=[root]"});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->engine.name, "pread");
  EXPECT_EQ(settings->config.limits.sessions_per_uid, 3);
  EXPECT_EQ(settings->memory_limit_bytes, 256 << 20);
  EXPECT_EQ(settings->access.users.count(0), 1u);
  EXPECT_EQ(settings->cpus.size(), 1u);
}

TEST_F(Config, AMistakeInAnOverrideIsShownWithItsArgument) {
  const std::pair<std::string, std::string> mistakes[] = {
      {"storage.engine=magnetic", "--set storage.engine: "},
      {"storage.engin=pread", "--set storage.engin: "},
      {"cpus=0-9999", "--set cpus: "},
      {"roots.x=/no/such", "--set roots.x: "},
      {"memory=[", "--set memory:"},
      {"nothing", "--set nothing: "},
      {"=3", "--set =3: "},
      {"cpus.count=3", "--set cpus.count: "},
  };
  for (const auto& [argument, start] : mistakes) {
    absl::Status status = Parse(Text("cpus: auto\n"), {argument}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << argument << ": " << status;
    EXPECT_TRUE(absl::StartsWith(status.message(), start)) << argument << ": " << status;
  }
}

TEST_F(Config, AbsoluteRootsAreForADaemonOfOneUser) {
  auto settings = Parse(Text());
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_FALSE(settings->roots->CheckDeclared(folder_).ok());
  settings = Parse(Text("absolute_roots: true\n"));
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_TRUE(settings->roots->CheckDeclared(folder_).ok());
  EXPECT_TRUE(settings->roots->Find("photos").ok());
  const absl::Status open =
      Parse(Text("absolute_roots: true\naccess: {users: [12345]}\n")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(open)) << open;
  EXPECT_TRUE(absl::StrContains(open.message(), ":4:17: absolute_roots: ")) << open;
}

TEST_F(Config, PluginsAreLoadedFromTheirPlacesAndChangedByARestart) {
  const auto settings = Parse(Text("plugins: [below/a.so, /b.so]\n"));
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->config.plugins, (std::vector<std::string>{folder_ + "/below/a.so", "/b.so"}));
  const absl::Status loaded = LoadPlugins(*settings);
  EXPECT_TRUE(absl::IsInvalidArgument(loaded)) << loaded;
  EXPECT_EQ(loaded.message(), absl::StrCat(file_, ":4:11: plugins: ", folder_,
                                           "/below/a.so: No such file or directory (errno 2)"));
  const auto without = Parse(Text());
  EXPECT_TRUE(LoadPlugins(*without).ok());
  EXPECT_EQ(ConfigSchema().FixedDifferences(settings->config, without->config),
            std::vector<std::string>{"plugins"});
  std::ofstream(file_) << Text();
  const auto overridden = LoadSettings(file_, {"plugins=[/c.so]"});
  ASSERT_TRUE(overridden.ok()) << overridden.status();
  EXPECT_EQ(SettledOverrides(*overridden).back(), "plugins=[\"/c.so\"]");
}

// What stands in the file is read there by commands: a reload may have taken other roots from it.
TEST_F(Config, SettledOverridesNameNothingThatWasNotOverridden) {
  using Overrides = std::vector<std::string>;
  std::ofstream(file_) << Text();
  const auto settled = [&](const Overrides& given) -> Overrides {
    const auto settings = LoadSettings(file_, given);
    EXPECT_TRUE(settings.ok()) << settings.status();
    if (!settings.ok()) return {};
    Overrides all = SettledOverrides(*settings);
    const auto without_folders = given.size() + 2;
    EXPECT_GE(all.size(), without_folders);
    return {all.begin() + static_cast<ptrdiff_t>(without_folders), all.end()};
  };
  const std::string here = fs::current_path().string();
  EXPECT_EQ(settled({}), Overrides());
  EXPECT_EQ(settled({"roots.more=."}), Overrides{absl::StrCat("roots.more=\"", here, "\"")});
  EXPECT_EQ(settled({"roots.b=/tmp", "roots.a=/"}),
            (Overrides{"roots.a=\"/\"", "roots.b=\"/tmp\""}));
  EXPECT_EQ(settled({"roots.gone=/", "roots={a: .}", "roots.b=/tmp"}),
            Overrides{absl::StrCat("roots={\"a\":\"", here, "\",\"b\":\"/tmp\"}")});
  EXPECT_EQ(settled({"pipelines=[.]"}), Overrides{absl::StrCat("pipelines=[\"", here, "\"]")});
}

TEST_F(Config, EveryMistakeHasAPlaceAndNamesItsKey) {
  struct Mistake {
    std::string text, place, word;
  };
  const Mistake mistakes[] = {
      {"", "1:1", "version"},
      {"[]", "1:1", "configuration"},
      {"version: 2\n", "1:10", "reads version 1"},
      {"version: one\n", "1:10", "version"},
      {"version: 1\npipelines: []\n", "1:1", "roots"},
      {"version: 1\nroots: {}\n", "1:1", "pipelines"},
      {Text("cpu: 3\n"), "4:1", "did you mean 'cpus'"},
      {Text("cpus: 0\n"), "4:7", "cpus"},
      {Text("cpus: [1\n"), "", ""},
      {Text("cpus: 100000\n"), "4:7", "cpus"},
      {Text("memory: plenty\n"), "4:9", "memory"},
      {Text("memory: 1KiB\n"), "4:9", "memory"},
      {Text("memory: 8000TiB\n"), "4:9", "memory"},
      {Text("memory: 99999999999999999999GiB\n"), "4:9", "memory"},
      {Text("numa_node: 977\n"), "4:12", "numa_node"},
      {Text("numa_node: left\n"), "4:12", "numa_node"},
      {Text("storage: fast\n"), "4:10", "storage"},
      {Text("storage: {engine: magnetic}\n"), "4:19", "engine"},
      {Text("storage: {direct_io: maybe}\n"), "4:22", "direct_io"},
      {Text("access:\n  users: [no-such-user-here]\n"), "5:10", "no-such-user-here"},
      {Text("access:\n  groups: [no-such-group-here]\n"), "5:11", "no-such-group-here"},
      {Text("limits: {sessions_per_uid: 0}\n"), "4:28", "sessions_per_uid"},
      {Text("limits: {sessions_per_uid: -1}\n"), "4:28", "sessions_per_uid"},
      {Text("limits: {handshake_timeout: 0s}\n"), "4:29", "handshake_timeout"},
      {Text("limits: {handshake_timeout: soon}\n"), "4:29", "handshake_timeout"},
      {Text("limits: {pipeline_bytes: 1GiB}\n"), "4:26", "pipeline_bytes"},
      {Text("limits: {max_slot: 1}\n"), "4:20", "max_slot"},
      {Text("limits: {max_pixels: 0}\n"), "4:22", "max_pixels"},
      {Text("limits: {max_sample_ms: 99}\n"), "4:25", "max_sample_ms"},
      {Text("limits: {max_ops: none}\n"), "4:19", "max_ops"},
      {Text("runtime_dir: \"\"\nruntime_dir: x\n"), "5:1", "runtime_dir"},
      {Text(absl::StrCat("runtime_dir: /tmp/", std::string(100, 'x'), "\n")), "4:14",
       "runtime_dir"},
      {Text("plugins: a.so\n"), "4:10", "plugins"},
      {Text("plugins: [\"\"]\n"), "4:11", "empty path"},
      {Text("cpus: &a 1\nmemory: *a\n"), "4:7", ""},
      {Text("cpus: !!int 1\n"), "4:7", ""},
      {"version: 1\npipelines: [pipelines, nowhere]\nroots: {}\n", "2:24", "nowhere"},
      {"version: 1\npipelines: [feedwater.yaml]\nroots: {}\n", "2:13", "not a folder"},
      {"version: 1\npipelines: [missing]\nroots: {}\n", "2:13", "cure: mkdir -p "},
      {"version: 1\npipelines: []\nroots: {a: photos, b: nowhere}\n", "3:23", "nowhere"},
      {"version: 1\npipelines: []\nroots: [photos]\n", "3:8", "roots"},
      {"version: 1\npipelines: []\nroots: {/: photos}\n", "3:12", "absolute_roots"},
  };
  std::ofstream(file_) << "version: 1\n";
  for (const Mistake& mistake : mistakes) {
    absl::Status status = Parse(mistake.text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << mistake.text << status;
    EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat(file_, ":", mistake.place)))
        << mistake.text << status;
    EXPECT_TRUE(absl::StrContains(status.message(), mistake.word)) << mistake.text << status;
  }
}

// It runs as another user, in another control group or container than the daemon.
TEST_F(Config, ACommandDoesWithoutWhatItsProcessLacks) {
  const auto parse = [&](const std::string& more) {
    return ParseSettings(Text(more), file_, {}, Purpose::kCommand);
  };
  for (const char* line : {"cpus: 100000\n", "cpus: 0-4000\n", "numa_node: 977\n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Parse(Text(line)).status())) << line;
    const auto settings = parse(line);
    ASSERT_TRUE(settings.ok()) << line << settings.status();
    EXPECT_FALSE(settings->cpus.empty()) << line;
    EXPECT_EQ(settings->numa_node, -1) << line;
    ASSERT_EQ(settings->lacking.size(), 1u) << line;
    EXPECT_TRUE(absl::StrContains(settings->lacking[0], file_ + ":4:")) << settings->lacking[0];
  }
  const auto large = parse("memory: 8000TiB\ncache: {ram: 7000TiB}\n");
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(large->memory_limit_bytes, int64_t{8000} << 40) << "the daemon's";
  EXPECT_TRUE(parse("")->lacking.empty());

  const auto roots = ParseSettings("version: 1\npipelines: []\nroots: {a: photos, b: nowhere}\n",
                                   file_, {}, Purpose::kCommand);
  ASSERT_TRUE(roots.ok()) << roots.status();
  EXPECT_TRUE(roots->roots->FindNow("a").ok());
  const absl::Status missing = roots->roots->FindNow("b").status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_TRUE(absl::StrContains(missing.message(), "root 'b' (" + folder_ + "/nowhere)"));

  for (const char* line :
       {"cpus: many\n", "cpus: 0\n", "cpus: 3-1\n", "numa_node: left\n", "memory: plenty\n",
        "memory: 1KiB\n", "storage: {engine: magnetic}\n", "cpu: 3\n"})
    EXPECT_TRUE(absl::IsInvalidArgument(parse(line).status())) << line;
  EXPECT_FALSE(
      ParseSettings("version: 1\npipelines: [missing]\nroots: {}\n", file_, {}, Purpose::kCommand)
          .ok());
}

TEST_F(Config, ACommandReadsWithAnEngineThatThereIs) {
  WithoutSystemCall(SYS_io_uring_setup, EPERM, [&] {
    const std::string text = Text("storage: {engine: io_uring}\n");
    const auto settings = ParseSettings(text, file_, {}, Purpose::kCommand);
    return settings.ok() && settings->engine.name == "pread" && settings->lacking.size() == 1 &&
           !Parse(text).ok();
  });
}

TEST_F(Config, AMissingFileIsAnErrorWithItsName) {
  absl::Status status = LoadSettings(folder_ + "/nowhere.yaml", {}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::StrContains(status.message(), "nowhere.yaml")) << status;
}

TEST_F(Config, TheSampleFileIsTheOneInTheRepositoryAndIsGood) {
  std::ifstream file(FEEDWATER_SOURCE_DIR "/config/feedwater.yaml");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), SampleConfig()) << "feedwaterd --print-config > config/feedwater.yaml";

  auto settings = Parse(SampleConfig());
  EXPECT_TRUE(settings.ok()) << settings.status() << "; it starts as it is";
  // Every commented-out default, switched on, still is a good file and changes nothing that can be
  // seen.
  std::string active;
  std::istringstream lines(SampleConfig());
  for (std::string line; std::getline(lines, line);) {
    size_t hash = line.find("# ");
    size_t colon = line.find(": ");
    bool key = hash != std::string::npos && colon != std::string::npos &&
               line.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", hash + 2) == colon;
    active += (key ? line.substr(0, hash) + line.substr(hash + 2) : line) + "\n";
  }
  auto same = Parse(active);
  ASSERT_TRUE(same.ok()) << same.status() << active;
  EXPECT_EQ(same->config.limits.max_slot.bytes, settings->config.limits.max_slot.bytes);
  EXPECT_EQ(same->config.limits.handshake_timeout.seconds,
            settings->config.limits.handshake_timeout.seconds);
  EXPECT_EQ(same->cpus, settings->cpus);
}

}  // namespace
}  // namespace feedwater::server
