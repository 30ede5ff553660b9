// Engine `null`: every read completes at once with zeroed bytes. It measures the floors above
// without the cost of storage and is never chosen by `auto`. Nothing of what it gives is kept on
// disk.
#include <cstring>
#include <deque>

#include "server/storage/engine.h"

namespace feedwater::server {
namespace {

class NullEngine final : public ReadEngine {
 public:
  absl::string_view name() const override { return "null"; }

  void Submit(ReadOp* op) override {
    bool complete = !Begin(op);
    while (!complete) {
      Piece piece = Remaining(*op);
      std::memset(piece.into, 0, static_cast<size_t>(piece.length));
      complete = Advance(op, piece.length);
    }
    ready_.push_back(op);
  }

  ReadOp* Collect(bool) override {
    if (ready_.empty()) return nullptr;
    ReadOp* op = ready_.front();
    ready_.pop_front();
    return op;
  }

  size_t in_flight() const override { return ready_.size(); }

 private:
  std::deque<ReadOp*> ready_;
};

const Registrar kRegistrar(
    "null",
    EngineEntry{"Zeroed bytes at once, to measure everything above storage.",
                /*preference=*/0, [] { return absl::StatusOr<std::string>("null reads nothing"); },
                [](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<ReadEngine>> {
                  return std::make_unique<NullEngine>();
                },
                /*gives_bytes=*/false});

}  // namespace
}  // namespace feedwater::server
