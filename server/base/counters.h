// The counters that `feedwater status` shows. Each one's name and text are declared once, in the
// file that counts it:
//
//   const Registrar<CounterEntry> kCounters[] = {{"accepted", {"clients let in"}}};
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "server/base/registry.h"

namespace feedwater::server {

struct CounterEntry {
  static constexpr absl::string_view kKind = "counter";
  std::string text;  // what is counted: a noun in the plural, and what happened to it
};

// By name, since the start.
using Counters = std::map<std::string, uint64_t>;

// Several may count under one name: the sum is shown.
inline void AddCounters(const Counters& more, Counters* sum) {
  for (const auto& [name, count] : more) (*sum)[name] += count;
}

}  // namespace feedwater::server
