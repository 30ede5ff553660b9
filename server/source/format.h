// What a dataset format is: one file of source/formats/ with its parameters, a Format that builds
// the index of a folder or file, and a Dataset that answers from the index. Nobody includes that
// file; it registers itself.
//
//   struct Params { std::string split = "train"; };               // defaults stand only here
//   class MyFormat final : public Format { explicit MyFormat(Params); ... };
//   const Registrar kRegistrar("my_format", DeclareFormat<MyFormat>("What it reads.", "dataset:
//   {...}", FormatSchema<Params>()...));
//
// The floor does the rest: it keys, saves, verifies and reuses indexes, and it builds anew when a
// file or folder that the index depends on has another size, time or inode. BuildIndex is the only
// place that looks at files.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "server/base/key.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"
#include "server/base/registry.h"
#include "server/base/schema.h"
#include "server/source/dataset.h"
#include "server/source/field_requests.h"
#include "server/source/index_file.h"
#include "server/source/staging.h"

namespace feedwater::server {

// Where the dataset lies. `path` is relative to the root, "" for the root itself.
struct DatasetLocation {
  std::shared_ptr<const Root> root;
  std::string path;

  std::string Below(absl::string_view name) const { return JoinPath(path, name); }
  std::string Describe() const;  // for messages

  static std::string JoinPath(absl::string_view folder, absl::string_view name) {
    if (folder.empty()) return std::string(name);
    return name.empty() ? std::string(folder) : absl::StrCat(folder, "/", name);
  }
};

// The state of a file or folder that an index depends on.
struct Stamp {
  std::string path;                                                // below the root
  uint64_t inode = 0, bytes = 0, modified_ns = 0, changed_ns = 0;  // bytes: 0 for folders
  uint64_t device = 0;  // not in an index: the kernel gives other numbers at another time
  bool operator==(const Stamp& other) const = default;
};
Stamp MakeStamp(std::string path, const struct stat& info);
// What stands at a path now, all zero when nothing does; waits as AwaitClockTick does. Call it
// before looking inside. `unsettled_until_ns` grows to UnsettledUntilNs of it.
absl::StatusOr<Stamp> StampNow(const Root& root, const std::string& path,
                               int64_t* unsettled_until_ns);

// The devices of an index's stamps, by their numbers; nearly always it is one.
class StampDevices {
 public:
  StampDevices() = default;
  StampDevices(const std::vector<Stamp>& stamps, const std::vector<Stamp>& empty_folders);
  void Set(size_t stamp, uint64_t device);
  uint64_t Of(size_t stamp) const;  // 0: nothing is there

 private:
  std::optional<uint64_t> common_;
  std::map<size_t, uint64_t> others_;
};

// Of files that are not there, the coming of so many is looked for: each look asks for all of them.
inline constexpr int64_t kMostAbsent = 1000;

// What BuildIndex finds.
class IndexBuilder {
 public:
  // `staged_as`: the name of the dataset's folder of unpacked files.
  IndexBuilder(const DatasetOptions& options, std::string staged_as)
      : progress_(options.progress),
        given_up_(options.given_up),
        budget_(options.budget),
        staging_(options.staging),
        staged_as_(std::move(staged_as)),
        rebuilds_(options.rebuild) {}

  // Whether everything is to be found anew, without what others have left about it.
  bool rebuilds() const { return rebuilds_; }

  int64_t records = 0;
  std::vector<std::string> classes;
  std::string
      digest;  // 32 hex digits over the name and size of every file; contents are added to it
  std::string notes;
  std::vector<Stamp> stamps;         // of what holds the records, or tells about them
  std::vector<Stamp> empty_folders;  // that may hold some later
  int64_t unsettled_until_ns = 0;    // the last of them (UnsettledUntilNs)
  IndexWriter columns;               // the format's own sections; upper-case tags are the floor's

  // The dataset's place for BuildIndex: this object sees what is opened there, and lives as long.
  absl::StatusOr<DatasetLocation> Watch(const DatasetLocation& location);
  // The path of a file or folder that was another one when it was opened than its stamp says: a
  // path may lead elsewhere between its stamp and its opening, and back again.
  std::optional<std::string> FindUnproven() const ABSL_LOCKS_EXCLUDED(mu_);

  // Stamps a file or folder below the root and waits for the clock, then gives what it is. NotFound
  // where nothing is there, which the index depends on then.
  absl::StatusOr<struct stat> DependOn(const Root& root, const std::string& path);
  // Unpacks a file that is compressed as a whole, which the index then depends on.
  absl::StatusOr<StagedFolder::File> Unpack(const Root& root, const std::string& path);
  // The same for a file that the format unpacks by itself (StagedFolder::Make). `why` says why it
  // cannot be read as it is: "has groups of ..."; `cure`, what else helps. The file is below
  // `root`; the index depends on it already.
  absl::StatusOr<StagedFolder::File> Stage(const Root& root, const std::string& path,
                                           absl::string_view form, absl::string_view why,
                                           absl::string_view cure,
                                           const StagedFolder::WriteRecords& write);
  // The dataset's folder of unpacked files; null: there are none.
  const std::shared_ptr<const StagedFolder>& staged() const { return staged_; }
  // Tells how far the work is, at most every 100 ms. Cancelled when nobody wants the index any
  // more.
  absl::Status Progress(int64_t done, int64_t total);
  // Counts memory that what was found takes until the index is made. ResourceExhausted when the
  // budget has no room. Thread-safe.
  absl::Status Take(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // What was found is now in this object, and nowhere else: takes as much as the rest of the work
  // needs of it.
  absl::Status TakeOwnAlone() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const IndexProgress progress_;
  const std::function<bool()> given_up_;
  const std::shared_ptr<MemoryBudget> budget_;
  // Opens the folder. FailedPrecondition where nothing can be unpacked.
  absl::Status OpenStaged(const std::string& file, absl::string_view why, absl::string_view cure);
  absl::Status SawOpened(const Stamp& opened) ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<StagingArea> staging_;
  const std::string staged_as_;
  const bool rebuilds_;
  std::shared_ptr<const StagedFolder> staged_;
  int64_t last_progress_ns_ = 0;
  std::atomic<int64_t> taken_{0}, reserved_{0};
  mutable Mutex mu_;
  std::vector<MemoryReservation> reservations_ ABSL_GUARDED_BY(mu_);
  // By the hash of its path, that of what was opened there: kSeveral where these were several.
  absl::flat_hash_map<size_t, size_t> opened_ ABSL_GUARDED_BY(mu_);
};

// What every dataset made from an index knows.
struct IndexedParts {
  DatasetLocation location;
  std::shared_ptr<const Index> index;
  int64_t records = 0;
  std::vector<FieldSpec> fields;
  std::vector<std::string> classes;
  MemoryReservation classes_memory;
  std::string digest, notes;
  std::string saved_as;  // the index's file; "" has none
  StampDevices devices;
  // A file may have been written to while it was indexed, until then (CLOCK_REALTIME). 0: none.
  int64_t unsettled_until_ns = 0;
  std::shared_ptr<const StagedFolder> staged;  // held for its unpacked files; null: there are none
};

// The stamps as sections of an index, and how many there are.
void AddStamps(const std::vector<Stamp>& stamps, const std::vector<Stamp>& empty_folders,
               IndexWriter* columns);
absl::StatusOr<int64_t> CountStamps(const Index& index);
// Whether they still hold: "" or what has changed.
struct FindingChange {
  Reach reach = Reach::kAnywhere;
  Dataset::Look look = Dataset::Look::kIsCurrent;
  const StampDevices* devices = nullptr;  // null: not known, and found by the same look
  StampDevices* found = nullptr;
  std::function<bool()> given_up = nullptr;  // asked now and then: the end is Cancelled
};
absl::StatusOr<std::string> FindChange(const Index& index, const Root& root,
                                       const FindingChange& how);

class IndexedDataset : public Dataset {
 public:
  int64_t size() const final { return parts_.records; }
  const std::vector<FieldSpec>& fields() const final { return parts_.fields; }
  const std::vector<std::string>& classes() const final { return parts_.classes; }
  const std::string& digest() const final { return parts_.digest; }
  const Root& root() const final { return *parts_.location.root; }
  int64_t memory_bytes() const final;
  const std::string& notes() const final { return parts_.notes; }
  const std::vector<int64_t>& shard_starts() const final { return shard_starts_; }
  absl::Status LookAgain(Reach reach = Reach::kAnywhere, Look look = Look::kIsCurrent) const final;
  absl::Status LookAtFolderOf(uint32_t object, Reach reach) const final;
  Dependencies dependencies(int64_t as_of_ns) const final;
  std::optional<IndexedFile> IndexedAs(uint32_t object) const final;
  void MarkOutOfDate(uint32_t object) const final;

 protected:
  explicit IndexedDataset(IndexedParts parts) : parts_(std::move(parts)) {}
  const IndexedParts& parts() const { return parts_; }
  // Makes room in `out` for the fields and the inline values.
  void Prepare(Record* out, size_t inline_values) const;
  bool IsStaged(uint32_t object) const;  // one of the unpacked files
  void SetShardStarts(std::vector<int64_t> starts) { shard_starts_ = std::move(starts); }

 private:
  // The saved stamp of what has this path; nullopt: there is none.
  std::optional<Stamp> StampOf(absl::string_view path) const;

  const IndexedParts parts_;
  std::vector<int64_t> shard_starts_;
  mutable std::atomic<bool> out_of_date_{false};
  // Hashes of the paths of stamps, sorted, and where these stand; made when it is first asked for.
  mutable absl::once_flag stamps_sorted_;
  mutable std::vector<std::pair<size_t, size_t>> stamp_of_path_;
};

class Format {
 public:
  virtual ~Format() = default;
  virtual std::vector<FieldSpec> fields() const = 0;
  // False: the files say which fields there are, and Open sets them.
  virtual bool knows_fields() const { return true; }
  // The version of the format's sections of an index. Another one makes saved indexes be made anew.
  virtual int64_t sections_version() const = 0;
  // Finds the records. NotFound or InvalidArgument naming path and root.
  virtual absl::Status BuildIndex(const DatasetLocation& location, IndexBuilder* builder) const = 0;
  // Of a format without files (FormatEntry::has_files), in place of the two others.
  virtual absl::StatusOr<std::shared_ptr<const Dataset>> OpenGiven(const DatasetOptions&) const {
    return absl::InternalError("this format reads files");
  }
  // A dataset over an index of this format. Touches no file. DataLoss when the sections do not fit
  // together: every number that is used later must be checked here.
  virtual absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts) const = 0;
};

// "a//./b/" as "a/b". What leads out of the folder that it is relative to is refused with the
// node's place; `what` is the parameter.
absl::StatusOr<std::string> NormalizePath(absl::string_view what, const std::string& path,
                                          const YamlNode& node);

// A format's parameters: a Schema that keeps files in one spelling and tells every value for the
// index's key. All that is declared is in the key.
template <typename P>
class FormatSchema {
 public:
  template <typename T>
  FormatSchema&& Param(std::string name, T P::*field, std::string doc, Constraint rule = {}) && {
    AddToKey(name, field);
    std::move(schema_).Param(std::move(name), field, std::move(doc), std::move(rule));
    return std::move(*this);
  }
  // The same for one that came later: with its default, keys stay what they were without it, and so
  // do saved indexes and what `feedwater convert` has noted of its source.
  template <typename T>
  FormatSchema&& LaterParam(std::string name, T P::*field, std::string doc,
                            Constraint rule = {}) && {
    values_.push_back([name, field](const P& params, Key* key) {
      if (params.*field != P().*field) key->Add(name, ParamType<T>::Text(params.*field));
    });
    std::move(schema_).Param(std::move(name), field, std::move(doc), std::move(rule));
    return std::move(*this);
  }
  template <typename T>
  FormatSchema&& Required(std::string name, T P::*field, std::string doc, Constraint rule = {}) && {
    AddToKey(name, field);
    std::move(schema_).Required(std::move(name), field, std::move(doc), std::move(rule));
    return std::move(*this);
  }
  // The name of a file below the dataset's path, or of several.
  FormatSchema&& File(const std::string& name, std::string P::*field, std::string doc) && {
    spellings_.push_back([name, field](const YamlNode& node, P* params) {
      return Spell(name, node, &(params->*field));
    });
    return std::move(*this).Param(name, field, std::move(doc));
  }
  FormatSchema&& Files(const std::string& name, std::vector<std::string> P::*field,
                       std::string doc) && {
    spellings_.push_back([name, field](const YamlNode& node, P* params) {
      for (std::string& file : params->*field) FW_RETURN_IF_ERROR(Spell(name, node, &file));
      return absl::OkStatus();
    });
    return std::move(*this).Param(name, field, std::move(doc));
  }
  // `fields`, of every format with columns (column_format.h).
  FormatSchema&& Fields(FieldRequests P::*field) && {
    return std::move(*this).Param(
        "fields", field,
        "Which columns become fields, under which names and as what. Left out: every column under "
        "its own name.");
  }

  const std::vector<ParamInfo>& params() const { return schema_.params(); }
  absl::StatusOr<P> Read(const YamlNode& node, absl::string_view what) const {
    FW_ASSIGN_OR_RETURN(P params, schema_.Read(node, what));
    for (const auto& spell : spellings_) FW_RETURN_IF_ERROR(spell(node, &params));
    return params;
  }
  std::string Values(const P& params) const {
    Key key("parameters");
    for (const auto& add : values_) add(params, &key);
    return key.text();
  }

 private:
  template <typename T>
  void AddToKey(const std::string& name, T P::*field) {
    values_.push_back([name, field](const P& params, Key* key) {
      key->Add(name, ParamType<T>::Text(params.*field));
    });
  }
  static absl::Status Spell(const std::string& name, const YamlNode& node, std::string* file) {
    const YamlNode* written = node.Find(name);
    if (written == nullptr || file->empty()) return absl::OkStatus();
    FW_ASSIGN_OR_RETURN(*file, NormalizePath(name, *file, *written));
    if (!file->empty()) return absl::OkStatus();
    return written->Error(absl::StrCat("'", name, "' names a folder, not a file"));
  }

  Schema<P> schema_;
  std::vector<std::function<void(const P&, Key*)>> values_;
  std::vector<std::function<absl::Status(const YamlNode&, P*)>> spellings_;
};

struct FormatEntry {
  static constexpr const char* kKind = "format";
  struct Made {
    std::unique_ptr<Format> format;
    std::string values;  // of all its parameters, for keys
  };
  std::string summary, example;
  // Of several formats that read the same folder, the one with the least is what it is: 0 unless it
  // also reads what is there for another one.
  int generality = 0;
  // False: a program gives the records. Then the map has neither root nor path, and there is no
  // index.
  bool has_files = true;
  std::vector<ParamInfo> params;
  std::function<absl::StatusOr<Made>(const YamlNode& params, absl::string_view what)> create;
};

template <typename F, typename P>
FormatEntry DeclareFormat(std::string summary, std::string example, FormatSchema<P> schema,
                          int generality = 0) {
  FormatEntry entry;
  entry.generality = generality;
  entry.summary = std::move(summary);
  entry.example = std::move(example);
  entry.params = schema.params();
  entry.create = [schema = std::move(schema)](
                     const YamlNode& node,
                     absl::string_view what) -> absl::StatusOr<FormatEntry::Made> {
    FW_ASSIGN_OR_RETURN(P params, schema.Read(node, what));
    std::string values = schema.Values(params);
    return FormatEntry::Made{std::make_unique<F>(std::move(params)), std::move(values)};
  };
  return entry;
}

// The names in a folder, sorted by bytes, without "." and "..". They are counted as they are found;
// `builder` may be null.
absl::StatusOr<std::vector<std::string>> ListFolder(const Root& root, const std::string& path,
                                                    IndexBuilder* builder);
// The bytes [begin, begin + length) of a file, fewer where it ends before. For headers and lists of
// names.
absl::StatusOr<std::string> ReadRange(const Root& root, const std::string& path, int64_t begin,
                                      size_t length);
inline absl::StatusOr<std::string> ReadHead(const Root& root, const std::string& path,
                                            size_t length) {
  return ReadRange(root, path, 0, length);
}

}  // namespace feedwater::server
