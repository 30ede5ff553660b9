// One way of making a pipeline's samples, so that it can be timed by turns with others: a plan with
// memory for its batches, and what a cache would give it in place of the records.
//
// Belongs to one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/sample_batch.h"
#include "server/decoder/in_process_maker.h"
#include "server/graph/plan.h"

namespace feedwater::cli {

// A record in memory of its own, so that reading is no part of what is timed.
class KeptSample {
 public:
  KeptSample(const server::Record& record, int64_t number, int64_t position);
  KeptSample(const KeptSample&) = delete;
  KeptSample& operator=(const KeptSample&) = delete;

  server::SampleInput Input(server::PhiloxKey key) const;
  const server::Record& record() const { return record_; }
  int64_t bytes() const { return bytes_; }
  // The same record with another field: a view, which the caller keeps alive.
  void Replace(size_t field, server::Tensor tensor) { record_.fields[field] = std::move(tensor); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> memory_;
  server::Record record_;
  int64_t number_ = 0, position_ = 0, bytes_ = 0;
};

// CPU time of the calling thread for one sample, as the mean of a round.
struct RoundTime {
  double sample_us = 0, batch_us = 0;  // the batch graph's share of a sample
  double us() const { return sample_us + batch_us; }
};

class CostVariant {
 public:
  using Samples = std::vector<std::unique_ptr<KeptSample>>;
  static constexpr int64_t kMaxKeptBytes = int64_t{256} << 20;  // in this process

  // With batches of so many samples at most. Only one that runs has memory for them and a
  // workspace, so there may be many.
  CostVariant(std::shared_ptr<const server::Plan> plan, int64_t places);

  // Whether the sample can be made.
  absl::Status Make(const KeptSample& sample, server::PhiloxKey key);
  // Makes the first `count` samples, SamplesOf(...) at most, after some that are not timed: they
  // bring what a worker has at hand, memory and the state of its decoder. `pass_ns`, which may be
  // null, is given what each pass took of them (Plan::RunTimed), and the clock's own time is taken
  // off.
  absl::StatusOr<RoundTime> RunRound(const Samples& samples, size_t count, server::PhiloxKey key,
                                     std::vector<int64_t>* pass_ns);

  // From here on samples begin with what a cache of that kind would keep of their records: of the
  // first `count`, or fewer where those would take more than kMaxKeptBytes; of one in any case.
  struct Kept {
    size_t samples = 0;  // 0: it would keep nothing of use
    int64_t bytes = 0;   // in the cache, all together
  };
  absl::StatusOr<Kept> KeepPrefixes(const Samples& samples, size_t count);
  absl::StatusOr<Kept> KeepCoefficients(const Samples& samples, size_t count,
                                        const std::vector<bool>& as_coefficients);
  // How many samples RunRound can make at most, of so many.
  size_t SamplesOf(size_t all) const { return kept_.empty() ? all : std::min(all, kept_.size()); }

 private:
  absl::Status Open();
  absl::Status Run(const KeptSample& sample, server::PhiloxKey key, size_t k);

  const std::shared_ptr<const server::Plan> plan_;
  const int64_t places_;
  std::unique_ptr<SampleBatch> batch_;  // null: closed
  Samples kept_;                        // in place of the samples, where a cache has them
  bool starts_behind_prefix_ = false;
  std::vector<std::vector<std::byte>> documents_;
};

}  // namespace feedwater::cli
