#include "server/pipeline/direct_copies.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "server/graph/dataflow.h"

namespace feedwater::server {
namespace {

using Copy = DirectCopies::Scratch::Copy;

constexpr int kLeastRest = 8, kMostRest = 1024;  // tickets

// More than that is worth a read, and a sample, for each.
constexpr int64_t kMostRecordBytes = 16 << 20, kMostTicketBytes = 64 << 20;
constexpr size_t kMostStoredBytes = 4 << 20;  // scratch, which no budget knows of

constexpr size_t kBlocksAhead = 8;  // records, of which the cache's blocks are loaded
constexpr size_t kCopiesAhead = 2, kPrefetchBytes = 4096, kCacheLine = 64;

void CopyAll(const std::vector<Copy>& copies) {
  for (size_t i = 0; i < copies.size(); ++i) {
    if (i + kCopiesAhead < copies.size()) {
      const Copy& next = copies[i + kCopiesAhead];
      for (size_t at = 0; at < std::min(next.bytes, kPrefetchBytes); at += kCacheLine)
        __builtin_prefetch(next.from + at);
    }
    const Copy& copy = copies[i];
    if (copy.unpack != nullptr)
      copy.unpack(copy.from, copy.bytes, copy.to);
    else
      std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

}  // namespace

// One ticket on its way.
class DirectCopies::Ticket {
 public:
  Ticket(const DirectCopies& direct, const Source& source, absl::Span<const Placement> places,
         int64_t first, const BatchMemory& memory, OpenedFiles* files, Scratch* scratch)
      : direct_(direct),
        source_(source),
        places_(places),
        first_(first),
        memory_(memory),
        files_(files),
        scratch_(scratch) {
    scratch_->copies.clear();
    scratch_->reads.resize(direct.extents_);
    for (auto& reads : scratch_->reads) reads.clear();
    scratch_->stored.resize(direct.stored_bytes_ * places.size());
  }

  enum class Way { kFound, kMustRead, kOrdinary };
  // Of the record at places[i].
  Way Find(size_t i) {
    const int64_t record = places_[i].record;
    scratch_->extents.clear();
    source_.dataset->Extents(record, &scratch_->extents);
    if (!direct_.kept_.has_value()) return Way::kMustRead;
    const absl::StatusOr<uint64_t> stamp = source_.files->StampOf(scratch_->extents, Reach::kLocal);
    if (!stamp.ok()) return Way::kOrdinary;
    const absl::Span<const std::byte> payload = source_.cache->FindInMemory(record, *stamp);
    if (payload.empty()) {
      const bool is_kept = source_.cache->Has(record) || source_.cache->Wants(record, *stamp);
      return is_kept ? Way::kOrdinary : Way::kMustRead;
    }
    if (!direct_.kept_->Is(payload)) return Way::kOrdinary;
    for (const Part& part : direct_.parts_) {
      scratch_->copies.push_back({payload.data() + direct_.kept_->at[part.field], Place(part, i),
                                  static_cast<size_t>(part.bytes)});
    }
    ++made_.from_cache;
    return Way::kFound;
  }

  // What Find has not found is read together later. False: something is unusual.
  bool AddReads(size_t i) {
    int64_t all = 0;
    for (const Extent& extent : scratch_->extents) {
      if (extent.offset < 0 || extent.length < 0 || extent.length > kMostRecordBytes - all)
        return false;
      all += extent.length;
    }
    made_.bytes += all;
    std::byte* stored = scratch_->stored.data() + i * direct_.stored_bytes_;
    for (const FromFile& from : direct_.from_files_) {
      std::byte* const to = from.is_stored ? stored : Place(direct_.parts_[from.part], i);
      if (from.is_stored) stored += from.bytes;
      if (from.at.extent >= scratch_->extents.size()) return false;
      const Extent& extent = scratch_->extents[from.at.extent];
      if (from.at.offset > extent.length || from.bytes > extent.length - from.at.offset)
        return false;
      const OpenedFile* const file = FileOf(from.at.extent, extent.object);
      if (file == nullptr || extent.offset > file->size - extent.length) return false;
      scratch_->reads[from.at.extent].push_back(
          {file, extent.offset + from.at.offset, to, static_cast<size_t>(from.bytes)});
    }
    was_read_ = true;
    read_.push_back(i);
    return true;
  }

  bool Read() {
    for (const auto& reads : scratch_->reads) {
      if (!scratch_->reader.Read(reads)) return false;
    }
    return true;
  }

  // What was read and is not a part as it is. False: a label is too large.
  bool Unpack() {
    for (const size_t i : read_) {
      const std::byte* stored = scratch_->stored.data() + i * direct_.stored_bytes_;
      for (const FromFile& from : direct_.from_files_) {
        if (!from.is_stored) continue;
        if (from.at.labels > 0) {
          const auto label = static_cast<int64_t>(*stored);
          if (label >= from.at.labels) return false;
          if (from.part != kNoPart)
            std::memcpy(Place(direct_.parts_[from.part], i), &label, sizeof(label));
        } else {
          scratch_->copies.push_back({stored, Place(direct_.parts_[from.part], i),
                                      static_cast<size_t>(from.bytes), from.at.unpack});
        }
        stored += from.bytes;
      }
    }
    return true;
  }

  void WriteOwn() {
    for (const Own& own : direct_.own_) {
      std::byte* const to = memory_.outputs[own.output];
      for (size_t i = 0; i < places_.size(); ++i) {
        const Placement& place = places_[i];
        const size_t k = static_cast<size_t>(first_) + i;
        if (own.field == kSampleId)
          std::memcpy(to + k * sizeof(int64_t), &place.record, sizeof(int64_t));
        else if (own.field == kPosition)
          std::memcpy(to + k * sizeof(int64_t), &place.position, sizeof(int64_t));
        else
          std::memcpy(to + k, &place.is_real, sizeof(bool));
      }
    }
  }

  bool was_read() const { return was_read_; }
  const Made& made() const { return made_; }

 private:
  std::byte* Place(const Part& part, size_t i) const {
    return memory_.outputs[part.output] + (first_ + static_cast<int64_t>(i)) * part.bytes;
  }

  // Null: it may not be read without waiting.
  const OpenedFile* FileOf(size_t extent, uint32_t object) {
    last_.resize(direct_.extents_);
    auto& [known, file] = last_[extent];
    if (file != nullptr && known == object) return file;
    const auto [entry, is_new] = opened_.try_emplace(object);
    if (is_new) {
      auto opened = source_.files->Open(object, Reach::kLocal, source_.user);
      if (!opened.ok() || !(*opened)->is_local || (*opened)->direct_io) return nullptr;
      entry->second = opened->get();
      files_->push_back(*std::move(opened));
    }
    known = object;
    return file = entry->second;
  }

  const DirectCopies& direct_;
  const Source& source_;
  const absl::Span<const Placement> places_;
  const int64_t first_;
  const BatchMemory& memory_;
  OpenedFiles* const files_;
  Scratch* const scratch_;
  absl::flat_hash_map<uint32_t, const OpenedFile*> opened_;
  absl::InlinedVector<std::pair<uint32_t, const OpenedFile*>, 4> last_;  // by extent
  absl::InlinedVector<size_t, 64> read_;                                 // places
  bool was_read_ = false;
  Made made_;
};

std::unique_ptr<DirectCopies> DirectCopies::For(const Dataset& dataset, const Plan& plan,
                                                const KeptForm* kept) {
  const std::optional<std::vector<Plan::Copy>> copies = plan.OnlyCopies();
  if (!copies.has_value()) return nullptr;
  std::unique_ptr<DirectCopies> direct(new DirectCopies);
  for (const Plan::Copy& copy : *copies) {
    if (copy.field >= dataset.fields().size()) {
      direct->own_.push_back({copy.output, copy.field - dataset.fields().size()});
    } else if (copy.sample_bytes < 1) {
      return nullptr;
    } else {
      direct->parts_.push_back({copy.output, copy.sample_bytes, copy.field});
    }
  }
  if (direct->parts_.empty()) return nullptr;
  if (kept != nullptr) direct->kept_ = FixedPayloadOf(*kept);
  if (kept != nullptr && !direct->kept_.has_value()) return nullptr;
  direct->FindInFiles(dataset);
  if (!direct->kept_.has_value() && direct->from_files_.empty()) return nullptr;
  return direct;
}

// A record is bad by any of its fields, so all have to be such as need no look, or a label.
void DirectCopies::FindInFiles(const Dataset& dataset) {
  std::vector<FromFile> found;
  for (size_t field = 0; field < dataset.fields().size(); ++field) {
    const std::optional<StoredField> at = dataset.StoredAt(field);
    if (!at.has_value()) return;
    bool is_output = false;
    for (size_t part = 0; part < parts_.size(); ++part) {
      if (parts_[part].field != field) continue;
      is_output = true;
      found.push_back({part, at->labels > 0 ? 1 : parts_[part].bytes, *at,
                       at->labels > 0 || at->unpack != nullptr});
    }
    if (!is_output && at->labels > 0) found.push_back({kNoPart, 1, *at, true});
  }
  // As they lie, so that they are read together.
  std::stable_sort(found.begin(), found.end(), [](const FromFile& a, const FromFile& b) {
    return std::tie(a.at.extent, a.at.offset) < std::tie(b.at.extent, b.at.offset);
  });
  for (const FromFile& from : found) {
    extents_ = std::max(extents_, from.at.extent + 1);
    if (from.is_stored) stored_bytes_ += static_cast<size_t>(from.bytes);
  }
  from_files_ = std::move(found);
}

std::optional<DirectCopies::Made> DirectCopies::Make(const Source& source,
                                                     absl::Span<const Placement> places,
                                                     int64_t first, const BatchMemory& memory,
                                                     OpenedFiles* files, Scratch* scratch) {
  int64_t sample_bytes = 0;
  for (const Part& part : parts_) {
    if (part.bytes > kMostTicketBytes - sample_bytes) return std::nullopt;
    sample_bytes += part.bytes;
  }
  if (static_cast<int64_t>(places.size()) > kMostTicketBytes / sample_bytes ||
      places.size() > kMostStoredBytes / std::max<size_t>(stored_bytes_, 1)) {
    return std::nullopt;
  }
  const bool has_cache = kept_.has_value();
  if (!has_cache && IsAtRest()) return std::nullopt;
  Ticket ticket(*this, source, places, first, memory, files, scratch);
  if (has_cache) {
    for (const Placement& place : places) source.cache->PrefetchPlace(place.record);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    if (has_cache && i + kBlocksAhead < places.size())
      source.cache->PrefetchBlock(places[i + kBlocksAhead].record);
    const Ticket::Way way = ticket.Find(i);
    if (way == Ticket::Way::kFound) continue;
    if (way == Ticket::Way::kOrdinary || from_files_.empty()) return std::nullopt;
    if (has_cache && !ticket.was_read() && IsAtRest()) return std::nullopt;
    if (!ticket.AddReads(i)) return std::nullopt;
  }
  if (ticket.was_read()) {
    if (!ticket.Read()) {
      Rest();
      return std::nullopt;
    }
    next_rest_.store(next_rest_.load(std::memory_order_relaxed) / 2, std::memory_order_relaxed);
    if (!ticket.Unpack()) return std::nullopt;
  }
  CopyAll(scratch->copies);
  ticket.WriteOwn();
  if (has_cache) {
    const auto hits = static_cast<uint64_t>(ticket.made().from_cache);
    source.cache->CountDirect(hits, places.size() - hits);
  }
  return ticket.made();
}

// Ordinary reads wait for the disk all at once, and bring what comes next into memory.
bool DirectCopies::IsAtRest() {
  if (rest_.load(std::memory_order_relaxed) <= 0) return false;
  rest_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void DirectCopies::Rest() {
  const int rest =
      std::clamp(2 * next_rest_.load(std::memory_order_relaxed), kLeastRest, kMostRest);
  next_rest_.store(rest, std::memory_order_relaxed);
  rest_.store(rest, std::memory_order_relaxed);
}

}  // namespace feedwater::server
