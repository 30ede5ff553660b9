// A file that an op is made from, such as a vocabulary: a parameter that is a path in the pipeline
// file, and the bytes that stood there when the pipeline was read.
//
// Who reads a pipeline gives it an OpFileReader, which says which files may be read: those below
// declared roots (RootFiles), or those that somebody else has read (GivenFiles), as in a decoder,
// which can open nothing. The bytes' digest stands in the op's canonical text, and so in the
// digests of pipelines and prefixes: a file that has changed makes another pipeline. Where files
// are not read (DeclaredFiles, or no reader at all), a pipeline can be checked and planned; it has
// no digest then and cannot run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"
#include "server/base/schema.h"
#include "server/storage/roots.h"

namespace feedwater::server {

inline constexpr int64_t kMostOpFileBytes = 64 << 20;

// What a file held. Immutable, but for what ops have made of it. Thread-safe.
class FileContent {
 public:
  // `stamp`: FileStamp of the file; 0: it was not read here, or may change without another one.
  FileContent(std::string bytes, uint64_t stamp, MemoryReservation reservation);
  const std::string& bytes() const { return bytes_; }
  const std::string& digest() const { return digest_; }  // of bytes(): 32 hex digits
  uint64_t stamp() const { return stamp_; }

  // What ops make of the bytes: T from make(bytes), which gives StatusOr<std::shared_ptr<const T>>,
  // once for all that share them. `as` says what is made of them, in words of the pipeline file: of
  // one file only one thing is made, for which memory is reserved. REQUIRES: one T for one `as`.
  template <typename T, typename Make>
  absl::StatusOr<std::shared_ptr<const T>> Once(const std::string& as, Make make) const
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (made_ == nullptr) {
      absl::StatusOr<std::shared_ptr<const T>> fresh = make(bytes_);
      if (!fresh.ok()) return fresh.status();
      made_ = *std::move(fresh);
      made_as_ = as;
    }
    if (made_as_ != as) return OtherUse(as);
    return std::static_pointer_cast<const T>(made_);
  }

 private:
  absl::Status OtherUse(const std::string& as) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string bytes_, digest_;
  const uint64_t stamp_;
  const MemoryReservation reservation_;
  mutable Mutex mu_;
  mutable std::string made_as_ ABSL_GUARDED_BY(mu_);
  mutable std::shared_ptr<const void> made_ ABSL_GUARDED_BY(mu_);
};

// The parameter's value: `PATH`, or {root: ROOT, path: PATH}.
struct OpFile {
  std::string root, path;                      // "" as root: that of the dataset
  std::shared_ptr<const FileContent> content;  // null: it was not read

  // "'bert/vocab.txt' of root 'models'", for messages.
  std::string Describe() const;
};
// An op's files, by parameter.
using OpFiles = std::map<std::string, OpFile>;

FW_DECLARE_PARAM_TYPE(OpFile);

class OpFileReader {
 public:
  virtual ~OpFileReader() = default;
  // `root`: a root's name, or an absolute path. Null: the file may be read, and was not.
  virtual absl::StatusOr<std::shared_ptr<const FileContent>> Read(const std::string& root,
                                                                  const std::string& path) = 0;
};

// Reads below declared roots, as datasets are: resolved by the kernel, regular files only, no
// larger than kMostOpFileBytes, memory reserved before (`budget`; may be null). May wait for
// storage.
class RootFiles : public OpFileReader {
 public:
  RootFiles(const Roots& roots, std::shared_ptr<MemoryBudget> budget)
      : roots_(roots), budget_(std::move(budget)) {}
  absl::StatusOr<std::shared_ptr<const FileContent>> Read(const std::string& root,
                                                          const std::string& path) override;

 private:
  const Roots& roots_;
  const std::shared_ptr<MemoryBudget> budget_;
};

// Reads nothing, and so never waits: says whether the roots are declared.
class DeclaredFiles : public OpFileReader {
 public:
  explicit DeclaredFiles(const Roots& roots) : roots_(roots) {}
  absl::StatusOr<std::shared_ptr<const FileContent>> Read(const std::string& root,
                                                          const std::string& path) override;

 private:
  const Roots& roots_;
};

// Has `reader` read each file once, for all ops of one reading of a pipeline: they get the same
// bytes, whoever writes the file meanwhile.
class FilesOnce : public OpFileReader {
 public:
  explicit FilesOnce(OpFileReader& reader) : reader_(reader) {}
  absl::StatusOr<std::shared_ptr<const FileContent>> Read(const std::string& root,
                                                          const std::string& path) override;

 private:
  OpFileReader& reader_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const FileContent>> read_;
};

// Knows the files that it was given, and no others.
class GivenFiles : public OpFileReader {
 public:
  explicit GivenFiles(std::vector<OpFile> files) : files_(std::move(files)) {}
  absl::StatusOr<std::shared_ptr<const FileContent>> Read(const std::string& root,
                                                          const std::string& path) override;

 private:
  const std::vector<OpFile> files_;
};

// Whether all these files are what they were when they were read. May wait for storage.
bool AreCurrent(const std::vector<OpFile>& files, const Roots& roots);

// What a file of so many bytes takes, with what ops make of it.
constexpr int64_t OpFileMemory(int64_t bytes) { return 20 * bytes + (8 << 20); }
int64_t OpFileMemory(const std::vector<OpFile>& files);  // the sum of those that were read

}  // namespace feedwater::server
