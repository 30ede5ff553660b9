// Plug-ins as files: what is loaded, and every reason why one is not.
#include "server/graph/plugin_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kPlugins = FEEDWATER_BIN_DIR "/../plugins/";

class PluginFile : public ::testing::Test {
 protected:
  PluginFile() {
    char folder[] = "/tmp/feedwater-plugin-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~PluginFile() override { fs::remove_all(folder_); }

  // A copy in a folder of the test's own; `to` may be below it.
  std::string Copy(const std::string& name, const std::string& to) const {
    const std::string path = absl::StrCat(folder_, "/", to);
    fs::create_directories(fs::path(path).parent_path());
    fs::copy_file(kPlugins + name + ".so", path, fs::copy_options::overwrite_existing);
    chmod(path.c_str(), 0644);
    return path;
  }
  static std::string Refusal(const std::string& path) {
    const absl::Status status = LoadPlugin(path);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << path << ": " << status;
    return std::string(status.message());
  }
  // Of what another user's process might load.
  static std::string RefusalHere(const std::string& path) {
    const absl::Status status = LoadPlugin(path);
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << path << ": " << status;
    return std::string(status.message());
  }

  std::string folder_;
};

TEST_F(PluginFile, EveryReasonThatKeepsOneOutIsSaid) {
  const std::string missing = folder_ + "/missing.so";
  EXPECT_EQ(Refusal(missing), missing + ": No such file or directory (errno 2)");
  EXPECT_EQ(Refusal(folder_), folder_ + " is no file");
  const std::string text = folder_ + "/text.so";
  std::ofstream(text) << "no library";
  EXPECT_EQ(Refusal(text), text + " is no shared library: it does not begin as one");
  std::ofstream(text) << "\177ELF and no more";
  EXPECT_THAT(Refusal(text), HasSubstr(text + " cannot be loaded: "));
  const std::string fifo = folder_ + "/fifo.so";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(Refusal(fifo), fifo + " is no file");

  const auto refusal = [&](const std::string& name) {
    const std::string path = Copy(name, name + ".so"), said = Refusal(path);
    EXPECT_THAT(said, ::testing::StartsWith(path));
    return said.substr(path.size());
  };
  EXPECT_THAT(refusal("no_symbol"), HasSubstr(" has no symbol feedwater_plugin: "));
  EXPECT_THAT(refusal("other_abi"),
              HasSubstr(" was built for version 7 of the plug-in interface, and this Feedwater has "
                        "version 1; cure: build it against"));
  EXPECT_EQ(refusal("taken"),
            " offers op 'resize', but there is a built-in one of that name already; cure: rename "
            "it");
  EXPECT_THAT(refusal("bad_default"), HasSubstr(" op 'crash_on': parameter 'value': its default"));
  EXPECT_EQ(refusal("start_fails"), " cannot start: there is no table");
  EXPECT_THAT(LoadedPlugins(), IsEmpty());
  EXPECT_EQ(Registry<OpEntry>::Get().Find("crash_on"), nullptr);
}

TEST_F(PluginFile, OneThatOthersCouldWriteIsRefusedWithTheCure) {
  const std::string path = Copy("good", "below/good.so");
  const std::string below = folder_ + "/below";
  for (const mode_t mode : {0664, 0646, 0777}) {
    chmod(path.c_str(), mode);
    EXPECT_THAT(Refusal(path), HasSubstr(absl::StrCat(path, " is writable by ",
                                                      (mode & 2) != 0 ? "all" : "its group")));
    EXPECT_THAT(Refusal(path), HasSubstr("cure: chmod go-w " + path));
  }
  chmod(path.c_str(), 0644);
  chmod(below.c_str(), 0775);
  EXPECT_THAT(Refusal(path), HasSubstr(below + " is writable by its group"));
  chmod(below.c_str(), 0755);
  // Through a link, what it leads to counts.
  chmod(path.c_str(), 0666);
  fs::create_symlink(path, folder_ + "/link.so");
  EXPECT_THAT(Refusal(folder_ + "/link.so"), HasSubstr(path + " is writable by all"));
  chmod(path.c_str(), 0644);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 52001, 0), 0);
    EXPECT_THAT(RefusalHere(path), HasSubstr(path + " belongs to user 52001"));
    ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
    ASSERT_EQ(chown(below.c_str(), 52001, 0), 0);
    EXPECT_THAT(RefusalHere(path), HasSubstr(below + " belongs to user 52001"));
  }
}

// In a process of its own, for what is loaded stays.
TEST_F(PluginFile, AGoodOneIsLoadedOnceAndHandedOn) {
  const std::string path = Copy("good", "good.so"), other = Copy("good", "other.so"),
                    example = Copy("bad_example", "bad_example.so");
  EXPECT_EXIT(
      {
        const auto check = [](bool holds, int line) {
          if (!holds) _exit(line);
        };
        check(LoadPlugin(path).ok() && LoadPlugin(path).ok(), __LINE__);
        check(LoadedPlugins().size() == 1 && LoadedPlugins()[0].path == path, __LINE__);
        check(LoadedPlugins()[0].ops ==
                  std::vector<std::string>({"crash_on", "throw_on", "leave_on"}),
              __LINE__);
        const OpEntry* op = Registry<OpEntry>::Get().Find("crash_on");
        check(op != nullptr && op->plugin == path && op->version == "1", __LINE__);
        const std::string taken(LoadPlugin(other).message());
        check(taken == absl::StrCat(other, " offers op 'crash_on', but there is that of ", path,
                                    " of that name already; cure: rename it"),
              __LINE__);
        const std::vector<std::string> variables = PluginVariables();
        check(variables.size() == 1 &&
                  variables[0] ==
                      absl::StrCat("FEEDWATER_PLUGIN_0=", LoadedPlugins()[0].stamp, " ", path),
              __LINE__);
        check(ChangedPlugins().empty(), __LINE__);
        fs::rename(other, path);
        check(ChangedPlugins() == std::vector<std::string>{path}, __LINE__);
        fs::remove(path);
        check(ChangedPlugins() == std::vector<std::string>{path}, __LINE__);
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        const std::string said(LoadPlugin(example).message());
        const bool good = said.find(
                              "op 'crash_on': its example:1:14: op 'crash_on' has no "
                              "parameter 'label'") != std::string::npos;
        _exit(good ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(PluginFile, AChildTakesTheSameFileOrNone) {
  const std::string path = Copy("good", "with a space/good.so");
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  const std::string stamp = absl::StrCat(info.st_dev, ":", info.st_ino, ":", info.st_size, ":",
                                         info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec);
  const auto load = [&](const std::string& variable) {
    setenv("FEEDWATER_PLUGIN_0", variable.c_str(), 1);
    const absl::Status status = LoadPluginsOfEnvironment();
    unsetenv("FEEDWATER_PLUGIN_0");
    return status;
  };
  const absl::Status changed = load("1:2:3:4.5 " + path);
  EXPECT_EQ(changed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(changed.message(),
            path + " has changed since the daemon loaded it; cure: restart the daemon");
  EXPECT_TRUE(absl::IsInvalidArgument(load("nothing")));
  EXPECT_TRUE(LoadPluginsOfEnvironment().ok());
  EXPECT_EXIT(_exit(load(absl::StrCat(stamp, " ", path)).ok() &&
                            Registry<OpEntry>::Get().Find("crash_on") != nullptr
                        ? 0
                        : 1),
              ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace feedwater::server
