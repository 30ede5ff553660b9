// A counter as `feedwater status` shows it: with the text that its owner declared.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "server/base/counters.h"

namespace feedwater::testing {

// How often it counted; 0 where it has not yet. Fails where it has no text.
template <typename Counters>
uint64_t DeclaredCount(const Counters& counters, const std::string& name) {
  EXPECT_NE(server::Registry<server::CounterEntry>::Get().Find(name), nullptr)
      << name << " has no CounterEntry";
  for (const auto& [counted, count] : counters) {
    EXPECT_NE(server::Registry<server::CounterEntry>::Get().Find(counted), nullptr) << counted;
    if (counted == name) return count;
  }
  return 0;
}

}  // namespace feedwater::testing
