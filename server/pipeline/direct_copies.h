// Samples that are bytes of the dataset's files as they lie there, of records whose fields all have
// their place: no op, no cache, no decoder process. A whole ticket of them is copied at once, from
// the files' pages in memory to the batch, without a read and a sample for each. Where anything is
// unusual - a page that is not in memory, a file that changed, a record that is bad - nothing is
// made, and the ticket goes the ordinary way, which says what there is to say.
//
// A job has one, shared by all workers; thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "server/graph/plan.h"
#include "server/pipeline/job_files.h"
#include "server/pipeline/record_reader.h"
#include "server/sampler/order.h"
#include "server/storage/mapped_file.h"

namespace feedwater::server {

class DirectCopies {
 public:
  // Null where samples are made otherwise.
  static std::unique_ptr<DirectCopies> For(const Dataset& dataset, const Plan& plan);

  // One thread's, reused.
  struct Scratch {
    std::vector<Extent> extents;
    std::vector<MappedCopy> copies;
    std::vector<std::byte> labels;
  };
  // Makes the samples of places first, first + 1, ... of a batch. Adds to `files` each one that was
  // copied from, which is to be proven afterwards. The bytes that were copied; -1: nothing is made,
  // though something may stand in the places.
  int64_t Make(const Dataset& dataset, JobFiles* job, uint32_t user,
               absl::Span<const Placement> places, int64_t first, const BatchMemory& memory,
               OpenedFiles* files, Scratch* scratch);

 private:
  struct Part {
    size_t output;
    int64_t bytes;
    StoredField from;
  };
  struct Own {
    size_t output;
    size_t field;  // OwnField
  };
  DirectCopies() = default;
  bool Collect(const Dataset& dataset, JobFiles* job, uint32_t user,
               absl::Span<const Placement> places, int64_t first, const BatchMemory& memory,
               OpenedFiles* files, Scratch* scratch) const;

  std::vector<Part> parts_;
  std::vector<Own> own_;
  size_t labels_ = 0;  // of the parts
  // Tickets that go the ordinary way, because pages were not in memory, and how many the next time.
  std::atomic<int> rest_{0}, next_rest_{0};
};

}  // namespace feedwater::server
