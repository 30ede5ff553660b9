// A dataset is an indexed collection of records 0..size-1. Opening one reads its saved index or
// builds it; afterwards it is immutable and every call is thread-safe. Reading the bytes is not
// done here: a record says which extents it needs, the worker reads them, and Parse turns the bytes
// into fields without I/O.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/base/log_limiter.h"
#include "server/base/memory_budget.h"
#include "server/base/registry.h"
#include "server/base/schema.h"
#include "server/base/tensor.h"
#include "server/base/yaml.h"
#include "server/storage/object_source.h"
#include "server/storage/roots.h"

namespace feedwater::server {

class OfferedSources;
class RecordGiver;
class StagingArea;

struct FieldSpec {
  std::string name;
  TensorSpec spec;
  std::string doc;
  // Of an output of a pipeline that is ragged (spec.HasVaryingRows): rows of a sample at most. 0:
  // an output of fixed shape, or a field that is no output.
  int64_t max_rows = 0;

  bool is_ragged() const { return max_rows > 0; }
  // What one sample of an output takes in a batch at most. Error when that overflows, or is not
  // known.
  absl::StatusOr<int64_t> SampleBytes() const {
    return (is_ragged() ? spec.WithRows(max_rows) : spec).ByteSize();
  }
  // "float32[?,4], at most 128 rows"
  std::string ShapeText() const;
};

// The fields of one record, in the order of Dataset::fields(). Views into the bytes given to Parse
// or into `inline_values`.
struct Record {
  std::vector<Tensor> fields;
  std::vector<int64_t>
      inline_values;  // scalars such as labels live here; reserved before views are taken
  std::vector<std::byte>
      scratch;  // for formats whose bytes must be rearranged; sized before views are taken
};

// What the files and folders that an index depends on were when it was made. Times are of their
// last changes, in nanoseconds since 1970 by the file system's clock. Those of folders are left
// out: they change with every file that comes and is no sample.
struct Dependencies {
  // Another one where a file has changed, or a folder that holds records was exchanged.
  std::string identity;
  int64_t newest_file_ns = 0;  // of those in the past; 0: there are none
  std::string newest_file;
  std::vector<int64_t> later_ns;  // sorted: of files that have changed since some moment
};

// Where a field lies in every record, as it is in memory.
struct StoredField {
  size_t extent = 0;   // which of the record's
  int64_t offset = 0;  // in it
  // Of an int64 that is stored as one byte, which is good below this. 0: it is none.
  int64_t labels = 0;
  // Makes the field, in as many bytes, of what is stored. Null: it is stored as it is.
  void (*unpack)(const std::byte* stored, size_t bytes, std::byte* field) = nullptr;
};

// The datasets that a mix consists of (mix.h).
struct DatasetMix {
  struct Source {
    std::string name;           // for messages: "source 1 (parquet in web/shards)"
    std::string format, place;  // "web/shards": root and path
    int64_t first = 0;          // its first record
    int64_t records = 0;
    int64_t weight = 1;  // no number but 1 divides those of all sources
    const std::vector<int64_t>* shard_starts = nullptr;  // Dataset::shard_starts() of the source
  };
  // An epoch ends when every source was seen once, or when one was, or after so many samples.
  enum class Stop { kAll, kFirst, kSamples };

  std::vector<Source> sources;
  Stop stop = Stop::kAll;
  int64_t samples = 0;

  size_t SourceOf(int64_t record) const;  // REQUIRES: a record of the mix
};

class Dataset : public ObjectSource {  // its files by number
 public:
  virtual int64_t size() const = 0;
  virtual const std::vector<FieldSpec>& fields()
      const = 0;  // image_folder: data (encoded), label (int64)
  virtual const std::vector<std::string>& classes()
      const = 0;  // names by label; empty when there are none
  // Names by number of the classes that the texts of this field were numbered as; empty where it
  // has no such (`classes: auto`). REQUIRES: a field of fields().
  virtual std::vector<std::string> ClassesOf(size_t /*field*/) const { return {}; }
  // 32 hex digits over the name and size of every file and over contents (contents.h): the same
  // for a copy elsewhere, another one where contents are known to differ.
  virtual const std::string& digest() const = 0;
  // For reports of records: also tells apart what two programs give that has one form.
  virtual const std::string& contents() const { return digest(); }
  // Where the record's bytes are. Most formats have one extent a record. REQUIRES: record in [0,
  // size).
  virtual void Extents(int64_t record, std::vector<Extent>* extents) const = 0;
  // Its files have the numbers [0, objects()), and had so many bytes when they were indexed.
  virtual int64_t objects() const = 0;
  virtual int64_t ObjectBytes(uint32_t object) const = 0;
  // As people are told where a file lies: below the root; in a mix with the root's name before it.
  virtual std::string PathText(uint32_t object) const { return ObjectPath(object); }
  // Which of the record's extents stands for it where people are told of it (PlaceOf): the first
  // file that one of its fields is, else what the record itself lies in. REQUIRES: it has extents.
  virtual size_t NamingExtent(int64_t /*record*/) const { return 0; }
  // Those that its own files lie below, without what was unpacked.
  virtual std::vector<const Root*> roots() const { return {&root()}; }
  // Null: it is no mix.
  virtual const DatasetMix* mix() const { return nullptr; }
  // First record of each shard (always starts with 0), for `shuffle: block`; empty when every
  // record is its own file.
  virtual const std::vector<int64_t>& shard_starts() const = 0;
  // Bytes of the record's extents, in their order, to fields. Pure; any bytes are safe. The views
  // live as long as `bytes`.
  virtual absl::Status Parse(int64_t record, absl::Span<const absl::Span<const std::byte>> bytes,
                             Record* out) const = 0;
  // Where Parse would do no more than to point at the field in the record's bytes, to unpack it, or
  // to read a label; nothing where it does more. Then every record has as many extents, and all of
  // it is within them, or the record is bad.
  virtual std::optional<StoredField> StoredAt(size_t /*field*/) const { return std::nullopt; }
  // The record's class where the index knows it; -1 where only the record's bytes do.
  virtual int64_t LabelOf(int64_t) const { return -1; }
  virtual int64_t memory_bytes() const = 0;  // of the index in memory
  // Of a dataset whose records a program gives (given_records.h): Extents then adds none, and Parse
  // takes what was given as one. Null: they lie in files.
  virtual RecordGiver* giver() const { return nullptr; }
  // What was left out and why, for people: "12 files that are not images, 3 hidden files".
  virtual const std::string& notes() const = 0;

  // Looks at its files. OK while those that the index depends on are as they were when it was
  // made; FailedPrecondition that names the first one that is not. Other errors: it cannot be told.
  // kGoesOn: for a job that goes on with what the index says. To its folders files may come, and
  // from them go, where those that take others' places show it by themselves.
  enum class Look { kIsCurrent, kGoesOn };
  virtual absl::Status LookAgain(Reach = Reach::kAnywhere, Look = Look::kIsCurrent) const {
    return absl::OkStatus();
  }
  // Whether the folder that a file stands in is the one that was indexed, if the index depends on
  // it; its files may be others.
  virtual absl::Status LookAtFolderOf(uint32_t /*object*/, Reach) const { return absl::OkStatus(); }
  // Looks at the index alone. `later_ns` is of those after `as_of_ns`.
  virtual Dependencies dependencies(int64_t /*as_of_ns*/) const { return {}; }
  // What a file was when it was indexed. Nothing: the index does not have it, as of most formats
  // with a record a file.
  struct IndexedFile {
    std::optional<uint64_t> inode;
    std::optional<int64_t> modified_ns;
    int64_t changed_ns = 0;
  };
  virtual std::optional<IndexedFile> IndexedAs(uint32_t /*object*/) const { return std::nullopt; }
  // This file is known to be another one than the index says, though LookAgain may not see it: the
  // next opening makes a new index.
  virtual void MarkOutOfDate(uint32_t /*object*/) const {}
};

// Where people are told that a record lies.
struct RecordPlace {
  std::string path;    // as PathText; "" where it has no extents
  int64_t offset = 0;  // in that file
  int64_t bytes = 0;   // of all its extents
};
RecordPlace PlaceOf(const Dataset& dataset, int64_t record);

// Records done so far; total 0 while unknown. Called from the building thread, at most every 100
// ms, and once more at the end with done == total. Never called when a saved index is used.
using IndexProgress = std::function<void(int64_t done, int64_t total)>;

struct DatasetOptions {
  std::shared_ptr<const Roots> roots;
  std::string state_dir;                    // saved indexes; "" has none
  bool save = true;                         // an index that had to be built, for the next time
  std::shared_ptr<MemoryBudget> budget;     // may be null
  std::shared_ptr<StagingArea> staging;     // for files that have to be unpacked; may be null
  std::shared_ptr<OfferedSources> offered;  // for records that programs give; may be null
  int64_t user = LogLimiter::kNoSource;     // whose lines in the log they are, and whose programs
  IndexProgress progress;                   // may be null
  std::function<bool()> given_up;  // asked now and then, may be null: nobody wants it any more
  bool rebuild = false;            // ignore a saved index, and indexes beside files
};

// `node` is the pipeline's `dataset:` map: format, root, path and the format's own parameters; or
// a mix (mix.h), whose fields are those of its sources and `dataset_id`.
// Uses the saved index when the files have not changed since (see source/README.md), else builds
// and saves it. Cancelled when it was given up while its index was built.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const YamlNode& node,
                                                           const DatasetOptions& options);

// Everything in the map that decides which dataset it is, each parameter with its value whether it
// is written out or left to its default, and paths in one spelling: two maps open the same dataset
// when their keys are equal. Touches no file.
absl::StatusOr<std::string> DatasetKey(const YamlNode& node);

// Checks the map (format known, parameters right) without touching any file, and gives the fields
// that a record will have; nothing where only the files tell them.
absl::StatusOr<std::optional<std::vector<FieldSpec>>> DescribeDataset(const YamlNode& node);

// Whether the map is of a format whose records a program of the user's gives: then whoever opens it
// gets another dataset than other users.
bool IsOfUser(const YamlNode& node);

// The keys of `dataset:` that every format has that reads files: format, root, path. For the
// reference pages; a format's own are in its entry, those of a mix in mix.h.
const std::vector<ParamInfo>& DatasetParams();

}  // namespace feedwater::server
