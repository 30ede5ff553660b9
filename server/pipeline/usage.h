// What a worker spent on one job: the figures behind fair shares, `feedwater status` and `feedwater
// bench`. A worker adds them up without a lock and hands them to the scheduler with every ticket.
#pragma once

#include <cstdint>

#include "server/codec/image.h"

namespace feedwater::server {

struct Usage {
  int64_t samples = 0;  // places worked on, dropped ones included
  int64_t bytes_read = 0;
  int64_t cpu_ns = 0;   // of the worker's thread and of decoder processes
  int64_t held_ns = 0;  // waited for a process: a decoder that did not work, or a user's own op
  // What counts in shares and turns.
  int64_t used_ns() const { return cpu_ns + held_ns; }
  // Elapsed time by stage. `wait` is a worker with nothing else to do than to wait for a read;
  // `read` is opening files and starting reads (with the pread engine the reads themselves).
  int64_t wait_ns = 0;
  int64_t read_ns = 0;
  int64_t parse_ns = 0;
  int64_t run_ns = 0;
  int64_t batch_ns = 0;
  DecodeCounts decoded{};
  bool is_large = false;  // a sample had to have a room of its own (sample_rooms.h)

  void Add(const Usage& other) {
    samples += other.samples;
    bytes_read += other.bytes_read;
    cpu_ns += other.cpu_ns;
    held_ns += other.held_ns;
    wait_ns += other.wait_ns;
    read_ns += other.read_ns;
    parse_ns += other.parse_ns;
    run_ns += other.run_ns;
    batch_ns += other.batch_ns;
    decoded.AddSince({}, other.decoded);
    is_large |= other.is_large;
  }
};

}  // namespace feedwater::server
