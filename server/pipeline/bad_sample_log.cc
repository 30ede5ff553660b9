#include "server/pipeline/bad_sample_log.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "server/base/atomic_file.h"
#include "server/base/escape.h"
#include "server/base/no_throw.h"
#include "server/source/given_records.h"

namespace feedwater::server {
namespace {

using nlohmann::json;

constexpr char kReasonNotKept[] =
    "its batch has many bad samples, and only the first ones keep their reasons";

constexpr size_t kMaxText = 1536;            // of a path or a reason, in the file
constexpr int64_t kMaxFileBytes = 64 << 20;  // more is not ours
constexpr int kLogged = 100;                 // lines of each user in the daemon's own log

// Its beginning, as much as becomes so many bytes of JSON.
std::string Cut(const std::string& text) {
  size_t bytes = 0, end = 0;
  for (; end < text.size(); ++end) {
    const auto byte = static_cast<unsigned char>(text[end]);
    bytes += byte < 0x20 || byte == 0x7f ? 6 : byte == '"' || byte == '\\' ? 2 : 1;
    // What is no UTF-8 becomes a character of three bytes.
    if (byte >= 0x80 && Utf8Length(absl::string_view(text).substr(end)) == 0) bytes += 2;
    if (bytes > kMaxText) break;
  }
  return text.substr(0, end);
}

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
                     {"user", entry.user},
                     {"pipeline", entry.pipeline},
                     {"pipelines", entry.pipelines},
                     {"path", entry.path},
                     {"offset", entry.offset},
                     {"length", entry.length},
                     {"reason", entry.reason},
                     {"only_for", entry.only_for},
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

std::vector<std::string> Words(const json& line, const char* key) {
  std::vector<std::string> words;
  const auto found = line.find(key);
  if (found == line.end() || !found->is_array()) return words;
  for (const json& word : *found) {
    if (word.is_string() && words.size() < BadSampleLog::kMaxPipelines)
      words.push_back(Cut(word.get<std::string>()));
  }
  return words;
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
  entry.user = number("user", BadSampleLog::kNobody);
  entry.pipeline = word("pipeline");
  entry.pipelines = Words(line, "pipelines");
  entry.path = word("path");
  entry.reason = word("reason");
  entry.only_for = number("only_for", entry.user);  // of an earlier version: nobody knows
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

// A regular file, or nothing: opening must not wait for the other end of a pipe.
Fd OpenRegular(const std::string& file, int flags) {
  Fd fd(open(file.c_str(), flags | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW, 0640));
  struct stat info;
  if (fd && (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))) {
    errno = EINVAL;
    return Fd();
  }
  return fd;
}

Fd OpenToAppend(const std::string& file) {
  return OpenRegular(file, O_WRONLY | O_APPEND | O_CREAT);
}

}  // namespace

bool BadSampleLog::Entry::IsBadFor(const std::string& pipeline_digest) const {
  if (quarantined()) return true;
  return count > 0 && (pipelines.empty() || absl::c_linear_search(pipelines, pipeline_digest));
}

std::string BadSampleLog::Entry::ReasonFor(int64_t reader) const {
  if (only_for == kNobody || reader == only_for || reader == 0 || reader == geteuid())
    return reason;
  return absl::StrCat("what user ", only_for, "'s own code says of it, which that user may read");
}

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
  if (lstat(file_.c_str(), &info) != 0) return absl::OkStatus();
  const Fd file = OpenRegular(file_, O_RDONLY);
  if (!file || fstat(file.get(), &info) != 0 || info.st_size > kMaxFileBytes) {
    return absl::DataLossError(absl::StrCat(file_, " is no list of bad samples"));
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t size = read(file.get(), text.data() + done, text.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return ErrnoStatus(errno, file_);
    if (size == 0) text.resize(done);
    done += static_cast<size_t>(size);
  }
  file_bytes_ = static_cast<int64_t>(text.size());
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    std::optional<Entry> entry = ParseLine(line);
    dirty_ |= !entry.has_value();  // written anew without it
    if (!entry.has_value()) continue;
    if (Entry* known = FindOrMake(entry->dataset, entry->record, entry->user)) {
      entry->user = known->user;
      *known = *std::move(entry);
    }
  }
  for (const auto& [key, entry] : entries_) {
    if (entry.quarantined()) quarantine_.insert(key);
  }
  return absl::OkStatus();
}

BadSampleLog::Entry* BadSampleLog::FindOrMake(const std::string& dataset, int64_t record,
                                              int64_t user) {
  const Key key(dataset, record);
  const auto found = entries_.find(key);
  if (found != entries_.end()) return &found->second;
  if (entries_.size() >= kMaxRecords && !MakeRoom(dataset, user)) return nullptr;
  Entry& made = entries_[key];
  made.dataset = dataset;
  made.record = record;
  made.user = user;
  ++of_user_[user];
  return &made;
}

// One of an earlier epoch of the same dataset, which does not come again; else the first of the
// user with most, if that is more than this user would have. A sample that ended the daemon stays:
// it matters more than any other.
bool BadSampleLog::MakeRoom(const std::string& dataset, int64_t user) {
  const std::string earliest(OfAnyEpoch(dataset));
  for (auto it = entries_.lower_bound(Key(earliest, 0));
       it != entries_.end() && it->first.first < dataset; ++it) {
    if (it->second.crashes > 0 || it->second.user != user) continue;
    not_listed_ += it->second.count;
    Drop(it);
    return true;
  }
  const auto most =
      std::max_element(of_user_.begin(), of_user_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == of_user_.end() || most->second <= of_user_[user] + 1) return false;
  const auto other = std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry.second.user == most->first && entry.second.crashes == 0;
  });
  if (other == entries_.end()) return false;
  not_listed_ += other->second.count;
  Drop(other);
  return true;
}

void BadSampleLog::Drop(std::map<Key, Entry>::iterator entry) {
  if (const auto of_user = of_user_.find(entry->second.user); --of_user->second == 0)
    of_user_.erase(of_user);
  entries_.erase(entry);
  dirty_ = true;
}

void BadSampleLog::AddCrash(const std::string& dataset, int64_t record, const std::string& path,
                            int64_t offset, int64_t length, int signal) {
  MutexLock lock(&mu_);
  if (entries_.size() >= kMaxRecords && entries_.count(Key(dataset, record)) == 0) {
    const auto other = std::find_if(entries_.begin(), entries_.end(),
                                    [](const auto& entry) { return entry.second.crashes == 0; });
    if (other != entries_.end()) Drop(other);
  }
  Entry* entry = FindOrMake(dataset, record, kNobody);
  if (entry == nullptr) return;
  entry->last_seen = std::time(nullptr);
  if (entry->first_seen == 0) entry->first_seen = entry->last_seen;
  if (!path.empty()) entry->path = Cut(path);
  entry->offset = offset;
  entry->length = length;
  entry->signal = signal;
  entry->only_for = kNobody;
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

void BadSampleLog::Add(const std::string& dataset, const PipelineSpec& pipeline,
                       const BadSample& bad, int64_t user) {
  const int met = Note(dataset, pipeline, bad, user);
  if (met > 0 && met <= kLogged) {
    spdlog::warn("pipeline {}: {} is bad: {}", pipeline.name, NameOf(bad), bad.reason);
  } else if (met == kLogged + 1) {
    spdlog::warn(
        "further bad samples of user {} are not logged; `feedwater status --bad` lists them", user);
  }
}

int BadSampleLog::Note(const std::string& dataset, const PipelineSpec& pipeline,
                       const BadSample& bad, int64_t user) {
  MutexLock lock(&mu_);
  Entry* entry = FindOrMake(dataset, bad.record, user);
  if (entry == nullptr) {
    ++not_listed_;
    return 0;
  }
  const bool is_new = entry->count == 0;
  entry->pipeline = Cut(pipeline.name);
  std::vector<std::string>& pipelines = entry->pipelines;
  if (is_new || !pipelines.empty()) {  // else it is of a file that did not say which
    pipelines.erase(std::remove(pipelines.begin(), pipelines.end(), pipeline.digest),
                    pipelines.end());
    if (pipelines.size() == kMaxPipelines) pipelines.erase(pipelines.begin());
    pipelines.push_back(pipeline.digest);
  }
  entry->path = Cut(bad.path);
  entry->offset = bad.offset;
  entry->length = bad.length;
  if (!bad.reason.empty()) {
    entry->reason = Cut(bad.reason);
    entry->only_for = bad.is_of_own_code ? user : kNobody;
  }
  if (entry->reason.empty()) entry->reason = kReasonNotKept;
  entry->action = std::string(BadSamplePolicyName(pipeline.on_bad_sample));
  entry->stood_in = bad.stood_in;
  entry->last_seen = std::time(nullptr);
  if (entry->first_seen == 0) entry->first_seen = entry->last_seen;
  ++entry->count;
  dirty_ = true;
  if (!is_new) return 0;
  Append(*entry);
  if (met_.size() >= kMaxRecords) met_.clear();
  int& met = met_[user];
  return met > kLogged ? 0 : ++met;
}

void BadSampleLog::Append(const Entry& entry) {
  if (!append_) return;
  const absl::Status status = NoThrow([&] {
    const std::string line = Line(entry);
    file_bytes_ += static_cast<int64_t>(line.size());
    // Beyond it the next Flush writes what is left.
    return file_bytes_ > kMaxFileBytes ? absl::OkStatus() : WriteAll(append_.get(), line);
  });
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
  file_bytes_ = static_cast<int64_t>(text.size());
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
