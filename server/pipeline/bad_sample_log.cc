#include "server/pipeline/bad_sample_log.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/atomic_file.h"
#include "server/base/no_throw.h"

namespace feedwater::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxText = 1024;            // of a path or a reason
constexpr int64_t kMaxFileBytes = 64 << 20;  // more is not ours
constexpr int kLogged = 100;                 // lines in the daemon's own log

std::string Cut(const std::string& text) { return text.substr(0, kMaxText); }

std::string TimeText(int64_t seconds) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(seconds),
                          absl::UTCTimeZone());
}

int64_t Seconds(const std::string& text) {
  absl::Time time;
  std::string error;
  return absl::ParseTime("%Y-%m-%dT%H:%M:%SZ", text, &time, &error) ? absl::ToUnixSeconds(time) : 0;
}

std::string Line(const BadSampleLog::Entry& entry) {
  const json line = {{"dataset", entry.dataset},
                     {"record", entry.record},
                     {"pipeline", entry.pipeline},
                     {"path", entry.path},
                     {"offset", entry.offset},
                     {"length", entry.length},
                     {"reason", entry.reason},
                     {"count", entry.count},
                     {"first_seen", TimeText(entry.first_seen)},
                     {"last_seen", TimeText(entry.last_seen)},
                     {"action", entry.action},
                     {"stood_in", entry.stood_in},
                     {"crashes", entry.crashes},
                     {"signal", entry.signal},
                     {"quarantined", entry.quarantined()}};
  // Names of files are bytes; what is no UTF-8 in them is replaced.
  return line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

// Whatever stands in the file: a value of another type is as good as none.
std::optional<BadSampleLog::Entry> ParseLine(absl::string_view text) {
  const json line = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return std::nullopt;
  const auto word = [&](const char* key) {
    const auto found = line.find(key);
    return found != line.end() && found->is_string() ? Cut(found->get<std::string>())
                                                     : std::string();
  };
  const auto number = [&](const char* key, int64_t otherwise) {
    const auto found = line.find(key);
    return found != line.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
  };
  BadSampleLog::Entry entry;
  entry.dataset = word("dataset");
  entry.record = number("record", -1);
  if (entry.dataset.empty() || entry.record < 0) return std::nullopt;
  entry.pipeline = word("pipeline");
  entry.path = word("path");
  entry.reason = word("reason");
  entry.action = word("action");
  entry.offset = number("offset", 0);
  entry.length = number("length", 0);
  entry.count = static_cast<uint64_t>(std::max<int64_t>(0, number("count", 0)));
  entry.first_seen = Seconds(word("first_seen"));
  entry.last_seen = Seconds(word("last_seen"));
  entry.stood_in = number("stood_in", -1);
  entry.crashes = static_cast<int>(std::clamp<int64_t>(number("crashes", 0), 0, 1'000'000));
  entry.signal = static_cast<int>(std::clamp<int64_t>(number("signal", 0), 0, 64));
  return entry;
}

Fd OpenToAppend(const std::string& file) {
  return Fd(open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
}

}  // namespace

std::shared_ptr<BadSampleLog> BadSampleLog::Open(const std::string& state_dir) {
  std::shared_ptr<BadSampleLog> log(
      new BadSampleLog(state_dir.empty() ? "" : state_dir + "/bad_samples.jsonl"));
  if (log->file_.empty()) return log;
  const absl::Status loaded = NoThrow([&] {
    MutexLock lock(&log->mu_);
    return log->Load();
  });
  log->Flush();  // without the lines that could not be read
  MutexLock lock(&log->mu_);
  log->Complain(loaded);
  if (!log->append_) log->append_ = OpenToAppend(log->file_);
  if (!log->append_) log->Complain(ErrnoStatus(errno, absl::StrCat("opening ", log->file_)));
  return log;
}

BadSampleLog::~BadSampleLog() { Flush(); }

absl::Status BadSampleLog::Load() {
  struct stat info;
  if (stat(file_.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISREG(info.st_mode) || info.st_size > kMaxFileBytes) {
    return absl::DataLossError(absl::StrCat(file_, " is no list of bad samples"));
  }
  std::ifstream file(file_, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    std::optional<Entry> entry = ParseLine(line);
    dirty_ |= !entry.has_value();  // written anew without it
    if (!entry.has_value()) continue;
    if (Entry* known = FindOrMake(entry->dataset, entry->record)) *known = *std::move(entry);
  }
  for (const auto& [key, entry] : entries_) {
    if (entry.quarantined()) quarantine_.insert(key);
  }
  return absl::OkStatus();
}

BadSampleLog::Entry* BadSampleLog::FindOrMake(const std::string& dataset, int64_t record) {
  const Key key(dataset, record);
  const auto found = entries_.find(key);
  if (found != entries_.end()) return &found->second;
  if (entries_.size() >= kMaxRecords) return nullptr;
  Entry& made = entries_[key];
  made.dataset = dataset;
  made.record = record;
  return &made;
}

void BadSampleLog::AddCrash(const std::string& dataset, int64_t record, const std::string& path,
                            int64_t offset, int64_t length, int signal) {
  MutexLock lock(&mu_);
  if (entries_.size() >= kMaxRecords && entries_.count(Key(dataset, record)) == 0) {
    // A sample that ends the daemon matters more than any other.
    const auto other = std::find_if(entries_.begin(), entries_.end(),
                                    [](const auto& entry) { return entry.second.crashes == 0; });
    if (other != entries_.end()) entries_.erase(other);
  }
  Entry* entry = FindOrMake(dataset, record);
  if (entry == nullptr) return;
  entry->last_seen = std::time(nullptr);
  if (entry->first_seen == 0) entry->first_seen = entry->last_seen;
  if (!path.empty()) entry->path = Cut(path);
  entry->offset = offset;
  entry->length = length;
  entry->signal = signal;
  ++entry->crashes;
  entry->reason =
      absl::StrCat("the daemon died while it worked on this sample (", strsignal(signal), ")");
  if (entry->quarantined()) quarantine_.insert(Key(dataset, record));
  dirty_ = true;
  spdlog::error(
      "the daemon before this one died of signal {} ({}) while it worked on record {} "
      "({}) of dataset {}, {} times so far: {}",
      signal, strsignal(signal), record, path, dataset, entry->crashes,
      entry->quarantined() ? "it is put aside and counts as a bad sample"
                           : "after the next time it is put aside");
}

std::string BadSampleLog::WhyQuarantined(const std::string& dataset, int64_t record) const {
  if (quarantine_.empty() || quarantine_.count(Key(dataset, record)) == 0) return "";
  return absl::StrCat(
      "put aside, since the daemon died ", kCrashesToQuarantine,
      " times while it worked on this sample; `feedwater status --bad` has the signal. It is tried "
      "again when its file has another size, or when bad_samples.jsonl is deleted from state_dir "
      "while the daemon is down");
}

void BadSampleLog::Add(const std::string& dataset, const std::string& pipeline,
                       const std::string& action, const BadSample& bad) {
  if (!Note(dataset, pipeline, action, bad)) return;
  const int logged = logged_.fetch_add(1, std::memory_order_relaxed);
  if (logged < kLogged) {
    spdlog::warn("pipeline {}: record {} ({}) is bad: {}", pipeline, bad.record, bad.path,
                 bad.reason);
  } else if (logged == kLogged) {
    spdlog::warn("more bad samples are told by `feedwater status --bad` only");
  }
}

bool BadSampleLog::Note(const std::string& dataset, const std::string& pipeline,
                        const std::string& action, const BadSample& bad) {
  MutexLock lock(&mu_);
  Entry* entry = FindOrMake(dataset, bad.record);
  if (entry == nullptr) {
    ++not_listed_;
    return false;
  }
  const bool is_new = entry->count == 0;
  entry->pipeline = Cut(pipeline);
  entry->path = Cut(bad.path);
  entry->offset = bad.offset;
  entry->length = bad.length;
  entry->reason = Cut(bad.reason);
  entry->action = action;
  entry->stood_in = bad.stood_in;
  entry->last_seen = std::time(nullptr);
  if (entry->first_seen == 0) entry->first_seen = entry->last_seen;
  ++entry->count;
  dirty_ = true;
  if (is_new) Append(*entry);
  return is_new;
}

void BadSampleLog::Append(const Entry& entry) {
  if (!append_) return;
  const absl::Status status = NoThrow([&] { return WriteAll(append_.get(), Line(entry)); });
  if (!status.ok()) Complain(Annotate(status, file_));
}

void BadSampleLog::Flush() {
  MutexLock one_at_a_time(&flush_mu_);
  std::string text;
  const absl::Status made = NoThrow([&] {
    MutexLock lock(&mu_);
    if (!dirty_ || file_.empty()) return absl::OkStatus();
    for (const auto& [key, entry] : entries_) text += Line(entry);
    dirty_ = false;
    return absl::OkStatus();
  });
  if (text.empty() && made.ok()) return;
  const absl::Status status = made.ok() ? WriteFileAtomically(file_, {text}, 0640) : made;
  MutexLock lock(&mu_);
  Complain(status);
  if (!status.ok()) {
    dirty_ = true;
    return;
  }
  // What was appended to the old file since `text` was made is in memory, and comes with the next.
  append_ = OpenToAppend(file_);
}

void BadSampleLog::Complain(const absl::Status& status) {
  if (!status.ok() && !complained_) {
    spdlog::warn("the list of bad samples is not saved: {}", status.ToString());
  }
  complained_ = !status.ok();
}

BadSampleLog::Report BadSampleLog::Get() const {
  Report report;
  report.file = file_;
  MutexLock lock(&mu_);
  report.not_listed = not_listed_;
  report.entries.reserve(entries_.size());
  for (const auto& [key, entry] : entries_) report.entries.push_back(entry);
  return report;
}

size_t BadSampleLog::records() const {
  MutexLock lock(&mu_);
  return entries_.size();
}

}  // namespace feedwater::server
