// One record in the form that its job's cache keeps (kept_fields.h): opened after
// the cache had it, or packed and put into the cache after it was read. Reused for the next record.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "server/decoder/sample_maker.h"
#include "server/pipeline/job.h"
#include "server/pipeline/kept_fields.h"
#include "server/pipeline/record_reader.h"

namespace feedwater::server {

class CachedRecord {
 public:
  // Opens what the cache gave of a record as fields(). An error says nothing about the record,
  // which is then read from its dataset. REQUIRES: the bytes come from the cache.
  absl::Status Open(const Job& job, const RecordBytes& bytes);

  // Forgets what was opened or packed before; the memory stays.
  void Begin() { is_packed_ = false; }
  // Whether the cache wants the record that was read.
  static bool IsWanted(const Job& job, const RecordBytes& bytes);
  // What Pack takes of memory.
  struct Need {
    int64_t packed_bytes = 0;       // of what is packed, at most
    int64_t coefficient_bytes = 0;  // beside that and what the graph takes (PackingNeed)
  };
  static Need NeedOf(const Job& job, const Record& record);
  // Packs the record's fields, JPEGs as coefficients where that is the cache's kind. Afterwards the
  // sample is made from fields(), so that a JPEG is decoded once although all of it is kept and
  // only a part is looked at. A record that cannot be kept is not packed; that is no error.
  absl::Status Pack(const Job& job, const Record& record, SampleMaker& maker);
  // Packs the fields that the plan's prefix has made of the record.
  void PackFields(const Job& job, const Record& fields);
  bool is_packed() const { return is_packed_; }
  // Puts what was packed into the cache, if it was, and if the record's files are proven to be
  // unchanged: another job may take it from there before this one has noticed a change.
  void Put(const Job& job, const RecordBytes& bytes);

  const Record& fields() const { return fields_; }

  void GiveBackMemory();
  // Frees the payload where it is large: the budget has no room for it between samples.
  void GiveBackLargeMemory();

 private:
  Record fields_;                   // views into payload_, or into what the cache gave
  std::vector<std::byte> payload_;  // what is put into the cache
  std::vector<std::vector<std::byte>> documents_;
  bool is_packed_ = false;
};

}  // namespace feedwater::server
