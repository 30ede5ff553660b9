#include "server/pipeline/read_counts.h"

namespace feedwater::server {
namespace {

const Registrar<CounterEntry> kCounters[] = {
    {"storage_reads", {"reads of datasets' files, without those that were read ahead"}},
    {"storage_read_bytes", {"bytes of these reads"}},
    {"storage_seeks",
     {"of these reads, those that did not begin where the worker's last one ended"}},
    {"storage_reads_joined", {"ranges of files that came with the read of a neighbour"}},
    {"storage_reads_found_ahead", {"reads of what had been read ahead"}},
    {"storage_ahead_reads", {"pieces of `shuffle: block` that were read ahead"}},
    {"storage_ahead_bytes", {"bytes of these pieces"}},
    {"storage_ahead_seeks", {"of these pieces, those that did not begin where the last one ended"}},
};

}  // namespace

Counters ReadCounts::counters() const {
  return {{"storage_reads", reads},
          {"storage_read_bytes", bytes},
          {"storage_seeks", seeks},
          {"storage_reads_joined", joined},
          {"storage_reads_found_ahead", found_ahead},
          {"storage_ahead_reads", ahead},
          {"storage_ahead_bytes", ahead_bytes},
          {"storage_ahead_seeks", ahead_seeks}};
}

}  // namespace feedwater::server
