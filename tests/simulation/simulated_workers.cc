#include "tests/simulation/simulated_workers.h"

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/pipeline/scheduler.h"

namespace feedwater::simulation {

using server::Batch;
using server::Stream;
using server::Ticket;
using server::TicketResult;

namespace {

constexpr size_t kTicketsAtOnce = 8;

SampleBytes* Place(const Batch& batch, int64_t place) {
  return reinterpret_cast<SampleBytes*>(batch.memory().outputs[0]) + place;
}

template <typename T>
T TakeAt(std::vector<T>* all, size_t which) {
  T one = std::move((*all)[which]);
  all->erase(all->begin() + static_cast<ptrdiff_t>(which));
  return one;
}

}  // namespace

server::SlotLayout LayoutOf(const Wish& wish) {
  const server::FieldSpec field{
      "sample",
      server::TensorSpec{server::DType::kUInt8, server::Layout::kPlain, {sizeof(SampleBytes)}}, ""};
  return *server::SlotLayout::Create({field}, wish.job.batch_size, 1 << 20);
}

struct SimulatedWorkers::Impl {
  size_t Pick(size_t count) { return static_cast<size_t>((*random)() % count); }

  std::mt19937_64* random;
  std::function<void(std::string)> violation;
  std::shared_ptr<server::Parking> parking = std::make_shared<server::Parking>();
  server::Scheduler scheduler{parking};
  std::vector<Ticket> tickets;                     // being worked on
  std::vector<std::shared_ptr<Batch>> unfinished;  // whose own graph runs
  std::optional<uint64_t> nothing_since;           // Parking's generation when there was no ticket
};

SimulatedWorkers::SimulatedWorkers(std::mt19937_64* random,
                                   std::function<void(std::string)> violation)
    : impl_(std::make_unique<Impl>()) {
  impl_->random = random;
  impl_->violation = std::move(violation);
}

SimulatedWorkers::~SimulatedWorkers() = default;

absl::StatusOr<std::shared_ptr<Stream>> SimulatedWorkers::Attach(
    const Wish& wish, std::shared_ptr<server::SlotPool> slots) {
  server::Scheduler::NewRank rank;
  rank.job = wish.job;
  rank.order_config = wish.order;
  rank.rank = wish.rank;
  rank.pid = 1;
  rank.start = server::MakeCursor(wish.order, wish.epoch, wish.position);
  rank.layout = LayoutOf(wish);
  rank.slots = std::move(slots);
  return impl_->scheduler.Attach(std::move(rank));
}

void SimulatedWorkers::Detach(const std::shared_ptr<Stream>& stream) {
  impl_->scheduler.Detach(stream);
}

void SimulatedWorkers::Seek(const std::shared_ptr<Stream>& stream, uint32_t serial, uint64_t epoch,
                            int64_t position) {
  const auto& config = stream->job().order_config();
  const absl::Status sought =
      impl_->scheduler.Seek(stream, serial, server::MakeCursor(config, epoch, position));
  if (!sought.ok()) impl_->violation(absl::StrCat("Seek: ", sought.ToString()));
}

bool SimulatedWorkers::TakeTicket() {
  if (impl_->tickets.size() + impl_->unfinished.size() >= kTicketsAtOnce) return false;
  // A worker that found nothing sleeps until the generation moves on: were there a ticket, it would
  // never learn of it.
  const uint64_t generation = impl_->parking->generation();
  std::optional<Ticket> ticket = impl_->scheduler.Take();
  if (!ticket.has_value()) {
    impl_->nothing_since = generation;
    return false;
  }
  if (impl_->nothing_since == generation)
    impl_->violation("there is work, but nobody was woken for it");
  const Batch& batch = *ticket->batch;
  if (ticket->first_of_epoch) impl_->scheduler.PrepareEpoch(batch.job(), batch.order().epoch() + 1);
  for (int64_t i = 0; i < ticket->count; ++i)
    std::memset(static_cast<void*>(Place(batch, ticket->first + i)), 0xEE, sizeof(SampleBytes));
  impl_->tickets.push_back(*std::move(ticket));
  return true;
}

bool SimulatedWorkers::EndTicket(bool sample_fails) {
  if (impl_->tickets.empty()) return false;
  const Ticket ticket = TakeAt(&impl_->tickets, impl_->Pick(impl_->tickets.size()));
  const Batch& batch = *ticket.batch;
  TicketResult result;
  for (int64_t place = ticket.first; place < ticket.first + ticket.count; ++place) {
    const server::Placement at = batch.order().At(batch.step(), batch.stream().rank(), place);
    *Place(batch, place) = {at.position, at.record, batch.order().epoch(), at.is_real};
    result.real += at.is_real;
  }
  if (sample_fails && ticket.count > 0) {
    result.failed_place =
        ticket.first + static_cast<int64_t>(impl_->Pick(static_cast<size_t>(ticket.count)));
    result.failure = {absl::DataLossError("a bad sample"), 7, "path"};
  }
  server::Usage usage;
  usage.samples = ticket.count;
  usage.cpu_ns = ticket.count * static_cast<int64_t>(1000 + impl_->Pick(1'000'000));
  if (impl_->scheduler.Complete(ticket, result, usage)) impl_->unfinished.push_back(ticket.batch);
  return true;
}

bool SimulatedWorkers::FinishBatch() {
  if (impl_->unfinished.empty()) return false;
  const auto batch = TakeAt(&impl_->unfinished, impl_->Pick(impl_->unfinished.size()));
  impl_->scheduler.Finish(batch, absl::OkStatus());
  return true;
}

void SimulatedWorkers::Stop() {
  impl_->scheduler.Stop();
  if (impl_->scheduler.Take().has_value()) impl_->violation("a ticket after Stop");
  while (EndTicket(false) || FinishBatch()) {
  }
}

}  // namespace feedwater::simulation
