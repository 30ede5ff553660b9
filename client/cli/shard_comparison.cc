#include "client/cli/shard_comparison.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/no_throw.h"
#include "server/base/status.h"
#include "server/base/units.h"

namespace feedwater::cli {
namespace {

// A field of the shards beside the source's own: the record's number there, in digits.
constexpr const char* kKeyField = "feedwater_key";

absl::string_view TextOf(const server::Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data), tensor.bytes()};
}

}  // namespace

// A thread's own.
struct ShardComparison::Room {
  RecordLoader source;
  std::unique_ptr<ValueMaker> values;
  server::Record written;
};

ShardComparison::ShardComparison(const LocalPipeline& local, const ShardSection& section,
                                 const ShardJournal& journal,
                                 const std::vector<server::FieldSpec>& fields,
                                 const ShardMaker& maker)
    : local_(local),
      section_(section),
      journal_(journal),
      fields_(fields),
      maker_(maker),
      seen_(static_cast<size_t>(local.dataset().size())) {}

absl::Status ShardComparison::Run(size_t jobs) {
  FW_RETURN_IF_ERROR(ReadBadList());
  FW_ASSIGN_OR_RETURN(written_, section_.Open(kKeyField));
  shards_ = local_;
  auto loaded = std::make_shared<server::LoadedPipeline>(*local_.loaded);
  loaded->dataset = written_;
  shards_.loaded = std::move(loaded);
  shards_.job = server::JobFiles::Create(written_, shards_.files, shards_.budget);
  EveryRecord every;
  every.what = "compare";
  every.jobs = jobs;
  every.make_look = [this] { return MakeLook(); };
  every.note = [this] {
    const int64_t different = this->different();
    return different == 0 ? "" : absl::StrCat(different, " different");
  };
  FW_RETURN_IF_ERROR(every.Run(shards_));
  FindMissing();
  return absl::OkStatus();
}

absl::StatusOr<EveryRecord::Look> ShardComparison::MakeLook() {
  FW_ASSIGN_OR_RETURN(RecordLoader source, RecordLoader::Create(local_));
  auto room = std::make_shared<Room>(Room{std::move(source), nullptr, {}});
  FW_ASSIGN_OR_RETURN(room->values, maker_.new_values());
  return [this, room](const server::RecordBytes& bytes) { return Look(bytes, *room); };
}

absl::Status ShardComparison::Look(const server::RecordBytes& bytes, Room& room) {
  absl::Status status = bytes.status();
  if (status.ok()) {
    status = server::NoThrow(
        [&] { return written_->Parse(bytes.record(), bytes.extents(), &room.written); });
  }
  if (!status.ok()) {
    if (server::TellsOfTheMachine(status, bytes)) return status;
    // The place of a bad record has the number of its record.
    const int64_t record = bytes.record();
    if (maker_.keeps_bad_places && std::binary_search(bad_.begin(), bad_.end(), record)) {
      seen_[static_cast<size_t>(record)] = 1;
      return absl::OkStatus();
    }
    const server::RecordPlace place = PlaceOf(*written_, record);
    Note({record, "",
          absl::StrCat("record ", record, " of the shards, in ", place.path, " at byte ",
                       place.offset, ", cannot be read: ", status.message())});
    return absl::OkStatus();
  }
  int64_t record = -1;
  const absl::string_view key = TextOf(room.written.fields.back());
  if (!absl::SimpleAtoi(key, &record) || record < 0 || record >= local_.dataset().size() ||
      (maker_.keeps_bad_places && record != bytes.record())) {
    Note({bytes.record(), "", absl::StrCat("no record of the source is named '", key, "'")});
    return absl::OkStatus();
  }
  if (seen_[static_cast<size_t>(record)].exchange(1) != 0) {
    Note({record, "", "is in the shards twice"});
    return absl::OkStatus();
  }
  return Compare(record, room.written, room);
}

absl::Status ShardComparison::Compare(int64_t record, const server::Record& written, Room& room) {
  const server::Record* values = nullptr;
  const absl::Status made = server::NoThrow([&]() -> absl::Status {
    FW_ASSIGN_OR_RETURN(const server::Record* parsed, room.source.Load(record));
    FW_ASSIGN_OR_RETURN(values, room.values->Make(record, *parsed));
    return absl::OkStatus();
  });
  if (server::TellsOfTheMachine(made, room.source.bytes()))
    return server::Annotate(made, absl::StrCat("record ", record));
  if (!made.ok()) {
    Note({record, "", absl::StrCat("cannot be made of the source: ", made.message())});
    return absl::OkStatus();
  }
  bool is_same = true;
  for (size_t i = 0; i < fields_.size(); ++i) {
    const server::Tensor &now = written.fields[i], &was = values->fields[i];
    std::string reason;
    if (now.spec.dtype != was.spec.dtype || now.spec.shape != was.spec.shape) {
      reason = absl::StrCat("is ", now.spec.ToString(), ", not ", was.spec.ToString());
    } else if (TextOf(now) != TextOf(was)) {
      const auto [a, b] = std::mismatch(now.data, now.data + now.bytes(), was.data);
      reason = absl::StrCat("differs from byte ", a - now.data, " of ", now.bytes(), " on");
    } else {
      const absl::Status same = server::NoThrow([&] { return room.values->CheckSame(i, now); });
      if (!same.ok()) reason = std::string(same.message());
    }
    if (reason.empty()) continue;
    is_same = false;
    Note({record, fields_[i].name, std::move(reason)});
  }
  if (is_same) ++compared_;
  return absl::OkStatus();
}

// The records that were left out, or whose places are empty.
absl::Status ShardComparison::ReadBadList() {
  if (journal_.bad() == 0) return absl::OkStatus();
  std::ifstream file(journal_.bad_file());
  std::string line;
  while (std::getline(file, line)) {
    const auto entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!entry.is_object() || !entry.contains("record") || !entry["record"].is_number_integer()) {
      return absl::DataLossError(
          absl::StrCat(journal_.bad_file(), " is damaged: a line that is no bad record"));
    }
    bad_.push_back(entry["record"].get<int64_t>());
  }
  std::sort(bad_.begin(), bad_.end());
  if (static_cast<int64_t>(bad_.size()) == journal_.bad()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(journal_.bad_file(), " lists ", bad_.size(),
                                          " bad records, and ", journal_.bad(),
                                          " were found when the shards were written"));
}

void ShardComparison::FindMissing() {
  for (size_t record = 0; record < seen_.size(); ++record) {
    const auto number = static_cast<int64_t>(record);
    const bool is_bad = std::binary_search(bad_.begin(), bad_.end(), number);
    const bool is_expected = !is_bad || maker_.keeps_bad_places;
    if ((seen_[record] != 0) == is_expected) continue;
    Note({number, "", is_expected ? "is not in the shards" : "is in the shards and listed as bad"});
  }
}

void ShardComparison::Note(Difference difference) {
  server::MutexLock lock(&mu_);
  ++different_;
  differences_.push_back(std::move(difference));
  if (differences_.size() < 2 * kMostListed) return;
  std::sort(differences_.begin(), differences_.end(),
            [](const Difference& a, const Difference& b) { return a.record < b.record; });
  differences_.resize(kMostListed);
}

int64_t ShardComparison::different() const {
  server::MutexLock lock(&mu_);
  return different_;
}

std::vector<Difference> ShardComparison::differences() const {
  std::vector<Difference> list;
  {
    server::MutexLock lock(&mu_);
    list = differences_;
  }
  std::sort(list.begin(), list.end(), [](const Difference& a, const Difference& b) {
    return std::tie(a.record, a.field) < std::tie(b.record, b.field);
  });
  if (list.size() > kMostListed) list.resize(kMostListed);
  return list;
}

absl::Status ShardComparison::Result() const {
  const std::vector<Difference> list = differences();
  if (list.empty()) return absl::OkStatus();
  const Difference& first = list.front();
  return absl::DataLossError(
      absl::StrCat(server::FormatCount(different(), "difference"), " between the shards in ",
                   journal_.folder(), " and their source, the first one: record ", first.record,
                   ", ", PlaceOf(local_.dataset(), first.record).path, ": ",
                   first.field.empty() ? "" : absl::StrCat("field '", first.field, "' "),
                   first.reason, ". Cure: rm -r ", journal_.folder(), ", and write them again"));
}

}  // namespace feedwater::cli
