// The counters that `feedwater status` shows. Each one's name and text are declared once, in the
// file that counts it:
//
//   const Registrar<CounterEntry> kCounters[] = {{"accepted", {"clients let in"}}};
#pragma once

#include <string>

#include "server/base/registry.h"

namespace feedwater::server {

struct CounterEntry {
  static constexpr absl::string_view kKind = "counter";
  std::string text;  // what is counted: a noun in the plural, and what happened to it
};

}  // namespace feedwater::server
