#include "tests/simulation/simulated_job.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/testing/fake_dataset.h"

namespace feedwater::simulation {

using server::EpochOrder;
using server::LastBatch;
using testing::FakeTrainer;

namespace {

std::shared_ptr<const server::LoadedPipeline> Pipeline(int64_t records) {
  static std::map<int64_t, std::shared_ptr<const server::LoadedPipeline>> made;
  auto& pipeline = made[records];
  if (pipeline == nullptr) {
    auto fresh = std::make_shared<server::LoadedPipeline>();
    fresh->spec.name = "simulated";
    fresh->spec.digest = "0123";
    fresh->dataset =
        std::make_shared<testing::FakeDataset>(testing::FakeDataset::Options{.records = records});
    pipeline = fresh;
  }
  return pipeline;
}

}  // namespace

SimulatedJob::SimulatedJob(std::string name, std::mt19937_64* random,
                           std::function<void(std::string)> violation)
    : name_(std::move(name)),
      random_(random),
      violation_(std::move(violation)),
      records_(16 + static_cast<int64_t>(Pick(30))),
      last_(static_cast<LastBatch>(Pick(3))) {
  Configure(1 + static_cast<int64_t>(Pick(4)), 1 + static_cast<int64_t>(Pick(4)));
}

void SimulatedJob::Configure(int64_t world_size, int64_t batch_size) {
  server::OrderConfig order;
  order.records = records_;
  order.batch_size = batch_size;
  order.world_size = world_size;
  order.seed = 5;
  order.shuffle = server::Shuffle::kFull;
  order.last = last_;
  order_ = std::make_shared<const server::OrderConfig>(order);
  config_.name = name_;
  config_.pipeline = Pipeline(records_);
  config_.batch_size = batch_size;
  config_.world_size = world_size;
  config_.seed = order.seed;
  ranks_.clear();
  ranks_.resize(static_cast<size_t>(world_size));
  for (size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i].number = static_cast<int64_t>(i);
    ranks_[i].slots = 1 + static_cast<int>(Pick(4));
    ranks_[i].trained = checkpoint_;
  }
  global_ = checkpoint_;
  open_steps_.clear();
  first_step_ = steps_;
}

PromisedBatch SimulatedJob::Promised(int64_t rank, const Position& from) const {
  uint64_t epoch = from.epoch;
  EpochOrder order(order_, epoch, from.position);
  if (order.steps() == 0) order = EpochOrder(order_, ++epoch, 0);
  PromisedBatch batch;
  batch.next = {epoch, order.NextPosition(0)};
  batch.step = order.start() / (config_.batch_size * config_.world_size);
  batch.last_in_epoch = order.steps() == 1;
  for (int64_t k = 0; k < order.BatchSamples(0, rank); ++k) {
    const server::Placement at = order.At(0, rank, k);
    batch.samples.push_back({at.position, at.record, epoch, at.is_real});
    batch.real_samples += at.is_real;
  }
  return batch;
}

SimulatedJob::Rank* SimulatedJob::Any(const std::function<bool(const Rank&)>& can) {
  const size_t first = Pick(ranks_.size());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[(first + i) % ranks_.size()];
    if (can(rank)) return &rank;
  }
  return nullptr;
}

void SimulatedJob::Violation(const Rank& rank, const std::string& what) const {
  violation_(absl::StrCat(name_, ", rank ", rank.number, " of ", ranks_.size(), ": ", what));
}

// --- the conversation

bool SimulatedJob::Connect(SimulatedDaemon* daemon) {
  Rank* rank = Any([](const Rank& r) { return r.phase == Phase::kOffline; });
  if (rank == nullptr) return false;
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) != 0) {
    Violation(*rank, "socketpair failed");
    return false;
  }
  rank->connection = daemon->Accept(sockets[0]);
  rank->trainer = std::make_shared<FakeTrainer>(sockets[1]);
  rank->generations.clear();
  rank->serial = 0;
  rank->failed = rank->rude = false;
  rank->phase = Phase::kGreeting;
  wire::Hello hello{};
  hello.header = wire::MakeHeader<wire::Hello>(wire::Type::kHello);
  hello.magic = wire::kMagic;
  hello.major = wire::kMajor;
  hello.minor = wire::kMinor;
  rank->trainer->Send(hello);
  rank->connection->unread.push_back(-1);
  return true;
}

bool SimulatedJob::OpenStream(SimulatedDaemon* daemon) {
  Rank* rank = Any([](const Rank& r) {
    return r.phase == Phase::kWelcomed && r.connection->pool == nullptr && !r.connection->gone;
  });
  if (rank == nullptr) return false;
  rank->heard = rank->trained;
  Wish wish{config_,    order_, rank->number, rank->trained.epoch, rank->trained.position,
            rank->slots};
  if (daemon->Open(rank->connection, std::move(wish)).ok()) rank->phase = Phase::kOpening;
  return true;
}

bool SimulatedJob::AttachStream(SimulatedDaemon* daemon) {
  Rank* rank =
      Any([](const Rank& r) { return r.connection != nullptr && r.connection->wish.has_value(); });
  if (rank == nullptr) return false;
  const absl::Status attached = daemon->Attach(rank->connection);
  if (attached.ok() || absl::IsUnavailable(attached)) return true;
  // An older session of this job must be the reason.
  const bool old_one = std::any_of(
      daemon->connections().begin(), daemon->connections().end(), [&](const auto& other) {
        return other != rank->connection && other->stream != nullptr && other->job == name_;
      });
  if (!old_one) Violation(*rank, absl::StrCat("Attach: ", attached.ToString()));
  return true;
}

void SimulatedJob::Lose(Rank* rank) {
  rank->phase = Phase::kOffline;
  rank->trainer->Close();
  rank->trainer = nullptr;  // lives on with the batches that are held
  rank->received.clear();
}

bool SimulatedJob::Receive() {
  Rank* rank =
      Any([](const Rank& r) { return r.phase != Phase::kOffline && r.trainer->HasInput(0); });
  if (rank == nullptr) return false;
  const auto packet = rank->trainer->Receive(0);
  if (!packet) {
    Lose(rank);  // hung up
    return true;
  }
  Hear(rank, *packet);
  return true;
}

void SimulatedJob::Hear(Rank* rank, const FakeTrainer::Packet& packet) {
  if (rank->phase == Phase::kTold) {
    Violation(*rank, "a message after CLOSING");
  } else if (packet.Is(wire::Type::kClosing)) {
    rank->phase = Phase::kTold;
  } else if (packet.Is(wire::Type::kWelcome) && rank->phase == Phase::kGreeting) {
    rank->phase = Phase::kWelcomed;
  } else if (packet.Is(wire::Type::kArena) && rank->phase == Phase::kOpening) {
    if (!rank->trainer->MapArena(packet)) Violation(*rank, "the arena cannot be mapped");
    rank->phase = Phase::kStreaming;
  } else if (packet.Is(wire::Type::kReady) && rank->phase == Phase::kStreaming) {
    HearReady(rank, packet.As<wire::Ready>());
  } else if (packet.Is(wire::Type::kFailed) && rank->phase == Phase::kStreaming) {
    const auto failed = packet.As<wire::Failed>();
    if (failed.serial > rank->serial) Violation(*rank, "a failure of a seek to come");
    if (failed.serial != rank->serial) return;
    const PromisedBatch promised = Promised(rank->number, rank->heard);
    if (rank->failed || failed.epoch != promised.next.epoch || failed.step != promised.step) {
      Violation(*rank, "a failure in another batch's place");
    }
    rank->failed = true;
  } else {
    Violation(*rank, absl::StrCat("a message of type ", packet.type(), " at the wrong time"));
  }
}

void SimulatedJob::HearReady(Rank* rank, const wire::Ready& ready) {
  const auto mine = [&](const wire::Ready& other) { return other.slot == ready.slot; };
  const bool in_hand =
      std::any_of(rank->received.begin(), rank->received.end(), mine) ||
      std::any_of(rank->held.begin(), rank->held.end(), [&](const HeldBatch& held) {
        return held.trainer == rank->trainer && mine(held.ready);
      });
  if (in_hand) Violation(*rank, absl::StrCat("slot ", ready.slot, " is lent twice"));
  uint64_t& generation = rank->generations[ready.slot];
  if (ready.generation <= generation) Violation(*rank, "a generation that does not grow");
  generation = ready.generation;
  if (ready.serial > rank->serial) Violation(*rank, "a batch of a seek to come");
  if (ready.serial != rank->serial) return GiveBack(rank, ready);  // from before the last seek

  const PromisedBatch promised = Promised(rank->number, rank->heard);
  if (rank->failed) Violation(*rank, "a batch after a failure");
  if (ready.epoch != promised.next.epoch || ready.step != promised.step ||
      ready.next_position != promised.next.position || ready.samples != promised.samples.size() ||
      ready.real_samples != promised.real_samples || ready.substituted != 0 ||
      ((ready.flags & wire::kReadyLastInEpoch) != 0) != promised.last_in_epoch) {
    Violation(*rank, absl::StrCat("epoch ", ready.epoch, " step ", ready.step, " to position ",
                                  ready.next_position, " instead of epoch ", promised.next.epoch,
                                  " step ", promised.step, " to ", promised.next.position));
  }
  rank->heard = promised.next;
  rank->received.push_back(ready);
}

void SimulatedJob::GiveBack(Rank* rank, const wire::Ready& ready) {
  if (rank->trainer->Release(ready))
    rank->connection->unread.push_back(static_cast<int>(ready.slot));
}

// --- training

bool SimulatedJob::Intact(const HeldBatch& batch) const {
  const auto* samples = reinterpret_cast<const SampleBytes*>(batch.trainer->slot(batch.ready.slot));
  return std::equal(batch.samples.begin(), batch.samples.end(), samples);
}

bool SimulatedJob::Train() {
  int64_t least = ranks_[0].steps;
  for (const Rank& rank : ranks_) least = std::min(least, rank.steps);
  Rank* rank =
      Any([&](const Rank& r) { return !r.rude && !r.received.empty() && r.steps == least; });
  if (rank == nullptr) return false;
  PromisedBatch promised = Promised(rank->number, rank->trained);
  HeldBatch batch{rank->received.front(), rank->trainer, promised.samples};
  rank->received.pop_front();
  if (!Intact(batch)) Violation(*rank, "a batch with other samples than promised");

  StepSeen& step = open_steps_[rank->steps];
  if (step.ranks++ == 0) {
    step.next = promised.next;
    step.last_in_epoch = promised.last_in_epoch;
  } else if (!(step.next == promised.next) || step.last_in_epoch != promised.last_in_epoch) {
    Violation(*rank, "ranks are not equal");
  }
  for (const SampleBytes& sample : promised.samples)
    if (sample.is_real != 0) step.positions.push_back(sample.position);
  if (step.ranks == ranks_.size()) {
    StepDone(step);
    open_steps_.erase(rank->steps);
  }
  rank->trained = promised.next;
  ++rank->steps;
  rank->held.push_back(std::move(batch));
  return true;
}

// All ranks together have seen each position exactly once.
void SimulatedJob::StepDone(const StepSeen& step) {
  std::vector<int64_t> positions = step.positions;
  std::sort(positions.begin(), positions.end());
  int64_t next = global_.position;
  if (step.next.epoch != global_.epoch) {
    const int64_t left = records_ - global_.position;
    const int64_t whole_step = config_.batch_size * config_.world_size;
    const bool ended = last_ == LastBatch::kDrop ? left < whole_step : left == 0;
    if (step.next.epoch != global_.epoch + 1 || !ended)
      violation_(absl::StrCat(name_, ": epoch ", global_.epoch, " has lost its end"));
    next = 0;
  }
  for (const int64_t position : positions) {
    if (position != next++) {
      violation_(absl::StrCat(name_, ": position ", position, " of epoch ", step.next.epoch,
                              " where ", next - 1, " was due"));
      break;
    }
  }
  if (next != step.next.position) violation_(name_ + ": the cursor is not where the samples end");
  global_ = step.next;
  ++steps_;
}

void SimulatedJob::MaybeCheckpoint() {
  if (open_steps_.empty()) checkpoint_ = global_;
}

bool SimulatedJob::Release() {
  Rank* rank = Any([](const Rank& r) { return !r.held.empty(); });
  if (rank == nullptr) return false;
  const size_t which = Pick(rank->held.size());
  const HeldBatch batch = std::move(rank->held[which]);
  rank->held.erase(rank->held.begin() + static_cast<ptrdiff_t>(which));
  if (!Intact(batch)) Violation(*rank, "a batch has changed while it was lent");
  if (batch.trainer == rank->trainer) GiveBack(rank, batch.ready);
  return true;
}

void SimulatedJob::Seek(Rank* rank, const Position& to) {
  rank->trained = rank->heard = to;
  rank->failed = false;
  if (rank->phase == Phase::kStreaming) {
    for (const wire::Ready& ready : rank->received) GiveBack(rank, ready);
  }
  rank->received.clear();
  if (rank->phase != Phase::kStreaming) return;  // the next session opens there
  if (rank->trainer->Seek(++rank->serial, to.epoch, to.position))
    rank->connection->unread.push_back(-1);
}

bool SimulatedJob::SeekToOwnCursor() {
  Rank* rank = Any([](const Rank& r) { return r.phase == Phase::kStreaming; });
  if (rank != nullptr) Seek(rank, rank->trained);
  return rank != nullptr;
}

bool SimulatedJob::SeekAfterFailure() {
  Rank* rank = Any([](const Rank& r) { return r.failed && r.received.empty(); });
  if (rank != nullptr) Seek(rank, rank->trained);
  return rank != nullptr;
}

// --- what goes wrong

bool SimulatedJob::HangUp() {
  Rank* rank = Any([](const Rank& r) { return r.phase != Phase::kOffline; });
  if (rank == nullptr) return false;
  if (Pick(2) == 0) rank->held.clear();  // a process that died
  Lose(rank);
  return true;
}

bool SimulatedJob::Misbehave() {
  Rank* rank = Any([](const Rank& r) { return r.phase == Phase::kStreaming && !r.rude; });
  if (rank == nullptr) return false;
  FakeTrainer& trainer = *rank->trainer;
  bool sent = false;
  const auto slot = static_cast<uint32_t>(Pick(static_cast<size_t>(rank->slots)));
  const uint64_t generation = rank->generations[slot];
  switch (Pick(7)) {
    case 0:
      sent = trainer.Release(static_cast<uint32_t>(rank->slots), generation);
      break;
    case 1:
      sent = trainer.Release(slot, generation + 1000);
      break;
    case 2:
      sent = trainer.Release(slot, 0);
      break;
    case 3:
      sent = trainer.Seek(rank->serial, 0, 0);
      break;
    case 4:
      sent = trainer.SendBytes("rude", 4);
      break;
    default: {  // a second time, which may be another time
      if (rank->received.empty()) return false;
      const wire::Ready ready = rank->received.front();
      rank->received.pop_front();
      GiveBack(rank, ready);
      sent = trainer.Release(ready);
      // What was given back unseen comes again with the next session.
    }
  }
  if (sent) rank->connection->unread.push_back(-1);
  rank->rude = true;
  rank->received.clear();
  return true;
}

void SimulatedJob::CheckTheRude() {
  for (const Rank& rank : ranks_) {
    if (rank.rude && rank.phase == Phase::kStreaming && !rank.connection->gone &&
        rank.connection->unread.empty() && rank.connection->session->open()) {
      Violation(rank, "a client that broke the protocol is still served");
    }
  }
}

void SimulatedJob::Rewind() {
  global_ = checkpoint_;
  open_steps_.clear();
  for (Rank& rank : ranks_) {
    rank.steps = 0;
    Seek(&rank, checkpoint_);
  }
}

void SimulatedJob::Restart() {
  for (Rank& rank : ranks_) {
    if (rank.phase != Phase::kOffline) Lose(&rank);
  }
  if (Pick(2) == 0) {
    Configure(1 + static_cast<int64_t>(Pick(4)), 1 + static_cast<int64_t>(Pick(4)));
  } else {
    Configure(config_.world_size, config_.batch_size);
  }
}

}  // namespace feedwater::simulation
