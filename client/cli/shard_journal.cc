#include "client/cli/shard_journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/cli/json_text.h"
#include "server/base/atomic_file.h"
#include "server/base/fd.h"
#include "server/base/status.h"
#include "server/source/tar_index.h"

namespace feedwater::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kJournal = ".convert.json";
constexpr const char* kBadFile = "bad_records.jsonl";
// Of the dataset, and of a shard; not in journals of earlier versions.
constexpr const char* kIdentity = "files";
constexpr int64_t kVersion = 1;
constexpr size_t kMaxJournalBytes = 256 << 20;

std::string TextOf(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t NumberOf(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
}

// What decides which records are left out as bad. Journals of earlier versions lack some of them,
// and are taken as made with the same.
bool IsLater(const std::string& key) {
  return key == "max_pixels" || key == "max_scans" || key == "max_decode_ms" ||
         key == "max_sample_ms";
}

// The first thing that differs.
absl::Status CompareMakings(const std::string& folder, const json& before, const json& now) {
  const auto text = [](const json& from, const std::string& key) {
    const auto found = from.find(key);
    return found == from.end() ? "nothing" : JsonText(*found, -1);
  };
  for (const json* keys : {&now, &before}) {
    for (const auto& [key, value] : keys->items()) {
      const std::string was = text(before, key), is = text(now, key);
      if (was == is || (IsLater(key) && !before.contains(key))) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          folder, " holds shards that were made with ", key, " = ", was, ", and this run has ", is,
          ". Cure: the same dataset and options, another folder, or rm -r ", folder));
    }
  }
  return absl::OkStatus();
}

absl::Status Damaged(const std::string& folder) {
  return absl::InvalidArgumentError(
      absl::StrCat(folder, "/", kJournal, " is damaged. Cure: another folder, or rm -r ", folder));
}

int64_t BytesOfFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : -1;
}

absl::StatusOr<json> ReadDocument(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kJournal);
  const int64_t bytes = BytesOfFile(path);
  if (bytes < 0) {
    return absl::NotFoundError(
        absl::StrCat(folder, " has no ", kJournal,
                     ", so it holds no shards of `feedwater convert` or `feedwater materialize`"));
  }
  if (bytes > static_cast<int64_t>(kMaxJournalBytes)) return Damaged(folder);
  std::ifstream file(path);
  json document = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || NumberOf(document, "version") != kVersion ||
      !document.contains("made_from") || !document["made_from"].is_object() ||
      !document.contains("shards") || !document["shards"].is_array()) {
    return Damaged(folder);
  }
  return document;
}

}  // namespace

json ToJson(const BadRecord& bad) {
  return {
      {"record", bad.record}, {"path", bad.path}, {"offset", bad.offset}, {"reason", bad.reason}};
}

std::string ShardJournal::FileOf(size_t shard) const {
  return absl::StrFormat("%s-%06d.tar", name_, shard);
}

std::string ShardJournal::bad_file() const { return absl::StrCat(folder_, "/", kBadFile); }

int64_t ShardJournal::records() const {
  int64_t records = 0;
  for (const Shard& shard : shards_) records += shard.records;
  return records;
}

int64_t ShardJournal::bytes() const {
  int64_t bytes = 0;
  for (const Shard& shard : shards_) bytes += shard.bytes;
  return bytes;
}

std::vector<ImageKinds> ShardJournal::kinds() const {
  std::vector<ImageKinds> kinds(fields_, 0);
  for (const Shard& shard : shards_) {
    for (size_t i = 0; i < fields_; ++i)
      kinds[i] = static_cast<ImageKinds>(kinds[i] | shard.kinds[i]);
  }
  return kinds;
}

// Before there is a journal, nothing in the folder can be of an earlier run: it writes one first.
absl::Status ShardJournal::CheckNothingIsThere(const std::vector<std::string>& files) const {
  const auto is_shard = [this](absl::string_view file) {
    absl::ConsumeSuffix(&file, server::TarIndex::kSuffix);
    return absl::ConsumePrefix(&file, name_ + "-") && absl::ConsumeSuffix(&file, ".tar") &&
           absl::c_all_of(file, absl::ascii_isdigit);
  };
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder_, error), end; !error && it != end;
       it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (file == kBadFile || absl::c_linear_search(files, file) || is_shard(file))
      found.push_back(file);
  }
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot look into the folder ", folder_, ": ", error.message()));
  }
  if (found.empty()) return absl::OkStatus();
  const std::string& first = *absl::c_min_element(found);
  return absl::InvalidArgumentError(absl::StrCat(
      folder_, " holds ", first, ", which would be written over, and no ", kJournal,
      " that says what it was made from. Cure: another folder, or move ", first, " away"));
}

absl::StatusOr<ShardJournal> ShardJournal::Open(const std::string& folder, const std::string& name,
                                                json made_from, std::string identity, size_t fields,
                                                const std::vector<std::string>& files,
                                                std::string* note) {
  ShardJournal journal;
  journal.folder_ = folder;
  journal.name_ = name;
  journal.made_from_ = std::move(made_from);
  journal.fields_ = fields;
  if (BytesOfFile(absl::StrCat(folder, "/", kJournal)) >= 0) {
    FW_RETURN_IF_ERROR(journal.Read(note));
    FW_RETURN_IF_ERROR(journal.CompareIdentities(std::move(identity), note));
  } else {
    FW_RETURN_IF_ERROR(journal.CheckNothingIsThere(files));
    journal.identity_ = std::move(identity);
  }
  // The list of bad records as the journal knows it; what came later is found again.
  if (journal.bad_bytes_ == 0) {
    if (unlink(journal.bad_file().c_str()) != 0 && errno != ENOENT)
      return server::ErrnoStatus(errno, absl::StrCat("removing ", journal.bad_file()));
  } else if (truncate(journal.bad_file().c_str(), journal.bad_bytes_) != 0) {
    return server::ErrnoStatus(errno, absl::StrCat("truncating ", journal.bad_file()));
  }
  FW_RETURN_IF_ERROR(journal.Save());
  return journal;
}

absl::StatusOr<ShardJournal> ShardJournal::OpenWritten(const std::string& folder,
                                                       const std::string& name, json made_from,
                                                       size_t fields) {
  ShardJournal journal;
  journal.folder_ = folder;
  journal.name_ = name;
  journal.made_from_ = std::move(made_from);
  journal.fields_ = fields;
  std::string note;
  FW_RETURN_IF_ERROR(journal.Read(&note));
  if (!note.empty()) return absl::DataLossError(absl::StrCat(folder, ": ", note));
  return journal;
}

absl::StatusOr<json> ShardJournal::MadeFromOf(const std::string& folder) {
  FW_ASSIGN_OR_RETURN(const json document, ReadDocument(folder));
  return document["made_from"];
}

absl::Status ShardJournal::Read(std::string* note) {
  const absl::Status damaged = Damaged(folder_);
  FW_ASSIGN_OR_RETURN(const json document, ReadDocument(folder_));
  FW_RETURN_IF_ERROR(CompareMakings(folder_, document["made_from"], made_from_));
  identity_ = TextOf(document, kIdentity);
  for (const json& entry : document["shards"]) {
    Shard shard;
    if (!entry.is_object()) return damaged;
    shard.first = NumberOf(entry, "first");
    shard.positions = NumberOf(entry, "positions");
    shard.records = NumberOf(entry, "records");
    shard.bytes = NumberOf(entry, "bytes");
    shard.files = TextOf(entry, kIdentity);
    const int64_t bad_count = NumberOf(entry, "bad"), bad_end = NumberOf(entry, "bad_bytes");
    if (shard.first != next_position() || shard.records < 1 || shard.positions < shard.records ||
        shard.bytes < 0 || bad_count < bad_ || bad_end < bad_bytes_ || !entry.contains("kinds") ||
        !entry["kinds"].is_array() || entry["kinds"].size() != fields_) {
      return damaged;
    }
    for (const json& kinds : entry["kinds"]) {
      if (!kinds.is_number_unsigned()) return damaged;
      shard.kinds.push_back(kinds.get<ImageKinds>());
    }
    const std::string name = FileOf(shards_.size());
    if (BytesOfFile(absl::StrCat(folder_, "/", name)) != shard.bytes ||
        (bad_end > 0 && BytesOfFile(bad_file()) < bad_end)) {
      *note = absl::StrCat(name, " is not as it was written: it and all behind it are made again");
      break;
    }
    bad_ = bad_count;
    bad_bytes_ = bad_end;
    shards_.push_back(std::move(shard));
    bad_counts_.push_back(bad_);
    bad_ends_.push_back(bad_bytes_);
  }
  return absl::OkStatus();
}

// The shards so far are of the files as they were.
absl::Status ShardJournal::CompareIdentities(std::string now, std::string* note) {
  if (shards_.empty() || identity_.empty() || now.empty() || identity_ == now) {
    identity_ = std::move(now);
    return absl::OkStatus();
  }
  if (next_position() >= NumberOf(made_from_, "records")) {
    absl::StrAppend(note, note->empty() ? "" : "; ", "files of the dataset have changed since ",
                    folder_,
                    " was written, though its digest is the same: the shards stay as "
                    "they are, and `feedwater verify PIPELINE --against ",
                    folder_, "` compares them with what the files hold now");
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "files of the dataset, or their times, have changed since the shards in ", folder_,
      " were written, though its digest, which does not look at all bytes, is the same: what is "
      "missing may be of another state. Cure: another folder, or rm -r ",
      folder_, ", and run the command again"));
}

absl::Status ShardJournal::Save() const {
  json shards = json::array();
  for (size_t i = 0; i < shards_.size(); ++i) {
    const Shard& shard = shards_[i];
    shards.push_back({{"first", shard.first},
                      {"positions", shard.positions},
                      {"records", shard.records},
                      {"bytes", shard.bytes},
                      {"bad", bad_counts_[i]},
                      {"bad_bytes", bad_ends_[i]},
                      {"kinds", shard.kinds}});
    if (!shard.files.empty()) shards.back()[kIdentity] = shard.files;
  }
  json document = {{"version", kVersion}, {"made_from", made_from_}};
  if (!identity_.empty()) document[kIdentity] = identity_;
  document["shards"] = std::move(shards);
  return server::WriteFileAtomically(absl::StrCat(folder_, "/", kJournal),
                                     {JsonText(document, -1), "\n"}, 0666);
}

absl::Status ShardJournal::AppendBad(const std::vector<BadRecord>& bad) {
  if (bad.empty()) return absl::OkStatus();
  std::string lines;
  for (const BadRecord& record : bad) absl::StrAppend(&lines, JsonText(ToJson(record), -1), "\n");
  const server::Fd fd(open(bad_file().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd) return server::ErrnoStatus(errno, absl::StrCat("opening ", bad_file()));
  FW_RETURN_IF_ERROR(server::Annotate(server::WriteAll(fd.get(), lines), bad_file()));
  if (fsync(fd.get()) != 0)
    return server::ErrnoStatus(errno, absl::StrCat("fsync of ", bad_file()));
  bad_ += static_cast<int64_t>(bad.size());
  bad_bytes_ += static_cast<int64_t>(lines.size());
  return absl::OkStatus();
}

absl::Status ShardJournal::Add(Shard shard, const std::vector<BadRecord>& bad) {
  FW_RETURN_IF_ERROR(AppendBad(bad));
  shards_.push_back(std::move(shard));
  bad_counts_.push_back(bad_);
  bad_ends_.push_back(bad_bytes_);
  return Save();
}

absl::Status ShardJournal::AddBad(const std::vector<BadRecord>& bad) { return AppendBad(bad); }

}  // namespace feedwater::cli
