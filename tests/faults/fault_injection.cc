#include "tests/faults/fault_injection.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace feedwater::faults {
namespace {

constexpr int kRules = 8;

// The file that the test maps too. The rules' text follows.
struct Board {
  std::atomic<uint32_t> generation;     // the test adds 1 when it has written rules
  std::atomic<uint32_t> taken_up;       // the generation that the calls obey
  std::atomic<uint32_t> acted[kRules];  // by rule
  uint32_t text_bytes;
  char text[4000];
};

Board* board = nullptr;
Rule rules[kRules];
std::atomic<int> rule_count{0};
std::atomic_flag parsing = ATOMIC_FLAG_INIT;

void ParsePair(Rule* rule, const char* key, const char* value) {
  const long number = strtol(value, nullptr, 0);
  if (strcmp(key, "errno") == 0) rule->error = number;
  if (strcmp(key, "short") == 0) rule->short_bytes = number;
  if (strcmp(key, "skip") == 0) rule->skip = number;
  if (strcmp(key, "count") == 0) rule->count = number;
  if (strcmp(key, "delay_ms") == 0) rule->delay_ms = number;
  if (strcmp(key, "step_s") == 0) rule->step_s = number;
  if (strcmp(key, "arg") == 0) rule->arg = number;
  if (strcmp(key, "every") == 0) rule->every = number;
  if (strcmp(key, "path") == 0) snprintf(rule->path, kText, "%s", value);
  if (strcmp(key, "thread") == 0) snprintf(rule->thread, kText, "%s", value);
  if (strcmp(key, "after") == 0) snprintf(rule->after, kCallName, "%s", value);
  if (strcmp(key, "caller") == 0) snprintf(rule->caller, kText, "%s", value);
}

// Takes up the rules if the test has written new ones.
void TakeUp() {
  const uint32_t generation = board->generation.load(std::memory_order_acquire);
  if (generation == board->taken_up.load(std::memory_order_acquire)) return;
  while (parsing.test_and_set(std::memory_order_acquire)) sched_yield();
  if (generation != board->taken_up.load(std::memory_order_relaxed)) {
    rule_count.store(0);
    int count = 0;
    char text[sizeof(board->text) + 1] = {};
    memcpy(text, board->text, board->text_bytes);
    char *rest = nullptr, *line = strtok_r(text, "\n", &rest);
    for (; line != nullptr && count < kRules; line = strtok_r(nullptr, "\n", &rest)) {
      Rule* rule = &rules[count];
      memset(static_cast<void*>(rule), 0, sizeof(*rule));
      rule->short_bytes = rule->arg = -1;
      rule->count = 1;
      char *more = nullptr, *word = strtok_r(line, " ", &more);
      if (word == nullptr) continue;
      snprintf(rule->call, kCallName, "%s", word);
      snprintf(rule->caller, kText, "feedwaterd");
      while ((word = strtok_r(nullptr, " ", &more)) != nullptr) {
        char* equals = strchr(word, '=');
        if (equals == nullptr) continue;
        *equals = '\0';
        ParsePair(rule, word, equals + 1);
      }
      board->acted[count++].store(0);
    }
    rule_count.store(count, std::memory_order_release);
    board->taken_up.store(generation, std::memory_order_release);
  }
  parsing.clear(std::memory_order_release);
}

__attribute__((constructor)) void Start() {
  const char* path = getenv("FEEDWATER_FAULT_PLAN");
  if (path == nullptr) return;
  const long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* memory = reinterpret_cast<void*>(
      syscall(SYS_mmap, nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  syscall(SYS_close, fd);
  if (memory == MAP_FAILED) return;
  board = static_cast<Board*>(memory);
}

bool CallerHas(const Rule& rule, const void* caller) {
  if (caller == nullptr || strcmp(rule.caller, "any") == 0) return true;
  Dl_info info;
  const bool found = dladdr(const_cast<void*>(caller), &info) != 0;
  if (!found || info.dli_fname == nullptr) return false;
  const char* slash = strrchr(info.dli_fname, '/');
  const char* name = slash == nullptr ? info.dli_fname : slash + 1;
  return strncmp(name, rule.caller, strlen(rule.caller)) == 0;
}

bool PathHas(const Rule& rule, int fd, const char* path) {
  if (rule.path[0] == '\0') return true;
  char name[32], target[4096];
  if (path == nullptr && fd >= 0) {
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    const long size = syscall(SYS_readlink, name, target, sizeof(target) - 1);
    if (size < 0) return false;
    target[size] = '\0';
    path = target;
  }
  return path != nullptr && strstr(path, rule.path) != nullptr;
}

bool ThreadHas(const Rule& rule) {
  if (rule.thread[0] == '\0') return true;
  char name[32] = {};
  prctl(PR_GET_NAME, name);
  return strncmp(name, rule.thread, strlen(rule.thread)) == 0;
}

}  // namespace

constinit thread_local int inside = 0;

const Rule* Hit(const Call& call) {
  if (board == nullptr || inside > 0) return nullptr;
  TakeUp();
  const int count = rule_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    Rule& rule = rules[i];
    if (strcmp(rule.after, call.name) == 0) rule.begun.store(true);
    if (strcmp(rule.call, call.name) != 0 || (rule.after[0] != '\0' && !rule.begun.load()))
      continue;
    if (rule.arg >= 0 && rule.arg != call.arg) continue;
    const int error = errno;
    ++inside;
    const bool meant =
        CallerHas(rule, call.caller) && ThreadHas(rule) && PathHas(rule, call.fd, call.path);
    --inside;
    errno = error;
    if (!meant) continue;
    const long number = rule.seen.fetch_add(1);
    if (number < rule.skip) continue;
    if (rule.every > 0 && (number - rule.skip) % rule.every != 0) continue;
    if (rule.count > 0 && number - rule.skip >= rule.count) continue;
    board->acted[i].fetch_add(1);
    if (rule.delay_ms > 0) {
      const timespec time{rule.delay_ms / 1000, rule.delay_ms % 1000 * 1'000'000};
      ++inside;
      syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, nullptr);
      --inside;
    }
    return &rule;
  }
  return nullptr;
}

bool Fails(const Rule* rule) {
  if (rule == nullptr || rule->error == 0) return false;
  errno = static_cast<int>(rule->error);
  return true;
}

size_t Shortened(const Rule* rule, size_t bytes) {
  if (rule == nullptr || rule->short_bytes < 0) return bytes;
  return static_cast<size_t>(rule->short_bytes) < bytes ? static_cast<size_t>(rule->short_bytes)
                                                        : bytes;
}

}  // namespace feedwater::faults
