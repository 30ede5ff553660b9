// A progress bar on stderr, for people who wait: drawn only when stderr is a terminal, so that logs
// and pipes stay clean. It takes its line back when it ends. Of work that takes hours, a log may
// have a plain line now and then (Elsewhere::kLines).
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
  enum class Elsewhere { kNothing, kLines };  // where stderr is no terminal
  Progress(std::string what, std::string unit, Elsewhere elsewhere = Elsewhere::kNothing);
  ~Progress() { Finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `total` 0: not known yet. `note` stands at the end of the line ("3 bad"). What was done before
  // this run (`before`) does not count for the rate.
  void Update(int64_t done, int64_t total, absl::string_view note = "", int64_t before = 0);
  // Takes the bar off the terminal. Also what to call before writing something else there; the next
  // Update draws it again.
  void Finish();

 private:
  const std::string what_, unit_;
  const bool is_terminal_, gives_lines_;
  const int64_t start_ns_;
  int64_t drawn_ns_;  // or when this began
  bool is_shown_ = false;
};

}  // namespace feedwater::cli
