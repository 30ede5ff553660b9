#include "server/base/thread.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace feedwater::server {
namespace {

constexpr int kNicer = 10;
constexpr uint64_t kTurnNs = 100'000;  // the shortest that the kernel gives

// The first version of the kernel's struct sched_attr, which glibc 2.36 does not declare.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = kTurnNs;
  uint64_t deadline_ns = 0, period_ns = 0;
};
static_assert(sizeof(SchedulingAttributes) == 48);

bool Set(const SchedulingAttributes& attributes) {
  return syscall(SYS_sched_setattr, 0, &attributes, 0u) == 0;
}

}  // namespace

void RunSoonAfterWaking() {
  const int nice = getpriority(PRIO_PROCESS, 0);  // of this thread alone
  SchedulingAttributes attributes;
  attributes.nice = std::max(nice - kNicer, -20);
  if (Set(attributes)) return;
  attributes.nice = nice;
  (void)Set(attributes);
}

void StepBack() {
  SchedulingAttributes attributes;
  attributes.nice = std::min(getpriority(PRIO_PROCESS, 0) + kNicer, 19);
  attributes.runtime_ns = 0;  // turns of the usual length
  (void)Set(attributes);
}

}  // namespace feedwater::server
