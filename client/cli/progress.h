// A progress bar on stderr, for people who wait: drawn only when stderr is a terminal, so that logs
// and pipes stay clean. It takes its line back when it ends.
//
//   Progress progress("verify", "records");
//   while (...) progress.Update(done, total);   // cheap; draws ten times a second
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace feedwater::cli {

class Progress {
 public:
  Progress(std::string what, std::string unit);
  ~Progress() { Finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `total` 0: not known yet. `note` stands at the end of the line ("3 bad").
  void Update(int64_t done, int64_t total, absl::string_view note = "");
  // Takes the bar off the terminal. Also what to call before writing something else there; the next
  // Update draws it again.
  void Finish();

 private:
  const std::string what_, unit_;
  const bool is_terminal_;
  const int64_t start_ns_;
  int64_t drawn_ns_ = 0;
  bool is_shown_ = false;
};

}  // namespace feedwater::cli
