// Kinds of storage, by what a read costs there, and how reads follow from it: over which gaps
// neighbouring records are read at once, and whether a window of `shuffle: block` is read ahead.
// Pure functions of what the kernel's tables say; which mount a file lies on is in mounts.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace feedwater::server {

enum class StorageKind {
  kUnknown,     // taken as flash
  kMemory,      // tmpfs
  kFlash,       // SSD, NVMe: any place costs the same
  kRotational,  // a disk whose heads have to move
  kNetwork      // a file system behind a network or a program: each read is a request
};
// "unknown", "memory", "flash", "rotational", "network", as `storage.kind` has them.
absl::string_view StorageKindName(StorageKind kind);
std::vector<std::string> StorageKindChoices();                     // "auto" before them
std::optional<StorageKind> StorageKindOf(absl::string_view name);  // nothing for "auto"

// A line of /proc/self/mountinfo.
struct Mount {
  std::string type, source;  // "ext4", "/dev/sda2"
  uint32_t major = 0, minor = 0;
};
// Nothing when there is no mount with this number.
std::optional<Mount> FindMount(absl::string_view mountinfo, uint64_t number);
// A file system whose calls end as soon as a device of this machine answers.
bool IsLocalType(absl::string_view type);

struct Storage {
  StorageKind kind = StorageKind::kUnknown;
  std::string device;               // "nvme0n1"; "" where there is none of this machine
  std::string why;                  // "nfs is behind a network"
  int64_t ahead_bytes = 128 << 10;  // that one call of read-ahead advice is good for
};
// Reads the device's files below `sys`, which a test brings its own of.
Storage StorageOn(const Mount& mount, const std::string& sys = "/sys");

// How to read there.
struct ReadHabits {
  // Bytes between two extents that are read with them, to save a read: what a seek, a request or a
  // system call costs, in bytes.
  int64_t join_gap_bytes = 0;
  bool reads_ahead = false;  // the windows of `shuffle: block`, in stored order
};
ReadHabits HabitsOf(StorageKind kind);

// What a read costs, for estimates (README.md, "What a read costs").
struct CostModel {
  double seek_s = 0;          // before a read that does not go on where the one before ended
  double request_s = 0;       // of each request
  double bytes_per_s = 0;     // once it flows
  int64_t request_bytes = 0;  // the most that one request carries; 0: any number
  // Seconds for so many reads of so many bytes each, so many of which are elsewhere.
  double Seconds(double reads, double bytes, double seeks) const;
};
CostModel CostsOf(StorageKind kind);

}  // namespace feedwater::server
