// What bounds the connections of clients, on data.sock and on control.sock alike: `limits` of the
// configuration, and the descriptors that the process may have.
#pragma once

#include <cstdint>

namespace feedwater::server {

inline constexpr int kNoDescriptorLimit = INT32_MAX;

struct ConnectionLimits {
  int max_connections = 1024;
  int connections_per_uid = 64;
  int calls_per_uid = 64;        // running on control.sock
  double handshake_seconds = 5;  // for each step until a connection is served
  // Connections whose descriptor would have this number or more are refused, so that those above
  // are left for work.
  int max_descriptor = kNoDescriptorLimit;
};

}  // namespace feedwater::server
