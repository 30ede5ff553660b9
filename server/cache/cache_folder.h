// The folder that one cache has on disk (disk_tier.h), as it looks to whoever does not have it
// open: whether it is one, what it takes, and how it is removed. Where caches lie, others may keep
// folders of theirs (a state_dir of /nvme makes /nvme/cache): those are never touched.
//
// Thread-safe; a folder that a DiskTier has open is its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace feedwater::server {

inline constexpr char kJournalName[] = "journal";

struct JournalHeader {
  uint64_t magic;
  uint64_t records;
  uint64_t identity_low, identity_high;  // XXH3-128 of the identity
};
static_assert(sizeof(JournalHeader) == 32);

JournalHeader MakeJournalHeader(const std::string& identity, int64_t records);

std::string SegmentName(uint32_t number);
bool IsSegmentName(absl::string_view name);

// Removes one segment or all. REQUIRES: no tier has them, so that nobody reads them.
void RemoveSegment(const std::string& path);
void RemoveSegments(const std::string& folder);

struct SegmentFile {
  std::string name;
  int64_t bytes;
};
// The segments of a folder, by number. Nothing: it is none of ours. It is one where its journal
// says that it is of the identity, which is the folder's name, or, since a journal may never have
// been written or be damaged, where a cache could be called so and it holds nothing but a journal
// and segments.
std::optional<std::vector<SegmentFile>> FindSegments(const std::string& folder,
                                                     const std::string& identity);

// Removes segments, journal and the folder. What is none of these stays, and the folder with it.
void RemoveCacheFolder(const std::string& folder);

}  // namespace feedwater::server
