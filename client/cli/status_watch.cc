#include "client/cli/status_watch.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <map>
#include <sstream>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/cli/json_text.h"
#include "client/cli/status_document.h"
#include "client/cli/text.h"
#include "client/cpp/address.h"
#include "server/base/clock.h"
#include "server/base/escape.h"
#include "server/base/units.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;

// Slots are looked at so many times between two views: one look says little about what a rank waits
// for.
constexpr int kLooks = 10;

volatile std::sig_atomic_t g_stop = 0;
void Stop(int) { g_stop = 1; }

using JobKey = std::tuple<uint32_t, std::string, std::string>;
JobKey KeyOf(const v1::Job& job) { return {job.owner_uid(), job.job(), job.pipeline()}; }

// What was seen of a rank's slots since the last view.
struct SlotLooks {
  int looks = 0, empty = 0;
};

// The daemon at one moment, and what happened since the moment before.
struct View {
  v1::GetStatusResponse status, last;
  double seconds = 0;
  std::map<JobKey, v1::Job> before;
  std::map<std::pair<JobKey, int64_t>, SlotLooks> looks;
};

struct JobRates {
  double samples_per_s = 0, batches_per_s = 0, bytes_per_s = 0;
  std::string waits_for;
  std::vector<double> rank_waits;  // share of the looks at which the rank had no batch
};

JobRates RatesOf(const View& view, const v1::Job& job) {
  JobRates rates;
  double waits = 0;
  for (const v1::Rank& rank : job.ranks()) {
    const auto found = view.looks.find({KeyOf(job), rank.rank()});
    const SlotLooks looks = found == view.looks.end() ? SlotLooks{} : found->second;
    rates.rank_waits.push_back(looks.looks == 0 ? 0
                                                : static_cast<double>(looks.empty) / looks.looks);
    waits = std::max(waits, rates.rank_waits.back());
  }
  const auto found = view.before.find(KeyOf(job));
  if (found == view.before.end() || view.seconds <= 0) {
    rates.waits_for = "Just started.";
    return rates;
  }
  const v1::Job& before = found->second;
  const auto rate = [&](uint64_t from, uint64_t to) {
    return to < from ? 0 : static_cast<double>(to - from) / view.seconds;
  };
  rates.samples_per_s = rate(before.samples(), job.samples());
  rates.batches_per_s = rate(before.batches(), job.batches());
  rates.bytes_per_s = rate(before.bytes_read(), job.bytes_read());
  rates.waits_for =
      rates.batches_per_s == 0 && waits == 0
          ? "The trainer takes no batches at the moment; all its slots are full."
          : Bottleneck(StagesBetween(before, job), std::max(0.0, job.cpu_s() - before.cpu_s()),
                       view.seconds, view.status.cpus_size(), waits, job.cache(),
                       BusyProvider(view.last, view.status, job, view.seconds));
  return rates;
}

std::string SlotBar(const v1::Rank& rank) {
  const uint32_t full = std::min(rank.slots(), rank.slots_lent());
  return absl::StrCat("[", std::string(full, '#'), std::string(rank.slots() - full, '.'), "]");
}

std::string Text(const View& view) {
  std::ostringstream out;
  const v1::GetStatusResponse& status = view.status;
  out << Bold("feedwaterd " + status.version()) << "  " << server::Escaped(status.runtime_dir())
      << "  up " << server::FormatSeconds(status.uptime_s()) << "  " << status.workers_active()
      << " of " << status.cpus_size() << " workers busy  resident "
      << server::FormatBytes(status.memory_resident_bytes()) << "\n";
  if (status.jobs().empty()) out << "no jobs\n";
  for (const v1::Job& job : status.jobs()) {
    const JobRates rates = RatesOf(view, job);
    out << "\n"
        << Bold(server::Escaped(job.job())) << "  " << server::Escaped(job.pipeline())
        << absl::StrFormat("  %.0f samples/s  %.1f batches/s  reads %s/s  bad %d\n",
                           rates.samples_per_s, rates.batches_per_s,
                           server::FormatBytes(static_cast<int64_t>(rates.bytes_per_s)),
                           job.bad_samples());
    for (int i = 0; i < job.ranks_size(); ++i) {
      const v1::Rank& rank = job.ranks(i);
      out << absl::StrFormat("  rank %-4d epoch %-4d step %-7d slots %s  waits for data %3.0f %%\n",
                             rank.rank(), rank.epoch(), rank.step(), SlotBar(rank),
                             100 * rates.rank_waits[i]);
    }
    out << Wrapped(rates.waits_for, 2);
  }
  out << NotListedText(status);
  if (isatty(STDIN_FILENO) != 0) out << "\nq ends\n";
  return out.str();
}

// For pipes and logs: nothing is taken back, so every line says all.
std::string Lines(const View& view) {
  if (view.status.jobs().empty()) return "no jobs\n" + NotListedText(view.status);
  std::string out;
  for (const v1::Job& job : view.status.jobs()) {
    const JobRates rates = RatesOf(view, job);
    absl::StrAppendFormat(
        &out, "%s %s epoch %d step %d: %.0f samples/s, %.1f batches/s, %s/s read, %d bad; %s\n",
        server::Escaped(job.job()), server::Escaped(job.pipeline()), job.epoch(), job.step(),
        rates.samples_per_s, rates.batches_per_s,
        server::FormatBytes(static_cast<int64_t>(rates.bytes_per_s)), job.bad_samples(),
        rates.waits_for);
  }
  out += NotListedText(view.status);
  return out;
}

json Document(const View& view) {
  json document = StatusJson(view.status);
  for (int i = 0; i < view.status.jobs_size(); ++i) {
    const JobRates rates = RatesOf(view, view.status.jobs(i));
    document["jobs"][i]["samples_per_s"] = rates.samples_per_s;
    document["jobs"][i]["batches_per_s"] = rates.batches_per_s;
    document["jobs"][i]["bytes_per_s"] = rates.bytes_per_s;
    document["jobs"][i]["waits_for"] = rates.waits_for;
    for (size_t r = 0; r < rates.rank_waits.size(); ++r)
      document["jobs"][i]["ranks"][r]["waits_for_data"] = rates.rank_waits[r];
  }
  return document;
}

// Draws a view over the one before. A line that is wider than the terminal is cut there, and lines
// that it is too low for are left out: what has scrolled away cannot be drawn over.
class Screen {
 public:
  void Show(const std::string& text) {
    winsize size{};
    if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) {
      std::cout << text << std::flush;
      return;
    }
    std::vector<std::string> lines = absl::StrSplit(text, '\n');
    lines.pop_back();  // behind the last line's end
    if (size.ws_row > 1 && lines.size() >= size.ws_row) {
      lines.resize(size.ws_row - 1u);
      lines.back() = "... (the terminal is too low)";
    }
    constexpr const char* kCutLines = "\033[?7l";
    constexpr const char* kWrapLines = "\033[?7h";
    std::string out;
    if (lines_ > 0) absl::StrAppend(&out, "\033[", lines_, "A");
    absl::StrAppend(&out, "\033[J", kCutLines);
    for (const std::string& line : lines) absl::StrAppend(&out, line, "\n");
    absl::StrAppend(&out, kWrapLines);
    lines_ = lines.size();
    std::cout << out << std::flush;
  }

 private:
  size_t lines_ = 0;
};

// While it lives, keys come from the terminal as they are pressed, and unseen.
class Keys {
 public:
  Keys() {
    if (!IsInForeground() || tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    is_raw_ = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
  }
  ~Keys() {
    if (is_raw_ && IsInForeground()) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Keys(const Keys&) = delete;

  // Until q is pressed, a signal comes or the time is over.
  void Wait(double seconds) const {
    const int64_t end = server::MonotonicNs() + static_cast<int64_t>(seconds * 1e9);
    for (int64_t left; g_stop == 0 && (left = end - server::MonotonicNs()) > 0;) {
      pollfd keys{is_raw_ && IsInForeground() ? STDIN_FILENO : -1, POLLIN, 0};
      if (poll(&keys, 1, static_cast<int>(std::clamp<int64_t>(left / 1'000'000, 1, 50))) <= 0)
        continue;
      char key = 0;
      if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q') g_stop = 1;
    }
  }

 private:
  // A process in the background must leave the terminal alone, or it is stopped.
  static bool IsInForeground() {
    return isatty(STDIN_FILENO) != 0 && tcgetpgrp(STDIN_FILENO) == getpgrp();
  }

  termios before_{};
  bool is_raw_ = false;
};

}  // namespace

absl::Status WatchStatus(const Context& context, double interval_s) {
  if (interval_s < 0.05 || interval_s > 3600) {
    return absl::InvalidArgumentError("--interval: from 50ms to 1h");
  }
  g_stop = 0;
  std::signal(SIGINT, Stop);
  std::signal(SIGTERM, Stop);
  Screen screen;
  const Keys keys;
  std::unique_ptr<v1::Control::Stub> control;
  View view;
  int64_t last_ns = 0;
  while (g_stop == 0 && std::cout) {  // where nobody can see it, main tells
    if (control == nullptr) {
      absl::StatusOr<std::unique_ptr<v1::Control::Stub>> connected = context.Control();
      if (connected.ok()) control = *std::move(connected);
    }
    absl::Status failure = absl::UnavailableError("no daemon answers");
    for (int look = 0; control != nullptr && look < kLooks && g_stop == 0; ++look) {
      absl::StatusOr<v1::GetStatusResponse> status = GetStatus(*control);
      failure = status.status();
      if (!status.ok()) break;
      view.status = *std::move(status);
      for (const v1::Job& job : view.status.jobs()) {
        for (const v1::Rank& rank : job.ranks()) {
          SlotLooks& looks = view.looks[{KeyOf(job), rank.rank()}];
          ++looks.looks;
          looks.empty += rank.slots_ready() == 0;
        }
      }
      if (last_ns == 0) break;  // show something at once
      if (look + 1 < kLooks) keys.Wait(interval_s / (kLooks - 1));
    }
    if (g_stop != 0) break;
    const int64_t now_ns = server::MonotonicNs();
    if (failure.ok()) {
      view.seconds = last_ns == 0 ? 0 : static_cast<double>(now_ns - last_ns) * 1e-9;
      if (context.json) {
        std::cout << JsonText(Document(view), -1) << std::endl;
      } else {
        screen.Show(isatty(STDOUT_FILENO) != 0 ? Text(view) : Lines(view));
      }
      last_ns = now_ns;
      view.before.clear();
      for (const v1::Job& job : view.status.jobs()) view.before[KeyOf(job)] = job;
      view.last = view.status;
    } else {
      control = nullptr;
      last_ns = 0;
      view = View();
      const std::string waiting = absl::StrCat(
          "waiting for a daemon", context.address.empty() ? "" : " at ", context.address);
      if (context.json) {
        std::cout << JsonText(json{{"waiting", waiting}}, -1) << std::endl;
      } else {
        screen.Show(waiting + "\n");
      }
      keys.Wait(interval_s);
    }
    view.looks.clear();
  }
  return absl::OkStatus();
}

}  // namespace feedwater::cli
