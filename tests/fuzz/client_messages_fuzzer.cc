// A client that says anything at any time on its data socket, and a pipeline that does what
// pipelines do with slots meanwhile. Beside the session a model keeps which slots are lent and what
// may be said; the session must end exactly when the model says that it must, and count alike.
//
//   input: steps, each one byte and its arguments
// LIBS: feedwater_transport
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <set>

#include "server/transport/client_message.h"
#include "server/transport/session.h"
#include "tests/fuzz/fuzzer.h"

namespace feedwater::fuzz {
namespace {

using namespace server;  // NOLINT: the transport floor

constexpr int kMaxSteps = 200;

SlotLayout SmallLayout() {
  FieldSpec field;
  field.name = "x";
  field.spec = {DType::kUInt8, Layout::kPlain, {16}};
  return *SlotLayout::Create({field}, /*batch_size=*/4, int64_t{1} << 20);
}

class Conversation {
 public:
  explicit Conversation(int slots) : slots_(slots) {
    int ends[2];
    Require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "a socket pair");
    client_ = Fd(ends[0]);
    static const auto* doorbell = new std::shared_ptr<Doorbell>(*Doorbell::Create());
    static const auto* reclaimer = new std::shared_ptr<Reclaimer>(new Reclaimer);
    Session::Options options;
    options.id = 1;
    options.doorbell = *doorbell;
    options.reclaimer = *reclaimer;
    Accepted accepted;
    accepted.socket = Fd(ends[1]);
    session_ = std::make_shared<Session>(std::move(accepted), options);
  }
  ~Conversation() {
    session_->Close(absl::CancelledError("the end"), "end", /*tell_client=*/true);
    auto ended = session_->TearDown();
    if (ended.closed) ended.closed();
    Require(closed_ == (opened_ ? 1 : 0), "an open session's end is told once");
  }

  // One step of the client's or of the pipeline's. False once the session has ended.
  bool Step(Reader* reader) {
    switch (reader->Byte() % 14) {
      case 0:
        SayHello(reader->Byte());
        break;
      case 1:
        SayAnything(reader->Bytes(reader->Byte()));
        break;
      case 2:
      case 3:
        SayRelease(reader);
        break;
      case 4:
        SaySeek(reader);
        break;
      case 5:
        Open();
        break;
      case 6:
      case 7:
        Acquire();
        break;
      case 8:
      case 9:
        if (!filling_.empty()) Publish(*filling_.begin());
        break;
      case 10:
        if (!filling_.empty()) {
          session_->Abandon(*filling_.begin());
          filling_.erase(filling_.begin());
        }
        break;
      case 11:
        HearMany();
        session_->Fail(BatchMeta(), {absl::DataLossError("a bad sample"), 3, "path"});
        break;
      case 12:
        Listen();
        break;
      default: {  // what no pipeline does
        const int slot = reader->Byte() - 1;
        if (filling_.count(slot) == 0) session_->Abandon(slot);
        session_->Publish(slots_ + reader->Byte(), BatchMeta());
      }
    }
    session_->OnReadable();
    return Agree();
  }

 private:
  template <typename M>
  void Say(const M& message, bool allowed) {
    must_end_ = must_end_ || !allowed;
    (void)send(client_.get(), &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  void SayHello(uint8_t change) {
    wire::Hello hello{};
    hello.header = wire::MakeHeader<wire::Hello>(wire::Type::kHello);
    hello.magic = wire::kMagic;
    hello.major = wire::kMajor;
    hello.minor = wire::kMinor;
    switch (change % 8) {
      case 5:
        hello.magic ^= change;
        break;
      case 6:
        hello.major = static_cast<uint16_t>(hello.major + 1);
        break;
      case 7:
        hello.reserved = change;
        break;
      default:
        break;
    }
    Say(hello, change % 8 < 5 && !welcomed_);
    welcomed_ = true;
  }

  void SayAnything(Input bytes) {
    const absl::Span<const std::byte> packet(reinterpret_cast<const std::byte*>(bytes.data()),
                                             bytes.size());
    const ClientMessage message = ParseClientMessage(packet, /*truncated=*/false);
    // What happens to be a message is said by the steps that know what follows from it.
    if (!std::holds_alternative<Violation>(message)) return;
    must_end_ = true;
    (void)send(client_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  void SayRelease(Reader* reader) {
    wire::Release release{};
    release.header = wire::MakeHeader<wire::Release>(wire::Type::kRelease);
    release.slot = reader->Byte() % (slots_ + 1);
    const uint8_t change = reader->Byte();
    release.generation = generations_[release.slot];
    if (change >= 0xf0) release.generation += change - 0xf8;
    if (change == 0xe0) release.slot = 0xffffffff;
    if (change == 0xe1) release.reserved = 1;
    const bool right = opened_ && release.reserved == 0 && lent_.count(release.slot) > 0 &&
                       release.generation == generations_[release.slot];
    Say(release, right);
    if (right) lent_.erase(release.slot);
  }

  void SaySeek(Reader* reader) {
    wire::Seek seek{};
    seek.header = wire::MakeHeader<wire::Seek>(wire::Type::kSeek);
    seek.serial = static_cast<uint32_t>(serial_ + reader->Number(1) - 1);
    seek.epoch = reader->Number(8);
    seek.position = static_cast<int64_t>(reader->Number(8));
    const bool right = opened_ && seek.serial > serial_ && seek.position >= 0;
    Say(seek, right);
    if (right) serial_ = seek.serial;
  }

  void Open() {
    static const SlotLayout layout = SmallLayout();
    ArenaOptions options;
    options.layout = layout;
    options.slots = slots_;
    options.checksum = slots_ % 2 == 0;
    SessionEvents events;
    events.closed = [this] { ++closed_; };
    events.seek = [this](uint32_t serial, uint64_t, int64_t position) {
      Require(serial <= serial_ && position >= 0, "only seeks that were said are told");
    };
    const bool opened = session_->Open(options, std::move(events)).ok();
    Require(opened == (welcomed_ && !opened_), "a session opens once, after HELLO");
    opened_ = opened_ || opened;
  }

  void Acquire() {
    const int slot = session_->Acquire();
    const bool free = opened_ && lent_.size() + filling_.size() < static_cast<size_t>(slots_);
    Require((slot >= 0) == free, "a slot is acquired when one is free");
    if (slot < 0) return;
    Require(slot < slots_ && lent_.count(slot) == 0 && filling_.count(slot) == 0,
            "a slot that is acquired was free");
    filling_.insert(slot);
    session_->data(slot)[0] = std::byte{1};
  }

  void Publish(int slot) {
    HearMany();
    BatchMeta meta;
    meta.samples = static_cast<uint32_t>(slot * 100);  // also more than there is room for
    session_->Publish(slot, meta);
    filling_.erase(slot);
    lent_.insert(static_cast<uint32_t>(slot));
    ++generations_[static_cast<uint32_t>(slot)];
  }

  // A client that leaves a socket buffer's worth unread loses its session: about 100 messages.
  void HearMany() {
    if (++told_ % 32 == 0) Listen();
  }

  void Listen() {
    char packet[wire::kMaxMessage];
    while (recv(client_.get(), packet, sizeof(packet), MSG_DONTWAIT) > 0) {
    }
  }

  bool Agree() {
    const SessionCounts counts = session_->Counts();
    if (must_end_) {
      Require(!session_->open() && !session_->welcomed(), "a violation ends the session");
      Require(session_->Acquire() == -1, "an ended session lends nothing");
      return false;
    }
    Require(session_->open() == opened_, "what is allowed ends no session");
    Require(!opened_ || (counts.slots == slots_ && counts.lent == static_cast<int>(lent_.size())),
            "session and model count alike");
    return true;
  }

  const int slots_;
  Fd client_;
  std::shared_ptr<Session> session_;
  bool welcomed_ = false, opened_ = false, must_end_ = false;
  int closed_ = 0, told_ = 0;
  uint32_t serial_ = 0;
  std::set<int> filling_;
  std::set<uint32_t> lent_;
  std::map<uint32_t, uint64_t> generations_;
};

void Run(Input input) {
  (void)ParseClientMessage({reinterpret_cast<const std::byte*>(input.data()), input.size()}, false);
  Reader reader(input);
  Conversation conversation(1 + reader.Byte() % 5);
  for (int i = 0; i < kMaxSteps && !reader.empty() && conversation.Step(&reader); ++i) {
  }
}

std::vector<std::string> Seeds() {
  const std::string open("\x02\x00\x00\x05", 4);
  std::string rounds = open;
  for (int i = 0; i < 6; ++i) {
    const char slot = 0;
    rounds += std::string("\x06\x08\x0c\x02", 4) + slot + '\0';  // acquire, publish, read, release
  }
  const std::string seek = std::string("\x04\x02", 2) + std::string(16, '\1');
  return {open,
          rounds,
          open + seek + seek,
          open + std::string("\x06\x06\x06\x08\x0a\x0b\x0c\x02\x01\x00\x02\x01\xf9", 13),
          std::string("\x03\x00\x05", 3),
          std::string("\x03\x01\x18", 3) + std::string(24, '\7'),
          open + std::string("\x0d\x01\x02\x06\x0d\x00\x00", 7)};
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {}, nullptr, 1024};
  return target;
}

}  // namespace feedwater::fuzz
