// Format `array_record`: Grain's ArrayRecord files, which are Riegeli files (riegeli.h) with a
// footer that says where their groups of records are. Column `data` has a record's bytes.
//
// A group is read as a whole, checked by its hashes and, where it is compressed, unpacked for each
// of its records; so a group of many records may be small only. Groups of one record, which Grain
// recommends for random access, cost nothing more.
//
// The index keeps of each group where it begins, its bytes and its first record: 12 bytes, 16 in
// files of more than 4 GiB.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/units.h"
#include "server/base/yaml.h"
#include "server/source/column_format.h"
#include "server/source/file_window.h"
#include "server/source/riegeli.h"
#include "server/source/wire_reader.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kBegins = MakeIndexTag("argb");  // of each group in its file
constexpr IndexTag kBytes = MakeIndexTag("argl");   // of each group, with block headers
constexpr IndexTag kFirsts = MakeIndexTag("argr");  // first record of each group, and the end

constexpr const char* kFiles = "*.array_record*";  // also NAME.array_record-00000-of-00002
constexpr uint64_t kMagic = 0x71930e704fdae05e;    // of the postscript
constexpr uint64_t kMaxGroupBytes = 16 << 20;      // unpacked, of several records

struct ArrayRecordParams {
  std::vector<std::string> files;
  FieldRequests fields;
};

absl::string_view AsText(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ArrayRecordColumns final : public ShardedColumns {
 public:
  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(const IndexedParts& parts,
                                                                   size_t columns) {
    FW_ASSIGN_OR_RETURN(Shards shards, Shards::Open(*parts.index, parts.records));
    std::unique_ptr<ArrayRecordColumns> records(new ArrayRecordColumns(std::move(shards)));
    FW_ASSIGN_OR_RETURN(records->begins_, parts.index->Numbers(kBegins));
    FW_ASSIGN_OR_RETURN(records->bytes_, parts.index->Numbers(kBytes));
    FW_ASSIGN_OR_RETURN(records->firsts_, parts.index->Numbers(kFirsts));
    if (columns != 1 || records->firsts_.size() != records->begins_.size() + 1 ||
        records->bytes_.size() != records->begins_.size() ||
        !records->firsts_.Divides(static_cast<uint64_t>(parts.records))) {
      return absl::DataLossError("an array_record index whose columns do not fit together");
    }
    return records;
  }

  void AddExtents(int64_t record, std::vector<Extent>* extents) const override {
    const uint32_t shard = shards().Of(record);
    const size_t group = firsts_.RangeOf(static_cast<uint64_t>(record));
    // Numbers of a damaged index may be any.
    const auto most = static_cast<uint64_t>(shards().bytes(shard));
    const uint64_t begin = std::min(begins_[group], most);
    extents->push_back({shard, static_cast<int64_t>(begin),
                        static_cast<int64_t>(std::min(bytes_[group], most - begin))});
  }

  absl::Status Read(int64_t record, RecordSpans bytes, ColumnValues* values) const override {
    const auto number = static_cast<uint64_t>(record);
    const size_t group = firsts_.RangeOf(number);
    const auto most = static_cast<uint64_t>(shards().bytes(shards().Of(record)));
    return ReadRiegeliRecord(AsText(bytes[0]), std::min(begins_[group], most),
                             firsts_[group + 1] - firsts_[group], number - firsts_[group],
                             /*column=*/0, values);
  }

 private:
  using ShardedColumns::ShardedColumns;
  NumberColumn begins_, bytes_, firsts_;
};

class ArrayRecord final : public ColumnFormat {
 public:
  explicit ArrayRecord(ArrayRecordParams params)
      : ColumnFormat(params.fields), params_(std::move(params)) {}
  int64_t sections_version() const override { return 1; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    FW_ASSIGN_OR_RETURN(const struct stat info, location.root->Stat(location.path));
    std::vector<std::string> patterns = params_.files;
    if (patterns.empty() && S_ISDIR(info.st_mode)) patterns.emplace_back(kFiles);
    FW_ASSIGN_OR_RETURN(const std::vector<FoundFile> files,
                        FindFiles(location, patterns, {}, builder));
    Groups groups;
    ShardList shards;
    for (const FoundFile& file : files) {
      const uint64_t before = groups.firsts.back();
      FW_RETURN_IF_ERROR(ScanFile(location, file, builder, &groups));
      shards.Add(file, static_cast<int64_t>(groups.firsts.back() - before));
    }
    Digest digest;
    digest.Add("array_record");
    shards.AddTo(location, builder, &digest);
    builder->digest = digest.Hex();
    builder->columns.Add(kBegins, groups.begins);
    builder->columns.Add(kBytes, groups.bytes);
    builder->columns.Add(kFirsts, groups.firsts);
    columns->push_back(ColumnSpec::Bytes("data"));
    columns->back().doc = "The record's bytes.";
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>&) const override {
    return ArrayRecordColumns::Open(parts, columns.size());
  }

 private:
  struct Groups {
    std::vector<uint64_t> begins, bytes, firsts = {0};
  };

  static absl::Status Wrong(const FileWindow& window, absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(window.what(), " ", why, "; cure: copy it again, or leave it out of 'files'"));
  }

  // Walks over the chunks in front of the footer.
  static absl::Status ScanFile(const DatasetLocation& location, const FoundFile& file,
                               IndexBuilder* builder, Groups* groups) {
    FW_ASSIGN_OR_RETURN(FileWindow window, FileWindow::Open(location, file));
    FW_ASSIGN_OR_RETURN(const uint64_t footer, FindFooter(&window));
    uint64_t found = 0;
    for (uint64_t at = 0; at < footer;) {
      char compression = 0;
      const absl::StatusOr<RiegeliChunk> chunk = ReadRiegeliChunk(&window, at, &compression);
      if (absl::IsDataLoss(chunk.status()))
        return Wrong(window, absl::StrCat(chunk.status().message(), " at byte ", at));
      if (!chunk.ok()) return chunk.status();
      if (at == 0 && chunk->type != RiegeliChunk::Type::kSignature)
        return Wrong(window, "is no Riegeli file: it does not begin with their signature");
      const uint64_t next = chunk->records > footer ? UINT64_MAX : RiegeliNextChunk(at, *chunk);
      if (next > footer) {
        return Wrong(window, absl::StrCat("has a chunk at byte ", at, " that ends behind the ",
                                          "footer at byte ", footer));
      }
      if (chunk->records > 0) {
        const std::string why = WhyUnreadableRiegeli(chunk->type, compression);
        if (!why.empty()) return absl::InvalidArgumentError(absl::StrCat(window.what(), " ", why));
        if (chunk->records > 1 && chunk->decoded_bytes > kMaxGroupBytes) {
          return absl::InvalidArgumentError(absl::StrCat(
              window.what(), " has ", chunk->records, " records in the group at byte ", at, ", ",
              FormatBytes(static_cast<int64_t>(chunk->decoded_bytes)),
              ", which would be read for "
              "each of them; cure: write it with ArrayRecordWriter(path, 'group_size:1')"));
        }
        ++found;
        FW_RETURN_IF_ERROR(builder->Take(6 * sizeof(uint64_t)));
        groups->begins.push_back(at);
        groups->bytes.push_back(RiegeliEnd(at, kRiegeliChunkHeader + chunk->data_bytes) - at);
        groups->firsts.push_back(groups->firsts.back() + chunk->records);
      }
      FW_RETURN_IF_ERROR(builder->Progress(static_cast<int64_t>(groups->firsts.back()), 0));
      at = next;
    }
    // The footer has a record about itself, and one for each group.
    char compression = 0;
    const absl::StatusOr<RiegeliChunk> chunk = ReadRiegeliChunk(&window, footer, &compression);
    if (absl::IsDataLoss(chunk.status()))
      return Wrong(window, absl::StrCat(chunk.status().message(), " at its footer, byte ", footer));
    if (!chunk.ok()) return chunk.status();
    if (chunk->records != found + 1)
      return Wrong(window, absl::StrCat("has a footer of ", chunk->records, " entries for ", found,
                                        " groups"));
    return absl::OkStatus();
  }

  // The last block is a chunk of its own that says where the footer is.
  static absl::StatusOr<uint64_t> FindFooter(FileWindow* window) {
    const auto bytes = static_cast<uint64_t>(window->bytes());
    if (bytes < 2 * kRiegeliBlock || bytes % kRiegeliBlock != 0)
      return Wrong(*window, absl::StrCat("is no ArrayRecord file: it has ", bytes,
                                         " bytes, no whole number of blocks of 64 KiB"));
    const uint64_t at = bytes - kRiegeliBlock;
    std::string block;
    FW_RETURN_IF_ERROR(window->Read(static_cast<int64_t>(at), kRiegeliBlock, &block));
    const absl::Status wrong =
        Wrong(*window, "is no ArrayRecord file: its last block does not say where its footer is");
    const absl::StatusOr<RiegeliChunk> chunk = ParseRiegeliChunk(block, at);
    if (!chunk.ok()) return wrong;
    std::vector<std::byte> scratch;
    ColumnValues values(1, &scratch);
    if (!ReadRiegeliRecord(block, at, chunk->records, 0, 0, &values).ok()) return wrong;
    WireReader postscript(
        {reinterpret_cast<const char*>(values.data(0)), static_cast<size_t>(values.shape(0)[0])});
    uint64_t footer = 0, magic = 0;
    while (postscript.Next()) {
      if (postscript.type() != WireType::kVarint) continue;
      if (postscript.number() == 1) footer = postscript.value();
      if (postscript.number() == 2) magic = postscript.value();
    }
    if (postscript.damaged() || magic != kMagic || footer == 0 || footer >= at) return wrong;
    return footer;
  }

  const ArrayRecordParams params_;
};

const Registrar kRegistrar(
    "array_record",
    DeclareFormat<ArrayRecord>(
        "Grain's ArrayRecord files (Riegeli with a footer), uncompressed or with zstd; column "
        "`data` has a record's bytes. Groups of several records are read as a whole for each of "
        "them and may have 16 MiB; group_size:1 is the right one. Transposed groups, Brotli and "
        "Snappy are refused.",
        "dataset: {format: array_record, root: data, files: [\"train.array_record-*\"]}",
        FormatSchema<ArrayRecordParams>()
            .Files("files", &ArrayRecordParams::files,
                   "Files below `path`: names, globs (*.array_record) and ranges "
                   "(x.array_record-{00000..00015}-of-00016). Left out: every *.array_record* of "
                   "the folder.")
            .Fields(&ArrayRecordParams::fields)));

}  // namespace
}  // namespace feedwater::server
