// Samples that are nothing but fields of their records: no op, nothing that differs from sample to
// sample in size. A whole ticket of them is put into the batch at once, without a read, a record
// and a sample for each: from the cache's memory, or from files where the fields lie as they are,
// as far as those are in the page cache. Where anything is unusual - bytes that are not in memory,
// a record that the cache still wants, a file that changed, a record that is bad - nothing is made,
// and the ticket goes the ordinary way, which says what there is to say.
//
// A job has one, shared by all workers; thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "server/cache/record_cache.h"
#include "server/graph/plan.h"
#include "server/pipeline/job_files.h"
#include "server/pipeline/kept_fields.h"
#include "server/pipeline/record_reader.h"
#include "server/sampler/order.h"
#include "server/storage/cached_reads.h"

namespace feedwater::server {

class DirectCopies {
 public:
  // Null where samples are made otherwise. `kept`: what the cache keeps of a record, null without a
  // cache.
  static std::unique_ptr<DirectCopies> For(const Dataset& dataset, const Plan& plan,
                                           const KeptForm* kept);

  // What a ticket is of.
  struct Source {
    const Dataset* dataset = nullptr;
    JobFiles* files = nullptr;
    const RecordCache* cache = nullptr;  // may be null
    uint32_t user = 0;
  };
  // One thread's, reused.
  struct Scratch {
    struct Copy {
      const std::byte* from = nullptr;
      std::byte* to = nullptr;
      size_t bytes = 0;
      void (*unpack)(const std::byte* stored, size_t bytes, std::byte* field) = nullptr;
    };
    std::vector<Extent> extents;
    std::vector<Copy> copies;
    std::vector<std::vector<CachedRead>> reads;  // by extent of a record
    std::vector<std::byte> stored;               // what was read and is not in its place yet
    CachedReads reader;
  };
  struct Made {
    int64_t bytes = 0;       // of the records that were read
    int64_t from_cache = 0;  // samples
  };
  // Makes the samples of places first, first + 1, ... of a batch. Adds to `files` each one that was
  // read, which is to be proven afterwards. Nothing: no sample is made, but the places may have
  // been written to.
  std::optional<Made> Make(const Source& source, absl::Span<const Placement> places, int64_t first,
                           const BatchMemory& memory, OpenedFiles* files, Scratch* scratch);

 private:
  struct Part {
    size_t output;
    int64_t bytes;
    size_t field;  // of the dataset's
  };
  struct Own {
    size_t output;
    size_t field;  // OwnField
  };
  struct FromFile {
    size_t part;    // kNoPart: a label that is looked at alone
    int64_t bytes;  // there
    StoredField at;
    bool is_stored;  // it is not in its place when it was read
  };
  static constexpr size_t kNoPart = SIZE_MAX;
  class Ticket;

  DirectCopies() = default;
  void FindInFiles(const Dataset& dataset);
  bool IsAtRest();
  void Rest();

  std::vector<Part> parts_;
  std::vector<Own> own_;
  std::optional<FixedPayload> kept_;  // how samples come from the cache
  std::vector<FromFile> from_files_;  // how they come from files; empty: they do not
  size_t extents_ = 0;                // of a record, that are read from
  size_t stored_bytes_ = 0;  // of a record, that are not in their places when they were read
  // Tickets that go the ordinary way before direct copies are tried again, because bytes were not
  // in memory; and how many it will be the next time.
  std::atomic<int> rest_{0}, next_rest_{0};
};

}  // namespace feedwater::server
