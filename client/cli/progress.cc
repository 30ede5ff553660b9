#include "client/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/clock.h"
#include "server/base/units.h"

namespace feedwater::cli {
namespace {

constexpr int64_t kDrawEveryNs = 100'000'000, kLineEveryNs = 10'000'000'000;
constexpr int kBarCells = 24, kDefaultColumns = 80;

bool StderrTakesABar() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && (term == nullptr || absl::string_view(term) != "dumb");
}

size_t Columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultColumns;
  return size.ws_col;
}

std::string Bar(double share) {
  const int full = static_cast<int>(share * kBarCells);
  return absl::StrCat("[", std::string(full, '#'), std::string(kBarCells - full, '.'), "]");
}

}  // namespace

Progress::Progress(std::string what, std::string unit, Elsewhere elsewhere)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      is_terminal_(StderrTakesABar()),
      gives_lines_(!is_terminal_ && elsewhere == Elsewhere::kLines),
      start_ns_(server::MonotonicNs()),
      drawn_ns_(start_ns_) {}

void Progress::Update(int64_t done, int64_t total, absl::string_view note, int64_t before) {
  if (!is_terminal_ && !gives_lines_) return;
  const int64_t now = server::MonotonicNs();
  if (is_shown_ && now - drawn_ns_ < kDrawEveryNs && done < total) return;
  if (gives_lines_ && now - drawn_ns_ < kLineEveryNs) return;
  drawn_ns_ = now;
  is_shown_ = is_terminal_;
  const double elapsed_s = static_cast<double>(now - start_ns_) * 1e-9;
  const double rate = elapsed_s > 0 ? static_cast<double>(done - before) / elapsed_s : 0;
  std::string line = what_;
  if (total > 0) {
    const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0., 1.);
    absl::StrAppend(&line, gives_lines_ ? ":" : absl::StrCat(" ", Bar(share)),
                    absl::StrFormat(" %3.0f %%", 100 * share), "  ", done, " of ", total, " ",
                    unit_);
  } else {
    absl::StrAppend(&line, "  ", done, " ", unit_);
  }
  absl::StrAppendFormat(&line, ", %.0f/s", rate);
  if (total > done && rate > 0) {
    absl::StrAppend(&line, ", ", server::FormatSeconds(static_cast<double>(total - done) / rate),
                    " left");
  }
  if (!note.empty()) absl::StrAppend(&line, ", ", note);
  if (gives_lines_) {
    std::cerr << line << std::endl;
    return;
  }
  const size_t columns = Columns();
  if (line.size() >= columns)
    line.resize(columns - 1);  // a line that wraps could not be taken back
  std::cerr << "\r\033[K" << line << std::flush;
}

void Progress::Finish() {
  if (std::exchange(is_shown_, false)) std::cerr << "\r\033[K" << std::flush;
}

}  // namespace feedwater::cli
