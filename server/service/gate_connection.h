// One connection of the control gate, and the user who pays for it: the bytes that wait in both
// directions, cut into frames, and the calls in progress. Does no waiting and knows no limits of
// the daemon; control_gate.h has the rules.
//
// Thread safety: belongs to the gate's thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "server/base/fd.h"
#include "server/base/token_bucket.h"
#include "server/service/http2_frames.h"
#include "server/transport/data_server.h"

namespace feedwater::server {

// What one user has open, and how much more the user may ask for at once.
struct GateUser {
  // A job of 64 ranks that all open at once takes 64 connections and some 200 calls.
  static constexpr double kCallsPerSecond = 50, kCallsAtOnce = 600;
  static constexpr double kFramesPerSecond = 1000, kFramesAtOnce = 3000;
  static constexpr double kBytesPerSecond = 8 << 20, kBytesAtOnce = 32 << 20;

  int connections = 0, calls = 0;
  TokenBucket new_calls{kCallsPerSecond, kCallsAtOnce};
  TokenBucket frames{kFramesPerSecond, kFramesAtOnce};
  TokenBucket bytes{kBytesPerSecond, kBytesAtOnce};

  bool over_rates(int64_t now_ns) {
    return new_calls.empty(now_ns) || frames.empty(now_ns) || bytes.empty(now_ns);
  }
  bool idle(int64_t now_ns) {
    return connections == 0 && new_calls.full(now_ns) && frames.full(now_ns) && bytes.full(now_ns);
  }
};

// Bytes on their way in one direction: read, then passed as frames, then written.
struct GateFlow {
  std::string bytes;
  size_t passed = 0;  // of these, the first may be written
  FrameCutter cutter;

  // Both give false when the other side is gone; EAGAIN is not that.
  bool Read(int fd, size_t most, std::vector<char>* buffer);
  bool Write(int fd);
};

struct GateConnection {
  // What may wait here: a client's requests, and answers that it does not read.
  static constexpr size_t kRequestBytes = 16 << 10, kAnswerBytes = 64 << 10;

  uint64_t id = 0;
  Fd client, grpc;
  PeerIdentity peer;
  uid_t account = 0;
  GateUser* user = nullptr;
  std::string name;  // of the gate's end of the pair; "" before there is one
  GateFlow requests, answers;
  ClientFrameRules rules;
  size_t preface_left = kHttp2Preface.size();
  std::set<uint32_t> calls;
  bool waits = false;       // for its user's rates
  bool grpc_ended = false;  // with answers that are still to be read
  bool closing = false;     // takes what is left of the answers, until
  int64_t close_by_ns = 0;  // this moment; before the preface has come: the handshake's
  uint32_t client_events = 0, grpc_events = 0;

  bool gone() const { return !client; }
  // Reads answers and passes their frames. False: gRPC has closed its end.
  bool ReadAnswers(std::vector<char>* buffer);
  void EndCall(uint32_t stream);
};

// What waits in the kernel for a socket; its own default would be 208 KiB.
void LimitSocketBuffers(int fd);

}  // namespace feedwater::server
