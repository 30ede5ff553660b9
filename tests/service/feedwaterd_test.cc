// The program itself, as systemd and people run it: exit codes, signals, readiness, socket
// activation.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/sanitized.h"
#include "tests/testing/other_users.h"
#include "tests/testing/test_images.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kProgram[] = FEEDWATER_BIN_DIR "/feedwaterd";

int UnixSocket(const std::string& path, int type, bool listening) {
  int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0) << path;
  if (listening) {
    EXPECT_EQ(listen(fd, 16), 0);
  }
  return fd;
}

class Feedwaterd : public ::testing::Test {
 protected:
  Feedwaterd() {
    char folder[] = "/tmp/feedwater-program-XXXXXX";
    folder_ = mkdtemp(folder);
    fs::create_directories(folder_ + "/pipelines");
    fs::create_directories(folder_ + "/photos");
    Write("feedwater.yaml", Config());
    notify_ = UnixSocket(folder_ + "/notify.sock", SOCK_DGRAM, false);
  }
  ~Feedwaterd() override {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(notify_);
    fs::remove_all(folder_);
  }

  static std::string Config() {
    return "version: 1\nruntime_dir: run\nstate_dir: state\npipelines: [pipelines]\nroots: "
           "{photos: photos}\ncpus: 1\n"
           "pin_cpus: false\nmemory: 256MiB\n";
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }

  // `listeners` become descriptors 3, 4, ... as systemd passes them.
  void Launch(std::vector<std::string> arguments, const std::vector<int>& listeners = {}) {
    arguments.insert(arguments.begin(), kProgram);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    for (char told[4096]; recv(notify_, told, sizeof(told), MSG_DONTWAIT) > 0;) {
    }  // by the one before, whose words would fill the queue
    pid_ = fork();
    if (pid_ != 0) return;
    int log = open((folder_ + "/log").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0644);
    dup2(log, 2);
    int out = open((folder_ + "/out").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
    dup2(out, 1);
    setenv("NOTIFY_SOCKET", (folder_ + "/notify.sock").c_str(), 1);
    setenv("WATCHDOG_USEC", "300000", 1);
    if (!listeners.empty()) {
      for (size_t i = 0; i < listeners.size(); ++i)
        fcntl(listeners[i], F_DUPFD, 100 + static_cast<int>(i));
      for (size_t i = 0; i < listeners.size(); ++i)
        dup2(100 + static_cast<int>(i), 3 + static_cast<int>(i));
      setenv("LISTEN_FDS", absl::StrCat(listeners.size()).c_str(), 1);
      setenv("LISTEN_PID", absl::StrCat(getpid()).c_str(), 1);
      // All sockets of one unit have its one FileDescriptorName=.
      setenv("LISTEN_FDNAMES", listeners.size() == 1 ? "feedwater" : "feedwater:feedwater", 1);
    }
    for (const auto& [resource, value] : limits_) {
      const rlimit limit{value, value};
      if (setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) _exit(125);
    }
    if (user_ != 0 && (setgid(user_) != 0 || setuid(user_) != 0)) _exit(126);
    execv(kProgram, argv.data());
    _exit(127);
  }
  // The exit status; -1 when it does not come in time.
  int Wait(double seconds = 20) {
    for (int i = 0; i < 100 * seconds; ++i) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return -1;
  }
  int Run(std::vector<std::string> arguments) {
    Launch(std::move(arguments));
    return Wait();
  }
  // Whether a message to systemd with this line comes; others before it are passed over.
  bool Notified(const std::string& line) {
    for (;;) {
      pollfd readable{notify_, POLLIN, 0};
      if (poll(&readable, 1, 20'000) != 1) return false;
      char buffer[4096];
      ssize_t size = recv(notify_, buffer, sizeof(buffer), 0);
      if (size > 0 && absl::StrCat("\n", std::string(buffer, static_cast<size_t>(size)), "\n")
                              .find("\n" + line) != std::string::npos) {
        return true;
      }
    }
  }
  std::string Text(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::string config() const { return folder_ + "/feedwater.yaml"; }

  std::string folder_;
  int notify_ = -1;
  pid_t pid_ = -1;
  uid_t user_ = 0;                              // not 0: Launch becomes this one
  std::vector<std::pair<int, rlim_t>> limits_;  // that Launch sets
};

TEST_F(Feedwaterd, ABadConfigurationEndsItWithTwoAndAPlace) {
  Write("feedwater.yaml", Config() + "colour: red\n");
  EXPECT_EQ(Run({"--config", config()}), 2);
  EXPECT_THAT(Text("log"), HasSubstr(config() + ":9:1: "));
  EXPECT_EQ(Run({"--config", folder_ + "/nowhere.yaml"}), 2);
  EXPECT_EQ(Run({"--config", config(), "--check"}), 2);
}

TEST_F(Feedwaterd, WrongUsageEndsItWithTwo) {
  EXPECT_EQ(Run({}), 2);
  EXPECT_EQ(Run({"--no-such-option"}), 2);
  EXPECT_EQ(Run({"--config", config(), "--log-level", "loud", "--check"}), 2);
  EXPECT_EQ(Run({"--config", config(), "--numa-node", "977", "--check"}), 2);
  EXPECT_THAT(Text("log"), HasSubstr("--set numa_node: "));
}

TEST_F(Feedwaterd, TellsItsVersionAndItsConfiguration) {
  EXPECT_EQ(Run({"--version"}), 0);
  EXPECT_THAT(Text("out"), HasSubstr("feedwaterd "));
  EXPECT_EQ(Run({"--help"}), 0);
  EXPECT_THAT(Text("out"), HasSubstr("--check"));
  EXPECT_EQ(Run({"--print-config"}), 0);
  EXPECT_THAT(Text("out"), HasSubstr("version: 1"));
}

TEST_F(Feedwaterd, EndsWithTheLastThatHoldsItsLifelineAndLeavesNothing) {
  const std::string lifeline = folder_ + "/lifeline";
  ASSERT_EQ(mkfifo(lifeline.c_str(), 0600), 0);
  EXPECT_EQ(open(lifeline.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC), -1) << "no daemon";
  const int first = open(lifeline.c_str(), O_RDWR | O_CLOEXEC);
  Launch({"--config", config(), "--lifeline", lifeline});
  ASSERT_TRUE(Notified("READY=1")) << Text("log");
  const int second = open(lifeline.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(second, 0);
  EXPECT_EQ(write(second, "noise", 5), 5) << "means nothing";
  close(first);
  EXPECT_EQ(Wait(0.3), -1) << "one holds it still";
  pollfd other_end{second, 0, 0};
  EXPECT_EQ(poll(&other_end, 1, 0), 0);
  close(second);
  EXPECT_EQ(Wait(), 0) << Text("log");
  EXPECT_FALSE(fs::exists(lifeline));
  EXPECT_FALSE(fs::exists(config()));
  EXPECT_FALSE(fs::exists(folder_ + "/run"));
  EXPECT_TRUE(fs::exists(folder_ + "/state"));
}

TEST_F(Feedwaterd, EndsAtOnceWhereNobodyHoldsItsLifeline) {
  const std::string lifeline = folder_ + "/lifeline";
  EXPECT_EQ(Run({"--config", config(), "--lifeline", lifeline}), 1) << "there is none";
  Write("lifeline", "");
  EXPECT_EQ(Run({"--config", config(), "--lifeline", lifeline}), 1) << "it is a file";
  fs::remove(lifeline);
  ASSERT_EQ(mkfifo(lifeline.c_str(), 0600), 0);
  EXPECT_EQ(Run({"--config", config(), "--lifeline", lifeline}), 0) << Text("log");
  EXPECT_FALSE(fs::exists(folder_ + "/run"));
}

TEST_F(Feedwaterd, InTheBackgroundItsCommandEndsWhenItServesOrWithItsStatus) {
  EXPECT_EQ(Run({"--config", config(), "--background", "--set", "colour=red"}), 2);
  const std::string lifeline = folder_ + "/lifeline";
  ASSERT_EQ(mkfifo(lifeline.c_str(), 0600), 0);
  const int held = open(lifeline.c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(Run({"--config", config(), "--background", "--lifeline", lifeline}), 0) << Text("log");
  EXPECT_TRUE(fs::exists(folder_ + "/run/control.sock")) << "it serves";
  close(held);
  for (int i = 0; i < 2'000 && fs::exists(folder_ + "/run"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(fs::exists(folder_ + "/run")) << Text("log");
}

TEST_F(Feedwaterd, CheckLooksAtThePipelinesToo) {
  EXPECT_EQ(Run({"--config", config(), "--check"}), 0) << Text("log");
  Write("pipelines/broken.yaml", "version: 1\noutputs: [image]\n");
  EXPECT_EQ(Run({"--config", config(), "--check"}), 2);
  EXPECT_THAT(Text("log"), HasSubstr("broken.yaml:1:1: "));
  Write("pipelines/broken.yaml",
        "version: 1\ndataset: {format: image_folder, root: elsewhere, path: x}\ngraph: [{decode: "
        "{in: data, out: image}}, "
        "{resize: {in: image, size: [8, 8]}}]\noutputs: [image]\n");
  EXPECT_EQ(Run({"--config", config(), "--check"}), 2);
  EXPECT_THAT(Text("log"), HasSubstr("broken.yaml:2:"));
  EXPECT_FALSE(fs::exists(folder_ + "/run")) << "checking starts nothing";
}

TEST_F(Feedwaterd, CheckSeesAFileInAFoldersPlaceAndABatchThatNoSlotHolds) {
  Write("occupied", "");
  for (const char* setting :
       {"state_dir=occupied", "state_dir=occupied/below", "runtime_dir=occupied"}) {
    const std::string at = absl::StrCat(folder_, "/");
    std::string absolute(setting);
    absolute.insert(absolute.find('=') + 1, at);
    EXPECT_EQ(Run({"--config", config(), "--check", "--set", absolute}), 2) << setting;
    EXPECT_THAT(Text("log"), HasSubstr(at + "occupied is not a folder"));
  }
  Write("pipelines/large.yaml",
        "version: 1\ndataset: {format: image_folder, root: photos}\ngraph: [{decode: {in: data, "
        "out: image}}, {resize: {in: image, size: [100, 100]}}]\noutputs: [image]\n"
        "batch: {size: 20000}\n");
  EXPECT_EQ(Run({"--config", config(), "--check"}), 2) << "600 MB of 256 MiB";
  EXPECT_THAT(Text("log"), HasSubstr("pipeline large, batch.size 20000: a slot of 572.2 MiB"));
  EXPECT_EQ(Run({"--config", config(), "--check", "--set", "limits.max_slot=1MiB"}), 2);
}

TEST_F(Feedwaterd, ANameInAccessCannotWriteToTheTerminal) {
  Write("feedwater.yaml", Config() + "access: {users: [\"a\\e]0;title\\a\\nb\"]}\n");
  EXPECT_EQ(Run({"--config", config()}), 2);
  EXPECT_THAT(Text("log"), HasSubstr("there is no user 'a\\x1b]0;title\\x07\\x0ab'"));
}

// gRPC aborts where it is refused a thread or a descriptor; so the start looks before.
TEST_F(Feedwaterd, TooFewDescriptorsForTheStartEndItWithAReason) {
  for (rlim_t files : {14, 20, 28}) {
    limits_ = {{RLIMIT_NOFILE, files}};
    EXPECT_EQ(Run({"--config", config()}), 1) << Text("log");
    EXPECT_THAT(Text("log"), HasSubstr("LimitNOFILE"));
  }
}

TEST_F(Feedwaterd, TooFewAddressesForTheStartDoNotEndItByASignal) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes all addresses there are";
  for (rlim_t mebibytes : {200, 300, 350, 400, 450, 500, 600}) {
    limits_ = {{RLIMIT_AS, mebibytes << 20}};
    Write("log", "");
    Launch({"--config", config()});
    int status = -1;
    for (int i = 0; i < 400 && (status = Wait(/*seconds=*/0.05)) < 0; ++i) {
      if (Text("log").find("serving at") != std::string::npos) kill(pid_, SIGTERM);
    }
    EXPECT_GE(status, 0) << mebibytes;
    EXPECT_LT(status, 128) << mebibytes << " MiB, died of a signal: " << Text("log");
  }
}

TEST_F(Feedwaterd, TooFewThreadsForTheStartEndItWithAReason) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own thread may be the one that is refused";
  if (!::feedwater::testing::CanBe(52001, {kProgram}))
    GTEST_SKIP() << "needs root, which is not bounded, to become another user";
  user_ = 52001;
  for (const char* name : {"", "/pipelines", "/photos", "/notify.sock"})
    ASSERT_EQ(chown((folder_ + name).c_str(), user_, user_), 0);
  limits_ = {{RLIMIT_NPROC, 8}};
  EXPECT_EQ(Run({"--config", config()}), 1) << Text("log");
  EXPECT_THAT(Text("log"), HasSubstr("no thread for the daemon's start"));
}

TEST_F(Feedwaterd, IsReadyOnlyWhenItServesAndDrainsOnSigterm) {
  Launch({"--config", config()});
  ASSERT_TRUE(Notified("READY=1")) << Text("log");
  EXPECT_TRUE(fs::is_socket(folder_ + "/run/control.sock"));
  EXPECT_TRUE(fs::is_socket(folder_ + "/run/data.sock"));
  EXPECT_TRUE(Notified("WATCHDOG=1"));
  kill(pid_, SIGTERM);
  EXPECT_TRUE(Notified("STOPPING=1"));
  EXPECT_EQ(Wait(), 0) << Text("log");
  EXPECT_FALSE(fs::exists(folder_ + "/run/control.sock"));
  EXPECT_FALSE(fs::exists(folder_ + "/run/data.sock"));
}

TEST_F(Feedwaterd, SighupReadsTheConfigurationAgainAndABadOneChangesNothing) {
  Launch({"--config", config()});
  ASSERT_TRUE(Notified("READY=1")) << Text("log");
  const std::string bad[] = {"",
                             "version: 2\n",
                             Config() + "cpus: 3\n",
                             Config() + "x: &a [*a]\n",
                             std::string(1 << 20, '['),
                             "version: 1\npipelines: [nowhere]\nroots: {}\n"};
  for (const std::string& text : bad) {
    Write("feedwater.yaml", text);
    kill(pid_, SIGHUP);
    ASSERT_TRUE(Notified("RELOADING=1"));
    ASSERT_TRUE(Notified("READY=1"));
  }
  EXPECT_THAT(Text("log"), HasSubstr("the configuration stays as it was"));
  EXPECT_EQ(Text("log").find("reloaded;"), std::string::npos);
  Write("feedwater.yaml", Config() + "limits: {sessions_per_uid: 3}\n");
  kill(pid_, SIGHUP);
  ASSERT_TRUE(Notified("RELOADING=1"));
  ASSERT_TRUE(Notified("READY=1"));
  EXPECT_THAT(Text("log"), HasSubstr("reloaded;"));
  EXPECT_THAT(Text("log"), HasSubstr("limits.sessions_per_uid"));
  kill(pid_, SIGINT);
  EXPECT_EQ(Wait(), 0) << Text("log");
}

// Every signal that somebody else may have the kernel send, and those that nobody here waits for.
// The table of server/README.md says what the others do.
TEST_F(Feedwaterd, NoSignalThatItDoesNotWaitForEndsIt) {
  Launch({"--config", config()});
  ASSERT_TRUE(Notified("READY=1")) << Text("log");
  std::vector<int> signals = {SIGPIPE,  SIGXFSZ, SIGIO,   SIGURG,    SIGUSR1, SIGUSR2,
                              SIGALRM,  SIGPROF, SIGPWR,  SIGVTALRM, SIGCHLD, SIGSTKFLT,
                              SIGWINCH, SIGTTIN, SIGTTOU, SIGCONT};
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) signals.push_back(signal);
  for (int signal : signals) ASSERT_EQ(kill(pid_, signal), 0) << signal;
  for (const auto& task : fs::directory_iterator(absl::StrCat("/proc/", pid_, "/task"))) {
    const int thread = std::stoi(task.path().filename());
    for (int signal : signals) syscall(SYS_tgkill, pid_, thread, signal);
  }
  kill(pid_, SIGHUP);
  EXPECT_TRUE(Notified("RELOADING=1")) << "it goes on: " << Text("log");
  EXPECT_TRUE(Notified("READY=1"));
  kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0) << Text("log");
}

TEST_F(Feedwaterd, ASecondOneInTheSameFolderEndsWithOneAndNamesTheFirst) {
  Launch({"--config", config()});
  ASSERT_TRUE(Notified("READY=1")) << Text("log");
  const pid_t first = pid_;
  EXPECT_EQ(Run({"--config", config()}), 1);
  EXPECT_THAT(Text("log"), HasSubstr(absl::StrCat("pid ", first)));
  pid_ = first;
}

TEST_F(Feedwaterd, ServesOnTheSocketsThatSystemdOpened) {
  fs::create_directory(folder_ + "/sockets");
  const std::string control = folder_ + "/sockets/control.sock",
                    data = folder_ + "/sockets/data.sock";
  int fds[] = {UnixSocket(control, SOCK_STREAM, true), UnixSocket(data, SOCK_SEQPACKET, true)};
  Launch({"--config", config()}, {fds[0], fds[1]});
  close(fds[0]);
  close(fds[1]);
  ASSERT_TRUE(Notified("READY=1")) << Text("log");
  EXPECT_THAT(Text("log"), HasSubstr("not " + folder_ + "/run/control.sock, where clients look"));
  EXPECT_FALSE(fs::exists(folder_ + "/run/control.sock"));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  control.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
  EXPECT_GT(send(fd, kPreface, sizeof(kPreface) - 1, MSG_NOSIGNAL), 0);
  char answer[16];
  EXPECT_GT(recv(fd, answer, sizeof(answer), 0), 0);
  close(fd);
  kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0) << Text("log");
  EXPECT_TRUE(fs::exists(control)) << "systemd's sockets stay, so that clients can wait in them";
}

TEST_F(Feedwaterd, LeavesTheModesOfSystemdsSocketsAloneWhenItReloads) {
  fs::create_directory(folder_ + "/run");
  const std::string control = folder_ + "/run/control.sock", data = folder_ + "/run/data.sock";
  int fds[] = {UnixSocket(data, SOCK_SEQPACKET, true), UnixSocket(control, SOCK_STREAM, true)};
  for (const std::string& path : {control, data}) fs::permissions(path, fs::perms(0640));
  Launch({"--config", config()}, {fds[0], fds[1]});
  close(fds[0]);
  close(fds[1]);
  ASSERT_TRUE(Notified("READY=1")) << Text("log");
  kill(pid_, SIGHUP);
  ASSERT_TRUE(Notified("RELOADING=1"));
  ASSERT_TRUE(Notified("READY=1"));
  EXPECT_THAT(Text("log"), HasSubstr("reloaded;"));
  for (const std::string& path : {control, data})
    EXPECT_EQ(fs::status(path).permissions(), fs::perms(0640));
  EXPECT_EQ(Text("log").find("where clients look"), std::string::npos);
  kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0) << Text("log");
}

TEST_F(Feedwaterd, RefusesSocketsThatAreNotTheTwo) {
  const std::string path = folder_ + "/some.sock";
  int fd = UnixSocket(path, SOCK_STREAM, true);
  Launch({"--config", config()}, {fd});
  EXPECT_EQ(Wait(), 1);
  EXPECT_THAT(Text("log"), HasSubstr("passed only the control socket"));
  Launch({"--config", config()}, {fd, fd});
  EXPECT_EQ(Wait(), 1);
  EXPECT_THAT(Text("log"), HasSubstr("neither the control (ListenStream) nor the data socket"));
  close(fd);
}

TEST_F(Feedwaterd, LogsOneJsonObjectALineOnRequest) {
  Launch({"--config", config(), "--log-format", "json"});
  ASSERT_TRUE(Notified("READY=1")) << Text("log");
  kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0);
  std::istringstream lines(Text("log"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(line.substr(0, 1), "{") << line;
    EXPECT_EQ(line.substr(line.size() - 1), "}") << line;
  }
  EXPECT_GT(count, 3);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(Feedwaterd, OtherProcessesOfItsUserMayNotReadItsMemory) {
  if (geteuid() == 0) {  // an ordinary user, whose processes could attach to each other otherwise
    user_ = 52001;
    if (!::feedwater::testing::CanBe(user_, {kProgram}))
      GTEST_SKIP() << ::feedwater::testing::kNoOtherUsers;
    for (const char* name : {"", "/pipelines", "/photos", "/notify.sock"}) {
      ASSERT_EQ(chown((folder_ + name).c_str(), user_, user_), 0);
    }
  }
  Launch({"--config", config()});
  ASSERT_TRUE(Notified("READY=1")) << Text("log");
  struct stat info {};
  ASSERT_EQ(stat(absl::StrCat("/proc/", pid_, "/mem").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 0u) << "the kernel gives what may not be attached to to root";
  kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0) << Text("log");
}
#endif

}  // namespace
}  // namespace feedwater::server
