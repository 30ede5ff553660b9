// Threads that others wait for.
#include "server/base/thread.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace feedwater::server {
namespace {

struct Attributes {  // the kernel's sched_attr, first version
  uint32_t size = 0, policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0, deadline = 0, period = 0;
};

Attributes OfThisThread() {
  Attributes attributes;
  EXPECT_EQ(syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0u), 0);
  return attributes;
}

TEST(Thread, OneThatOthersWaitForGetsShortTurnsAndStaysOrdinary) {
  const Attributes ours = OfThisThread();
  Attributes its;
  auto thread = StartThread("a test", [&] {
    RunSoonAfterWaking();
    RunSoonAfterWaking();  // a second time does no harm
    its = OfThisThread();
  });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->join();
  EXPECT_EQ(its.policy, static_cast<uint32_t>(SCHED_OTHER));
  EXPECT_LE(its.nice, ours.nice);
  EXPECT_GE(its.nice, -20);
  if (ours.runtime > 0) {  // since Linux 6.12
    EXPECT_EQ(its.runtime, 100'000u);
  }
  const Attributes after = OfThisThread();
  EXPECT_EQ(after.nice, ours.nice) << "only the calling thread is meant";
  EXPECT_EQ(after.runtime, ours.runtime);
}

}  // namespace
}  // namespace feedwater::server
