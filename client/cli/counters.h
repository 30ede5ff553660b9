// The daemon's counters in words.
#pragma once

#include <cstdint>
#include <string>

namespace feedwater::cli {

// "3 sessions opened (opened)", "1 session opened (opened)"; of a name that is not known, the name.
std::string CounterText(const std::string& name, uint64_t count);

}  // namespace feedwater::cli
