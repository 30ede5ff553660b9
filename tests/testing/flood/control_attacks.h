// What hostile_flood does to control.sock: calls with wrong arguments, with bytes that are no
// request, and noise.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "feedwater/v1/control.grpc.pb.h"
#include "tests/testing/flood/flood.h"

namespace feedwater::testing {

// Of one thread. What it is made with outlives it. A call that was begun counts as a message.
class ControlAttacks {
 public:
  ControlAttacks(const FloodOptions& options, Dice* dice, FloodTally* tally);

  void Connect();  // by another connection from now on

  // One call each. Open: whether it was right.
  bool Open(const v1::OpenStreamRequest& request);
  void Close(const std::string& ticket);

  void WrongCalls();  // requests whose values are wrong
  // Any method with any bytes: noise, or a request with some of its bits turned.
  void RawCall();
  void Noise();

 private:
  void Note(const grpc::Status& status);
  std::string Ticket();
  v1::OpenStreamRequest WrongRequest();

  const FloodOptions& options_;
  Dice& dice_;
  FloodTally& tally_;
  std::unique_ptr<v1::Control::Stub> stub_;
  std::unique_ptr<grpc::GenericStub> raw_;
};

}  // namespace feedwater::testing
