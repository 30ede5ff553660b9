#include "tests/testing/flood/data_attacks.h"

#include <utility>

#include "proto/shm/wire.h"

namespace feedwater::testing {
namespace {

constexpr int kMostFloodMessages = 4000;

wire::Hello GoodHello() {
  wire::Hello hello{};
  hello.header = wire::MakeHeader<wire::Hello>(wire::Type::kHello);
  hello.magic = wire::kMagic;
  hello.major = wire::kMajor;
  hello.minor = wire::kMinor;
  return hello;
}
wire::Release MakeRelease(uint32_t slot, uint64_t generation) {
  wire::Release release{};
  release.header = wire::MakeHeader<wire::Release>(wire::Type::kRelease);
  release.slot = slot;
  release.generation = generation;
  return release;
}
wire::Seek MakeSeek(uint32_t serial, uint64_t epoch, int64_t position) {
  wire::Seek seek{};
  seek.header = wire::MakeHeader<wire::Seek>(wire::Type::kSeek);
  seek.serial = serial;
  seek.epoch = epoch;
  seek.position = position;
  return seek;
}

}  // namespace

template <typename M>
bool DataAttacks::Say(FakeTrainer* trainer, const M& message) {
  return Say(trainer, &message, sizeof(message));
}

template <typename M>
bool DataAttacks::SayMutated(FakeTrainer* trainer, const M& message) {
  std::string bytes(reinterpret_cast<const char*>(&message), sizeof(message));
  switch (dice_.Below(4)) {
    case 0:
      bytes.resize(dice_.Below(2 * sizeof(message) + 1));
      break;
    case 1:
      bytes += dice_.Noise(1 << dice_.Below(17));
      break;
    default:
      for (uint64_t i = 0; i <= dice_.Below(4); ++i)
        bytes[dice_.Below(bytes.size())] ^= static_cast<char>(1 << dice_.Below(8));
  }
  return Say(trainer, bytes.data(), bytes.size());
}

void DataAttacks::Strangers() {
  FakeTrainer trainer = Dial();
  for (uint64_t i = 0; i <= dice_.Below(4) && trainer.connected(); ++i) {
    if (dice_.Below(2) == 0) {
      const std::string noise = dice_.Noise(1 << dice_.Below(16));
      if (!Say(&trainer, noise.data(), noise.size())) return;
    } else if (!SayMutated(&trainer, GoodHello())) {
      return;
    }
  }
}

void DataAttacks::HalfOpen() {
  FakeTrainer trainer = Dial();
  if (!trainer.connected()) return;
  const std::string ticket = Greet(&trainer);
  if (ticket.empty()) return;
  tally_.Show(ticket);
  if (dice_.Below(2) == 0 && !Say(&trainer, GoodHello())) return;
  if (dice_.Below(2) == 0 && !Say(&trainer, MakeRelease(0, 1))) return;
  waiting_.push_back(std::move(trainer));
  if (waiting_.size() > 8) waiting_.clear();
}

void DataAttacks::Session() {
  std::optional<FakeTrainer> trainer = OpenSession();
  if (!trainer) return;
  uint32_t serial = 0;
  std::vector<wire::Ready> lent;
  for (bool alive = true; alive && !tally_.done();) {
    while (trainer->HasInput(dice_.Below(8) == 0 ? 2 : 0)) {
      const auto packet = trainer->Receive();
      if (!packet || packet->Is(wire::Type::kClosing)) {
        tally_.Count(packet ? "closed_with_a_reason" : "closed");
        return;
      }
      if (packet->Is(wire::Type::kReady)) lent.push_back(packet->As<wire::Ready>());
    }
    const uint32_t slot = static_cast<uint32_t>(dice_.Below(6));
    switch (dice_.Below(48)) {
      case 0: {
        const std::string noise = dice_.Noise(900);
        alive = Say(&*trainer, noise.data(), noise.size());
        break;
      }
      case 1:
        alive = Say(&*trainer, MakeRelease(slot, dice_.Below(16)));
        break;
      case 2:
        alive = Say(&*trainer, MakeRelease(static_cast<uint32_t>(dice_.Number()),
                                           static_cast<uint64_t>(dice_.Number())));
        break;
      case 3:
        alive = SayMutated(&*trainer, MakeRelease(slot, 1));
        break;
      case 4:
        alive = SayMutated(&*trainer, MakeSeek(serial + 1, 0, 0));
        break;
      case 5:
        alive = Say(&*trainer, MakeSeek(static_cast<uint32_t>(dice_.Number()),
                                        static_cast<uint64_t>(dice_.Number()), dice_.Number()));
        break;
      case 6:
        alive = Say(&*trainer, GoodHello());
        break;
      case 7: {
        const std::vector<int> descriptors(1 + dice_.Below(250), 0);
        const wire::Seek seek = MakeSeek(serial + 1, 0, 0);
        if (tally_.Take()) trainer->SendBytes(&seek, sizeof(seek), descriptors);
        break;
      }
      case 8:
        return;  // hangs up with whatever it holds
      case 9:
        control_.Close(tally_.shown());
        break;
      case 10:
      case 11:
      case 12:
      case 13:
        alive = Say(&*trainer,
                    MakeSeek(++serial, dice_.Below(5), static_cast<int64_t>(dice_.Below(64))));
        lent.clear();  // kept for ever
        break;
      default:
        if (lent.empty()) {
          alive = Say(&*trainer, MakeSeek(++serial, dice_.Below(5), 0));
          break;
        }
        alive = Say(&*trainer, MakeRelease(lent.back().slot, lent.back().generation));
        lent.pop_back();
    }
  }
}

void DataAttacks::Flood() {
  std::optional<FakeTrainer> trainer = OpenSession();
  if (!trainer) return;
  const uint64_t messages = dice_.Below(kMostFloodMessages);
  for (uint32_t serial = 1; serial <= messages; ++serial) {
    if (!Say(&*trainer,
             MakeSeek(serial, dice_.Below(1u << 30), static_cast<int64_t>(dice_.Below(1000)))))
      return;
    if (serial % 64 != 0) continue;
    while (trainer->HasInput(0)) {
      const auto packet = trainer->Receive();
      if (!packet || packet->Is(wire::Type::kClosing)) return;
    }
  }
}

FakeTrainer DataAttacks::Dial() {
  FakeTrainer trainer(options_.address + "/data.sock");
  if (!trainer.connected()) tally_.Count("not_connected");
  return trainer;
}

bool DataAttacks::Say(FakeTrainer* trainer, const void* bytes, size_t size) {
  return tally_.Take() && trainer->SendBytes(bytes, size);
}

std::string DataAttacks::Greet(FakeTrainer* trainer) {
  if (!tally_.Take()) return {};
  const auto ticket = trainer->Hello();
  return ticket ? std::string(ticket->begin(), ticket->end()) : std::string();
}

std::optional<FakeTrainer> DataAttacks::OpenSession() {
  FakeTrainer trainer = Dial();
  if (!trainer.connected()) return std::nullopt;
  const std::string ticket = Greet(&trainer);
  if (ticket.empty()) return std::nullopt;
  tally_.Show(ticket);
  v1::OpenStreamRequest request;
  request.set_ticket(ticket);
  request.set_client("flood");
  request.mutable_pipeline()->set_name(options_.pipeline);
  request.set_job("flood-" + std::to_string(dice_.Below(1u << 31)));
  request.set_world_size(1);
  request.set_slots(static_cast<uint32_t>(1 + dice_.Below(4)));
  if (!control_.Open(request) || !trainer.ReceiveArena()) return std::nullopt;
  tally_.Count("sessions");
  return trainer;
}

}  // namespace feedwater::testing
