// What the daemon removes from its state folder: its own files alone. The folder may be one where
// others keep theirs, under names such as cache/ and indexes/ too.
//
// Thread-safe.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

// Whether a regular file, no link, is at the path; with `info`, what it is.
bool IsRegularFile(const std::string& path, struct stat* info = nullptr);

// The first bytes of such a file; "": it is none, or is shorter.
std::string BeginningOf(const std::string& path, size_t bytes);

// Removes a regular file and gives the disk back at once, also of one that somebody has open still:
// descriptors are kept for a while after a job. What has other names beside this one (hard links)
// keeps its bytes. What is no regular file stays: FailedPrecondition. NotFound: nothing is there.
absl::Status RemoveOwnFile(const std::string& path);

// What lies in a folder and is not the daemon's own. It is left; the log says so, once for each
// folder.
class ForeignEntries {
 public:
  explicit ForeignEntries(std::string folder) : folder_(std::move(folder)) {}
  void Add(const std::string& name);
  void Report() const;

  size_t count() const { return count_; }

 private:
  const std::string folder_;
  size_t count_ = 0;
  std::string first_;  // by name
};

}  // namespace feedwater::server
