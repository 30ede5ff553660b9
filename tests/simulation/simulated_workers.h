// The product's scheduler and, in place of its worker threads, steps: a ticket is taken, a ticket
// is ended (later, in any order), a batch's own graph is done. A sample is written twice, as
// rubbish when its ticket is taken and rightly when it ends, so that whoever can see a slot too
// early sees it.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "server/pipeline/runtime.h"
#include "server/sampler/order.h"

namespace feedwater::simulation {

// What a worker writes for each sample; its fields say which one it is.
struct SampleBytes {
  int64_t position = 0, record = 0;
  uint64_t epoch = 0;
  int64_t is_real = 0;
  bool operator==(const SampleBytes&) const = default;
};

// What a client asks OpenStream for.
struct Wish {
  server::JobConfig job;
  std::shared_ptr<const server::OrderConfig> order;
  int64_t rank = 0;
  uint64_t epoch = 0;
  int64_t position = 0;
  int slots = 1;
};

server::SlotLayout LayoutOf(const Wish& wish);

class SimulatedWorkers {
 public:
  // `violation` hears what must not happen.
  SimulatedWorkers(std::mt19937_64* random, std::function<void(std::string)> violation);
  ~SimulatedWorkers();

  absl::StatusOr<std::shared_ptr<server::Stream>> Attach(const Wish& wish,
                                                         std::shared_ptr<server::SlotPool> slots);
  void Detach(const std::shared_ptr<server::Stream>& stream);
  void Seek(const std::shared_ptr<server::Stream>& stream, uint32_t serial, uint64_t epoch,
            int64_t position);

  // False: nothing to do.
  bool TakeTicket();
  bool EndTicket(bool sample_fails);
  bool FinishBatch();
  void Stop();  // and ends what is being worked on

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedwater::simulation
