// Format `tfrecord`: TensorFlow's record files, with a tf.train.Example or SequenceExample in each
// record. A record is its length, a CRC32C of the length, its bytes, and a CRC32C of those. The CRC
// of the length is checked when the file is indexed, that of the bytes whenever they are read.
//
// The files do not say what the features hold: the first records do, some from every file. What a
// record has otherwise is a bad sample.
//
// The index keeps 4 bytes a record (8 in files of more than 4 GiB): where it begins.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/crc32c.h"
#include "server/base/units.h"
#include "server/base/yaml.h"
#include "server/source/column_format.h"
#include "server/source/file_window.h"
#include "server/source/tf_example.h"

namespace feedwater::server {
namespace {

using Kind = TfFeature::Kind;

constexpr IndexTag kBegins = MakeIndexTag("tfbe");  // first byte of each record in its file
constexpr IndexTag kLists = MakeIndexTag("tfls");   // by column, whether it is a feature list

constexpr absl::string_view kSuffixes[] = {".tfrecord", ".tfrecords", ".record"};
constexpr size_t kHead = 12, kTail = 4;       // of a record, around its bytes
constexpr int64_t kProbes = 100;              // records that tell what the features hold
constexpr int64_t kMaxProbeBytes = 64 << 20;  // of one of those
constexpr size_t kMaxFeatures = 10'000;
constexpr size_t kMaxFeatureName = 4 << 10;
constexpr int64_t kBytesPerFeature = 256;  // as a column, beside its names
constexpr size_t kNamedFeatures = 3;       // of those that are no columns, in the notes

struct TfrecordParams {
  std::vector<std::string> files;
  FieldRequests fields;
};

template <typename T>
T Load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// What the first records have under one name.
struct Probed {
  bool is_list = false;
  Kind kind = Kind::kNone;
  int64_t least = INT64_MAX, most = 0;  // values; of a list, values of a step
};

class Probes {
 public:
  explicit Probes(IndexBuilder* builder) : builder_(builder) {}

  // Features of another type than before are for the record's own reading to refuse. DataLoss: the
  // record is damaged, and nothing of it was added. ResourceExhausted: there is no memory for it.
  absl::Status Add(absl::string_view record) {
    FW_RETURN_IF_ERROR(
        ForEachFeature(record, [](absl::string_view, bool is_list, absl::string_view message) {
          return ReadTfFeature(is_list, message).status();
        }));
    ++records_;
    return ForEachFeature(
        record,
        [&](absl::string_view name, bool is_list, absl::string_view message) -> absl::Status {
          FW_ASSIGN_OR_RETURN(const TfFeature feature, ReadTfFeature(is_list, message));
          if (feature.kind == Kind::kNone) return absl::OkStatus();
          auto found = features_.find(name);
          if (found == features_.end()) {
            if (features_.size() == kMaxFeatures) {
              return absl::InvalidArgumentError(
                  absl::StrCat("has more than ", kMaxFeatures, " different features"));
            }
            if (name.size() > kMaxFeatureName) {
              return absl::InvalidArgumentError(absl::StrCat(
                  "has a feature '", Printable(name.substr(0, 40)), "...', whose name has ",
                  name.size(), " bytes, more than ", kMaxFeatureName));
            }
            FW_RETURN_IF_ERROR(
                builder_->Take(kBytesPerFeature + 8 * static_cast<int64_t>(name.size())));
            found = features_.emplace(std::string(name), Probed{is_list, feature.kind}).first;
          }
          Probed& probed = found->second;
          if (probed.is_list != is_list || probed.kind != feature.kind) return absl::OkStatus();
          probed.least = std::min(probed.least, is_list ? feature.step_values : feature.values);
          probed.most = std::max(probed.most, is_list ? feature.step_values : feature.values);
          return absl::OkStatus();
        });
  }
  int64_t records() const { return records_; }
  const std::map<std::string, Probed, std::less<>>& features() const { return features_; }

 private:
  IndexBuilder* const builder_;
  std::map<std::string, Probed, std::less<>> features_;
  int64_t records_ = 0;
};

// Why a feature can be no column; "" when it can.
std::string WhyNoColumn(const Probed& feature) {
  if (feature.kind == Kind::kBytes) {
    if (feature.is_list) return "is a list of bytes_lists";
    if (feature.most > 1) return absl::StrCat("is a bytes_list of up to ", feature.most, " values");
  }
  if (feature.is_list && feature.least != feature.most)
    return "is a feature list whose steps differ in length";
  return "";
}

ColumnSpec ColumnOf(const std::string& name, const Probed& feature) {
  ColumnSpec column = ColumnSpec::Bytes(name);
  if (feature.kind != Kind::kBytes) {
    const DType dtype = feature.kind == Kind::kFloats ? DType::kFloat32 : DType::kInt64;
    const bool is_one = feature.least == 1 && feature.most == 1;
    Shape shape = {feature.least == feature.most && feature.most > 0 ? feature.most : -1};
    if (feature.is_list) {
      shape = feature.most > 1 ? Shape{-1, feature.most} : Shape{-1};
    } else if (is_one) {
      shape = {};
    }
    column = ColumnSpec::Number(name, dtype, std::move(shape));
  }
  column.doc = absl::StrCat("Feature ", feature.is_list ? "list " : "", "'", Printable(name),
                            "', a ", TfKindName(feature.kind), ".");
  return column;
}

class TfrecordColumns final : public ShardedColumns {
 public:
  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) {
    FW_ASSIGN_OR_RETURN(Shards shards, Shards::Open(*parts.index, parts.records));
    std::unique_ptr<TfrecordColumns> records(new TfrecordColumns(std::move(shards)));
    FW_ASSIGN_OR_RETURN(records->begins_, parts.index->Numbers(kBegins));
    FW_ASSIGN_OR_RETURN(const NumberColumn lists, parts.index->Numbers(kLists));
    if (records->begins_.size() != static_cast<size_t>(parts.records) ||
        lists.size() != columns.size()) {
      return absl::DataLossError("a tfrecord index whose columns do not fit together");
    }
    for (size_t i = 0; i < columns.size(); ++i) {
      const ColumnSpec& spec = columns[i];
      Column column{i, lists[i] != 0, Kind::kBytes, spec.shape};
      if (spec.is_numeric()) {
        if (spec.dtype != DType::kFloat32 && spec.dtype != DType::kInt64)
          return absl::DataLossError("a tfrecord index with a column of a strange type");
        column.kind = spec.dtype == DType::kFloat32 ? Kind::kFloats : Kind::kIntegers;
      }
      if (wanted[i]) records->columns_.emplace(spec.name, std::move(column));
    }
    return records;
  }

  void AddExtents(int64_t record, std::vector<Extent>* extents) const override {
    extents->push_back(shards().Record(record, begins_, nullptr));
  }

  absl::Status Read(int64_t, RecordSpans bytes, ColumnValues* values) const override {
    const absl::string_view all = AsText(bytes[0]);
    if (all.size() < kHead + kTail || Load<uint64_t>(all.data()) != all.size() - kHead - kTail)
      return absl::DataLossError("its length is not the one that was indexed");
    const absl::string_view data = all.substr(kHead, all.size() - kHead - kTail);
    if (MaskedCrc32c(data) != Load<uint32_t>(data.data() + data.size()))
      return absl::DataLossError("its bytes do not have the CRC that is stored with them");
    return ForEachFeature(data,
                          [&](absl::string_view name, bool is_list, absl::string_view message) {
                            const auto column = columns_.find(name);
                            if (column == columns_.end()) return absl::OkStatus();
                            return ReadColumn(column->second, name, is_list, message, values);
                          });
  }

 private:
  struct Column {
    size_t number;
    bool is_list;
    Kind kind;
    Shape shape;  // {}: one number; {n}; {-1}; {-1, n}: steps of n
  };
  using ShardedColumns::ShardedColumns;

  static absl::Status ReadColumn(const Column& column, absl::string_view name, bool is_list,
                                 absl::string_view message, ColumnValues* values) {
    const auto fail = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat("feature '", Printable(name), "' ", why));
    };
    const absl::StatusOr<TfFeature> feature = ReadTfFeature(is_list, message);
    if (!feature.ok()) return fail(feature.status().message());
    if (feature->kind == Kind::kNone && !(is_list && column.is_list)) return absl::OkStatus();
    if (is_list != column.is_list || (feature->kind != Kind::kNone && feature->kind != column.kind))
      return fail(absl::StrCat("is ", is_list ? "a list of " : "", TfKindName(feature->kind),
                               " here and ", column.is_list ? "a list of " : "",
                               TfKindName(column.kind), " in the first records"));
    if (column.kind == Kind::kBytes) {
      if (feature->values == 1)
        values->SetBytes(column.number, feature->bytes.data(), feature->bytes.size());
      if (feature->values > 1)
        return fail(absl::StrCat("has ", feature->values, " values, where one is delivered"));
      return absl::OkStatus();
    }
    Shape shape = {feature->values};
    if (column.is_list) {
      const int64_t wanted = column.shape.size() > 1 ? column.shape[1] : 1;
      if (feature->values > 0 && feature->step_values != wanted)
        return fail(absl::StrCat("has steps that are not of ", wanted,
                                 " values, as in the first "
                                 "records"));
      if (column.shape.size() > 1) shape = {feature->values / std::max<int64_t>(wanted, 1), wanted};
    } else if (feature->values == 0 && !(column.shape.size() == 1 && column.shape[0] < 0)) {
      return absl::OkStatus();  // an empty list is how some writers say that there is none
    }
    if (!feature->packed.empty()) {
      values->Set(column.number, feature->packed.data(), feature->packed.size(), std::move(shape));
      return absl::OkStatus();
    }
    const size_t size = column.kind == Kind::kFloats ? sizeof(float) : sizeof(int64_t);
    std::byte* to =
        values->Make(column.number, std::move(shape), static_cast<size_t>(feature->values) * size);
    if (to == nullptr)
      return fail(absl::StrCat("has ", feature->values, " values, more than a record may have"));
    CopyTfNumbers(is_list, message, to);
    return absl::OkStatus();
  }

  NumberColumn begins_;
  absl::flat_hash_map<std::string, Column> columns_;  // by feature
};

class Tfrecord final : public ColumnFormat {
 public:
  explicit Tfrecord(TfrecordParams params)
      : ColumnFormat(params.fields), params_(std::move(params)) {}
  int64_t sections_version() const override { return 1; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    FW_ASSIGN_OR_RETURN(const std::vector<FoundFile> files,
                        FindParts(location, params_.files, kSuffixes, builder));
    const auto count = static_cast<int64_t>(files.size());
    Probes probes(builder);
    std::string record;  // the one that is looked at
    absl::Status first_bad = absl::OkStatus();
    std::vector<uint64_t> begins;
    ShardList shards;
    for (int64_t i = 0; i < count; ++i) {
      // Of every file, or of kProbes files over all of them.
      const int64_t before = i * kProbes / count, behind = (i + 1) * kProbes / count;
      const size_t first = begins.size();
      FW_RETURN_IF_ERROR(ScanFile(location, files[static_cast<size_t>(i)], behind - before, builder,
                                  &record, &begins, &probes, &first_bad));
      shards.Add(files[static_cast<size_t>(i)], static_cast<int64_t>(begins.size() - first));
    }
    // Without any sound record there is nothing to know the features by.
    if (probes.records() == 0 && !first_bad.ok()) return first_bad;
    Digest digest;
    digest.Add("tfrecord");
    shards.AddTo(location, builder, &digest);
    builder->digest = digest.Hex();
    builder->columns.Add(kBegins, begins);
    return AddColumns(location, probes, builder, columns);
  }

  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>& wanted) const override {
    return TfrecordColumns::Open(parts, columns, wanted);
  }

 private:
  // Adds where a file's records begin; reads its first `wanted` ones.
  static absl::Status ScanFile(const DatasetLocation& location, const FoundFile& file,
                               int64_t wanted, IndexBuilder* builder, std::string* record,
                               std::vector<uint64_t>* begins, Probes* probes,
                               absl::Status* first_bad) {
    FW_ASSIGN_OR_RETURN(FileWindow window, FileWindow::Open(location, file));
    for (int64_t at = 0; at < file.bytes;) {
      FW_ASSIGN_OR_RETURN(const int64_t length, ReadLength(&window, at));
      begins->push_back(static_cast<uint64_t>(at));
      FW_RETURN_IF_ERROR(builder->Take(2 * sizeof(uint64_t)));
      FW_RETURN_IF_ERROR(builder->Progress(static_cast<int64_t>(begins->size()), 0));
      if (wanted-- > 0 && length <= kMaxProbeBytes) {
        const size_t bytes = static_cast<size_t>(length) + kTail;
        if (bytes > record->capacity()) {
          FW_RETURN_IF_ERROR(builder->Take(static_cast<int64_t>(bytes - record->capacity())));
          record->reserve(bytes);
        }
        FW_RETURN_IF_ERROR(window.Read(at + static_cast<int64_t>(kHead), bytes, record));
        const absl::string_view data(record->data(), static_cast<size_t>(length));
        const bool is_whole = MaskedCrc32c(data) == Load<uint32_t>(record->data() + length);
        const absl::Status added =
            is_whole ? probes->Add(data) : absl::DataLossError("does not have its CRC");
        if (absl::IsResourceExhausted(added)) return added;
        if (!added.ok()) {
          const absl::Status bad = absl::InvalidArgumentError(absl::StrCat(
              "the record at byte ", at, " of ", window.what(), " ", added.message(),
              "; cure: write it with tf.train.Example, or leave the file out of 'files'"));
          if (!absl::IsDataLoss(added)) return bad;
          if (first_bad->ok()) *first_bad = bad;
        }
      }
      at += static_cast<int64_t>(kHead + kTail) + length;
    }
    return absl::OkStatus();
  }

  // The length of the record at `at`, which is whole.
  static absl::StatusOr<int64_t> ReadLength(FileWindow* window, int64_t at) {
    const auto fail = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat(
          window->what(), " ", why, "; cure: copy it again, or leave it out of 'files'"));
    };
    char head[kHead];
    const auto overhead = static_cast<int64_t>(kHead + kTail);
    if (!window->Holds(at, static_cast<int64_t>(kHead))) {
      if (at == 0) return fail("is no TFRecord file: it is shorter than the head of a record");
      return fail(absl::StrCat("ends at byte ", window->bytes(), ", within the head of the record ",
                               "at byte ", at));
    }
    FW_RETURN_IF_ERROR(window->Read(at, kHead, head));
    const auto length = Load<uint64_t>(head);
    if (MaskedCrc32c({head, sizeof(length)}) != Load<uint32_t>(head + sizeof(length))) {
      if (at == 0 && absl::StartsWith({head, 2}, "\x1f\x8b")) {
        return absl::InvalidArgumentError(
            absl::StrCat(window->what(), " is compressed with gzip; cure: name it .gz"));
      }
      if (at == 0) return fail("is no TFRecord file: its first length does not have its CRC");
      return fail(
          absl::StrCat("is damaged at byte ", at, ": the record's length does not have its CRC"));
    }
    if (length > static_cast<uint64_t>(window->bytes() - at) ||
        !window->Holds(at, static_cast<int64_t>(length) + overhead)) {
      return fail(absl::StrCat("ends at byte ", window->bytes(), ", within the record of ", length,
                               " bytes at byte ", at));
    }
    return static_cast<int64_t>(length);
  }

  absl::Status AddColumns(const DatasetLocation& location, const Probes& probes,
                          IndexBuilder* builder, std::vector<ColumnSpec>* columns) const {
    const auto is_asked_for = [&](absl::string_view name) {
      return requests().list.empty() ||
             std::any_of(requests().list.begin(), requests().list.end(),
                         [&](const FieldRequest& request) { return request.from == name; });
    };
    std::vector<uint64_t> lists;
    size_t left_out = 0;
    for (const auto& [name, feature] : probes.features()) {
      const std::string why = WhyNoColumn(feature);
      if (why.empty()) {
        columns->push_back(ColumnOf(name, feature));
        lists.push_back(feature.is_list ? 1 : 0);
      } else if (is_asked_for(name)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "feature '", Printable(name), "' of ", location.Describe(), " ", why,
            ", which cannot be a field; cure: name the features that you need in 'fields', or "
            "write each value as a feature of its own"));
      } else if (++left_out <= kNamedFeatures) {
        absl::StrAppend(&builder->notes, builder->notes.empty() ? "" : ", ", "feature '",
                        Printable(name), "' ", why, ": no column");
      }
    }
    if (left_out > kNamedFeatures) {
      absl::StrAppend(&builder->notes, ", and ", left_out - kNamedFeatures,
                      " more features that are no columns");
    }
    builder->columns.Add(kLists, lists);
    return absl::OkStatus();
  }

  const TfrecordParams params_;
};

const Registrar kRegistrar(
    "tfrecord",
    DeclareFormat<Tfrecord>(
        "TFRecord files of tf.train.Example or SequenceExample; each feature is a column. The "
        "first records say what it holds: bytes of one value, int64 and float32 as one number, "
        "[n] where all have n, else a list of any length; feature lists are [?] or [?,n]. CRCs "
        "are checked. A record without a feature, or with another type, is a bad sample.",
        "dataset: {format: tfrecord, root: data, files: [\"train-*\"], fields: {image: "
        "image/encoded, label: image/class/label}}",
        FormatSchema<TfrecordParams>()
            .Files("files", &TfrecordParams::files,
                   "Record files below `path`: names, globs (train-*) and ranges "
                   "(train-{00000..01023}-of-01024). Left out: every *.tfrecord, *.tfrecords and "
                   "*.record of the folder, and the parts of one set (*.tfrecord-00000-of-01024), "
                   "all of them.")
            .Fields(&TfrecordParams::fields)));

}  // namespace
}  // namespace feedwater::server
