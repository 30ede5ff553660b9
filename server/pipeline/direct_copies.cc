#include "server/pipeline/direct_copies.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "server/graph/dataflow.h"

namespace feedwater::server {
namespace {

constexpr int kLeastRest = 8, kMostRest = 1024;  // tickets

// Pages that this thread has waited for.
int64_t PagesWaitedFor() {
  struct rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_majflt;
}

}  // namespace

std::unique_ptr<DirectCopies> DirectCopies::For(const Dataset& dataset, const Plan& plan) {
  const std::optional<std::vector<Plan::Copy>> copies = plan.OnlyCopies();
  if (!copies.has_value()) return nullptr;
  std::unique_ptr<DirectCopies> direct(new DirectCopies);
  for (const Plan::Copy& copy : *copies) {
    if (copy.field >= dataset.fields().size()) {
      direct->own_.push_back({copy.output, copy.field - dataset.fields().size()});
      continue;
    }
    const std::optional<StoredField> from = dataset.StoredAt(copy.field);
    if (!from.has_value() || copy.sample_bytes < 1) return nullptr;
    if (from->labels > 0) ++direct->labels_;
    direct->parts_.push_back({copy.output, copy.sample_bytes, *from});
  }
  return direct->parts_.empty() ? nullptr : std::move(direct);
}

int64_t DirectCopies::Make(const Dataset& dataset, JobFiles* job, uint32_t user,
                           absl::Span<const Placement> places, int64_t first,
                           const BatchMemory& memory, OpenedFiles* files, Scratch* scratch) {
  if (rest_.load(std::memory_order_relaxed) > 0) {
    rest_.fetch_sub(1, std::memory_order_relaxed);
    return -1;
  }
  if (!Collect(dataset, job, user, places, first, memory, files, scratch)) return -1;
  const int64_t waited = PagesWaitedFor();
  const bool is_copied = CopyMapped(scratch->copies);
  if (!is_copied || PagesWaitedFor() > waited) {
    // Reads wait for the disk all at once; copies, one page after another.
    const int rest =
        std::clamp(2 * next_rest_.load(std::memory_order_relaxed), kLeastRest, kMostRest);
    next_rest_.store(rest, std::memory_order_relaxed);
    rest_.store(rest, std::memory_order_relaxed);
  } else {
    next_rest_.store(0, std::memory_order_relaxed);
  }
  if (!is_copied) return -1;

  int64_t bytes = 0;
  size_t label = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t k = first + static_cast<int64_t>(i);
    for (const Part& part : parts_) {
      if (part.from.labels == 0) {
        bytes += part.bytes;
        continue;
      }
      const auto number = static_cast<int64_t>(scratch->labels[label++]);
      if (number >= part.from.labels) return -1;
      std::memcpy(memory.outputs[part.output] + k * part.bytes, &number, sizeof(number));
      ++bytes;
    }
    for (const Own& own : own_) {
      std::byte* const to = memory.outputs[own.output];
      if (own.field == kSampleId)
        std::memcpy(to + k * 8, &places[i].record, sizeof(int64_t));
      else if (own.field == kPosition)
        std::memcpy(to + k * 8, &places[i].position, sizeof(int64_t));
      else
        std::memcpy(to + k, &places[i].is_real, sizeof(bool));
    }
  }
  return bytes;
}

// What is to be copied. False: something is unusual.
bool DirectCopies::Collect(const Dataset& dataset, JobFiles* job, uint32_t user,
                           absl::Span<const Placement> places, int64_t first,
                           const BatchMemory& memory, OpenedFiles* files, Scratch* scratch) const {
  absl::flat_hash_map<uint32_t, absl::Span<const std::byte>> mapped;
  struct Last {
    uint32_t object = UINT32_MAX;
    absl::Span<const std::byte> bytes;
  };
  absl::InlinedVector<Last, 4> last;  // by extent
  scratch->copies.clear();
  scratch->labels.resize(labels_ * places.size());
  size_t label = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    scratch->extents.clear();
    dataset.Extents(places[i].record, &scratch->extents);
    last.resize(scratch->extents.size());
    for (size_t e = 0; e < scratch->extents.size(); ++e) {
      const Extent& extent = scratch->extents[e];
      if (last[e].object != extent.object) {
        const auto [entry, is_new] = mapped.try_emplace(extent.object);
        if (is_new) {
          const auto file = job->Open(extent.object, Reach::kLocal, user);
          if (!file.ok() || !(*file)->is_local || (*file)->mapped == nullptr) return false;
          entry->second = (*file)->mapped->Get((*file)->fd.get(), (*file)->size);
          files->push_back(*file);
        }
        last[e] = {extent.object, entry->second};
      }
      if (extent.offset < 0 || extent.length < 0 ||
          static_cast<uint64_t>(extent.offset) > last[e].bytes.size() ||
          static_cast<uint64_t>(extent.length) > last[e].bytes.size() - extent.offset) {
        return false;
      }
    }
    const int64_t k = first + static_cast<int64_t>(i);
    for (const Part& part : parts_) {
      if (part.from.extent >= scratch->extents.size()) return false;
      const Extent& extent = scratch->extents[part.from.extent];
      const int64_t stored = part.from.labels > 0 ? 1 : part.bytes;
      if (part.from.offset > extent.length || stored > extent.length - part.from.offset)
        return false;
      std::byte* const to = part.from.labels > 0 ? &scratch->labels[label++]
                                                 : memory.outputs[part.output] + k * part.bytes;
      scratch->copies.push_back(
          {last[part.from.extent].bytes.data() + extent.offset + part.from.offset, to,
           static_cast<size_t>(stored)});
    }
  }
  return true;
}

}  // namespace feedwater::server
