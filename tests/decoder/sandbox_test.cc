// What a process in the sandbox can still do, and what ends it. Each attempt is a child of its own.
#include "server/decoder/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "server/base/sanitized.h"

namespace feedwater::server {
namespace {

constexpr int kSocket = 3, kOther = 5;

// The wait status of a child that does this in the sandbox, with a socket at 3 and an open file at
// 5. It exits with what `work` returns.
int InSandbox(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) _exit(99);
    const int file = open("/dev/null", O_RDWR);
    dup2(file, kOther + 1);
    dup2(pair[0], kOther + 2);
    dup2(pair[1], kOther + 3);
    dup2(kOther + 2, kSocket);
    dup2(kOther + 3, kSocket + 1);
    dup2(kOther + 1, kOther);
    if (!EnterSandbox(kSocket, 256 << 20).ok()) _exit(98);
    _exit(work());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

void ExpectKilled(const char* what, const std::function<void()>& call) {
  const int status = InSandbox([&] {
    call();
    return 0;
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << what << " gave " << status;
}

class Sandbox : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer's build is not confined";
  }
};

// RLIMIT_DATA counts private memory that is no stack, and nothing else.
TEST_F(Sandbox, RefusesMemoryThatItsLimitDoesNotSee) {
  constexpr int kAnonymous = MAP_ANONYMOUS, kWrite = PROT_READ | PROT_WRITE;
  ExpectKilled("shared memory",
               [] { mmap(nullptr, 1 << 20, kWrite, MAP_SHARED | kAnonymous, -1, 0); });
  ExpectKilled("shared memory, validated",
               [] { mmap(nullptr, 1 << 20, kWrite, MAP_SHARED_VALIDATE | kAnonymous, -1, 0); });
  ExpectKilled("a stack", [] {
    mmap(nullptr, 1 << 20, kWrite, MAP_PRIVATE | kAnonymous | MAP_GROWSDOWN, -1, 0);
  });
  const int status = InSandbox([] {
    int pieces = 0;  // 256 MiB are allowed
    while (pieces < 64 &&
           mmap(nullptr, 8 << 20, kWrite, MAP_PRIVATE | kAnonymous, -1, 0) != MAP_FAILED)
      ++pieces;
    return pieces;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_LE(WEXITSTATUS(status), 32);
}

TEST_F(Sandbox, LetsAProgramComputeAllocateAndSpeakOnItsSocket) {
  const int status = InSandbox([] {
    std::vector<char*> blocks;
    for (size_t bytes = 16; bytes <= (32 << 20); bytes *= 2) {
      char* const block = static_cast<char*>(malloc(bytes));
      if (block == nullptr) return 1;
      memset(block, 1, bytes);
      blocks.push_back(static_cast<char*>(realloc(block, bytes * 2)));
    }
    for (char* block : blocks) free(block);
    timespec time;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) return 2;
    if (write(kSocket, "abcd", 4) != 4) return 3;
    return 0;
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Sandbox, BoundsMemory) {
  const int status = InSandbox([] { return malloc(512u << 20) == nullptr ? 0 : 1; });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Sandbox, BoundsWhatIsOnlyRead) {
  const int status = InSandbox([] {
    constexpr size_t kLarge = size_t{64} << 30;
    void* const pages = mmap(nullptr, kLarge, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED && errno == ENOMEM ? 0 : 1;
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Sandbox, AnAbortIsSeenAsOne) {
  const int status = InSandbox([]() -> int { abort(); });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
}

TEST_F(Sandbox, SendsNoSignalButAnAborts) {
  for (const int number : {SIGSTOP, SIGTSTP, SIGKILL, SIGTERM})
    ExpectKilled("tgkill", [number] { syscall(SYS_tgkill, getpid(), gettid(), number); });
}

TEST_F(Sandbox, LeavesNoCapabilityOfARootDaemon) {
  if (geteuid() != 0) GTEST_SKIP() << "there are none to lose";
  const pid_t child = fork();
  if (child == 0) {
    BecomeAlone(kSocket);
    _exit(chroot("/") != 0 && errno == EPERM ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Sandbox, EndsWhoeverReachesForFilesNetworkProcessesOrCode) {
  ExpectKilled("open", [] { open("/etc/passwd", O_RDONLY); });
  ExpectKilled("openat2", [] { syscall(SYS_openat2, AT_FDCWD, "/", nullptr, 0); });
  ExpectKilled("stat", [] {
    struct stat info;
    syscall(SYS_newfstatat, AT_FDCWD, "/", &info, 0);
  });
  ExpectKilled("readlink", [] {
    char text[64];
    (void)!readlink("/proc/self/exe", text, sizeof(text));
  });
  ExpectKilled("unlink", [] { unlink("/nothing"); });
  ExpectKilled("socket", [] { socket(AF_INET, SOCK_STREAM, 0); });
  ExpectKilled("sendmsg", [] {
    msghdr message{};
    sendmsg(kSocket, &message, 0);
  });
  ExpectKilled("recvmsg", [] {
    msghdr message{};
    recvmsg(kSocket, &message, MSG_DONTWAIT);
  });
  ExpectKilled("fork", [] { fork(); });
  ExpectKilled("execve", [] {
    char* const none[] = {nullptr};
    execve("/bin/true", none, none);
  });
  ExpectKilled("ptrace", [] { ptrace(PTRACE_TRACEME, 0, nullptr, nullptr); });
  ExpectKilled("process_vm_readv",
               [] { syscall(SYS_process_vm_readv, getpid(), nullptr, 0, nullptr, 0, 0); });
  ExpectKilled("kill", [] { kill(1, 0); });
  ExpectKilled("tgkill of another", [] { syscall(SYS_tgkill, 1, 1, 0); });
  ExpectKilled("prctl", [] { prctl(PR_SET_DUMPABLE, 1); });
  ExpectKilled("io_uring_setup", [] { syscall(SYS_io_uring_setup, 1, nullptr); });
  ExpectKilled("bpf", [] { syscall(SYS_bpf, 0, nullptr, 0); });
  ExpectKilled("ioctl", [] { ioctl(kOther, 0); });
  ExpectKilled("memfd_create", [] { memfd_create("x", 0); });
  ExpectKilled("dup", [] { (void)!dup(kSocket); });
  ExpectKilled("write elsewhere", [] { (void)!write(kOther, "x", 1); });
  ExpectKilled("read elsewhere", [] {
    char byte;
    (void)!read(kOther, &byte, 1);
  });
  ExpectKilled("new code", [] {
    mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  });
  ExpectKilled("data made code", [] {
    void* const page =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
  });
  ExpectKilled("a file in memory", [] { mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, kOther, 0); });
}

}  // namespace
}  // namespace feedwater::server
