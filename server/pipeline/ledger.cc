#include "server/pipeline/ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/yaml.h"
#include "server/pipeline/bad_sample.h"
#include "server/pipeline/substitution.h"
#include "server/source/given_records.h"

namespace feedwater::server {
namespace {

constexpr int64_t kAskEvery = 4096;  // records

std::string EndOf(std::string path) {
  if (path.size() <= kMaxLedgerPathBytes) return path;
  return absl::StrCat("...", absl::string_view(path).substr(path.size() - kMaxLedgerPathBytes + 3));
}

LedgerEntry EntryOf(const Dataset& dataset, const Use& use, int64_t record) {
  LedgerEntry entry;
  entry.use = use;
  entry.position = use.position;
  entry.record = record;
  RecordPlace place = PlaceOf(dataset, record);
  entry.path = EndOf(std::move(place.path));
  entry.offset = place.offset;
  entry.bytes = place.bytes;
  entry.label = dataset.LabelOf(record);
  if (const DatasetMix* mix = dataset.mix(); mix != nullptr)
    entry.dataset_id = static_cast<int64_t>(mix->SourceOf(record));
  return entry;
}

absl::Status CheckRange(absl::string_view what, int64_t value, int64_t end) {
  if (value >= 0 && value < end) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("there is no ", what, " ", value, ": there are ", end, ", which count from 0"));
}

absl::Status ReadStep(const Dataset& dataset, const EpochOrder& order, const OrderConfig& config,
                      const LedgerQuery& query, Ledger* ledger) {
  FW_RETURN_IF_ERROR(CheckRange("step", *query.step, ledger->steps));
  if (query.rank) FW_RETURN_IF_ERROR(CheckRange("rank", *query.rank, config.world_size));
  const int64_t first_rank = query.rank.value_or(0);
  const int64_t end_rank = query.rank ? first_rank + 1 : config.world_size;
  if (config.batch_size > kMaxLedgerPlaces / (end_rank - first_rank)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step is ", end_rank - first_rank, " ranks times ", config.batch_size,
                     " samples, and one answer holds ", kMaxLedgerPlaces, ": ask for one rank"));
  }
  for (int64_t rank = first_rank; rank < end_rank; ++rank) {
    const int64_t samples = order.BatchSamples(*query.step, rank);
    for (int64_t k = 0; k < samples; ++k) {
      const Placement at = order.At(*query.step, rank, k);
      ledger->entries.push_back(
          EntryOf(dataset, {*query.step, rank, k, at.is_real, at.position}, at.record));
    }
  }
  return absl::OkStatus();
}

// As the workers choose: the next position with a good record.
void MarkBad(const Dataset& dataset, const EpochOrder& order, int64_t positions,
             const LedgerQuery& query, Ledger* ledger) {
  for (LedgerEntry& entry : ledger->entries) {
    const auto found = query.bad.find(entry.record);
    if (found == query.bad.end()) continue;
    entry.is_bad = true;
    entry.bad_reason = found->second;
    if (query.on_bad_sample == BadSamplePolicy::kFail) continue;
    for (int64_t tries = 1; entry.stood_in < 0; ++tries) {
      const auto next = SubstituteFor(entry.position, tries, order, positions, WorkersOf(dataset));
      if (!next.has_value()) break;
      if (query.bad.count(next->record) == 0) entry.stood_in = next->record;
    }
  }
}

}  // namespace

absl::StatusOr<Ledger> ReadLedger(const Dataset& dataset,
                                  const std::shared_ptr<const OrderConfig>& config,
                                  const LedgerQuery& query) {
  // Steps count from the first position that is a whole number of steps before `start`.
  const int64_t global_batch = config->batch_size * config->world_size;
  const EpochOrder order(config, query.epoch, query.start % global_batch);
  Ledger ledger;
  ledger.steps = order.steps();
  if (query.step) {
    FW_RETURN_IF_ERROR(ReadStep(dataset, order, *config, query, &ledger));
    MarkBad(dataset, order, config->positions(), query, &ledger);
    return ledger;
  }
  if (!query.record) return absl::InvalidArgumentError("give a step, or a record");
  FW_RETURN_IF_ERROR(CheckRange("record", *query.record, config->records));
  for (const Use& use : order.UsesOf(*query.record))
    ledger.entries.push_back(EntryOf(dataset, use, *query.record));
  MarkBad(dataset, order, config->positions(), query, &ledger);
  return ledger;
}

absl::StatusOr<int64_t> FindRecord(const Dataset& dataset, absl::string_view text,
                                   const std::function<bool()>& cancelled) {
  int64_t number = 0;
  if (absl::SimpleAtoi(text, &number)) {
    FW_RETURN_IF_ERROR(CheckRange("record", number, dataset.size()));
    return number;
  }
  if (text.empty()) return absl::InvalidArgumentError("the record is empty: a number, or a file");
  const std::string end = absl::StrCat("/", text);
  struct Fit {
    int64_t first = -1, count = 0;
  } whole, part;
  std::vector<Extent> extents;
  std::string path;
  for (int64_t record = 0, last_object = -1; record < dataset.size(); ++record) {
    if (record % kAskEvery == 0 && cancelled != nullptr && cancelled())
      return absl::CancelledError("the caller left while records were being looked through");
    dataset.Extents(record, &extents);
    bool is_whole = false, is_part = false;  // of one of its files
    for (const Extent& extent : extents) {
      if (extent.object != last_object) path = dataset.PathText(extent.object);
      last_object = extent.object;
      is_whole |= path == text;
      is_part |= absl::EndsWith(path, end);
    }
    Fit* const fit = is_whole ? &whole : is_part ? &part : nullptr;
    if (fit == nullptr) continue;
    if (fit->count++ == 0) fit->first = record;
  }
  const Fit& fit = whole.count > 0 ? whole : part;
  if (fit.count == 0) {
    return absl::NotFoundError(absl::StrCat("no record lies in '", Printable(text),
                                            "': give its number, or the file's path below the "
                                            "dataset's root"));
  }
  if (fit.count > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(fit.count, " records fit '", Printable(text), "', from number ", fit.first,
                     " on: give the number of one, or more of the path"));
  }
  return fit.first;
}

}  // namespace feedwater::server
