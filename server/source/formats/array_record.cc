// Format `array_record`: Grain's ArrayRecord files, which are Riegeli files (riegeli.h) with a
// footer that says where their groups of records are. Column `data` has a record's bytes.
//
// A group is read as a whole, checked by its hashes and, where it is compressed, unpacked for each
// of its records; so a group of several records may be small only. Groups of one record, which
// Grain recommends for random access, cost nothing more. A file with larger groups is unpacked once
// (staging.h) into its records, each with its length (8 bytes) before it.
//
// The index keeps of each group, or unpacked record, where it begins, its bytes and its first
// record: 12 bytes, 16 in files of more than 4 GiB.
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

constexpr int64_t kZstdWindow = 128 << 20;          // the largest that is unpacked
constexpr IndexTag kBegins = MakeIndexTag("argb");  // of each group in its file
constexpr IndexTag kBytes = MakeIndexTag("argl");   // of each group, with block headers
constexpr IndexTag kFirsts = MakeIndexTag("argr");  // first record of each group, and the end
constexpr IndexTag kForms = MakeIndexTag("argf");   // of each file: kGroups or kRecords

constexpr uint64_t kGroups = 0, kRecords = 1;
constexpr absl::string_view kSuffixes[] = {".array_record"};
constexpr uint64_t kMagic = 0x71930e704fdae05e;  // of the postscript
constexpr uint64_t kMaxGroupBytes = 16 << 20;    // of several records, that is read for each
constexpr uint64_t kLength = sizeof(uint64_t);   // before an unpacked record
constexpr size_t kPiece = 1 << 20;               // written at once
constexpr const char* kForm = "array_record records 1";

struct ArrayRecordParams {
  std::vector<std::string> files;
  FieldRequests fields;
};

class ArrayRecordColumns final : public ShardedColumns {
 public:
  static absl::StatusOr<std::unique_ptr<const RecordColumns>> Open(const IndexedParts& parts,
                                                                   size_t columns) {
    FW_ASSIGN_OR_RETURN(Shards shards, Shards::Open(*parts.index, parts.records));
    std::unique_ptr<ArrayRecordColumns> records(new ArrayRecordColumns(std::move(shards)));
    FW_ASSIGN_OR_RETURN(records->begins_, parts.index->Numbers(kBegins));
    FW_ASSIGN_OR_RETURN(records->bytes_, parts.index->Numbers(kBytes));
    FW_ASSIGN_OR_RETURN(records->firsts_, parts.index->Numbers(kFirsts));
    FW_ASSIGN_OR_RETURN(records->forms_, parts.index->Numbers(kForms));
    if (columns != 1 || records->forms_.size() != records->shards().size() ||
        records->firsts_.size() != records->begins_.size() + 1 ||
        records->bytes_.size() != records->begins_.size() ||
        !records->firsts_.Divides(static_cast<uint64_t>(parts.records))) {
      return absl::DataLossError("an array_record index whose columns do not fit together");
    }
    return records;
  }

  void AddExtents(int64_t record, std::vector<Extent>* extents) const override {
    const uint32_t shard = shards().Of(record);
    const size_t group = firsts_.RangeOf(static_cast<uint64_t>(record));
    extents->push_back(shards().Part(shard, begins_[group], bytes_[group]));
  }

  absl::Status Read(int64_t record, RecordSpans bytes, ColumnValues* values) const override {
    const auto number = static_cast<uint64_t>(record);
    const uint32_t shard = shards().Of(record);
    if (forms_[shard] == kRecords) return ReadUnpacked(bytes[0], values);
    const size_t group = firsts_.RangeOf(number);
    const auto begin = static_cast<uint64_t>(shards().Part(shard, begins_[group], 0).offset);
    return ReadRiegeliRecord(AsText(bytes[0]), begin, firsts_[group + 1] - firsts_[group],
                             number - firsts_[group], /*column=*/0, values);
  }

 private:
  using ShardedColumns::ShardedColumns;

  static absl::Status ReadUnpacked(absl::Span<const std::byte> bytes, ColumnValues* values) {
    uint64_t length = 0;
    if (bytes.size() >= kLength) std::memcpy(&length, bytes.data(), kLength);
    if (bytes.size() < kLength || length != bytes.size() - kLength)
      return absl::DataLossError("has another length than was indexed");
    values->SetBytes(0, bytes.data() + kLength, static_cast<size_t>(length));
    return absl::OkStatus();
  }

  NumberColumn begins_, bytes_, firsts_, forms_;
};

class ArrayRecord final : public ColumnFormat {
 public:
  explicit ArrayRecord(ArrayRecordParams params)
      : ColumnFormat(params.fields), params_(std::move(params)) {}
  int64_t sections_version() const override { return 2; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    FW_ASSIGN_OR_RETURN(const std::vector<FoundFile> files,
                        FindParts(location, params_.files, kSuffixes, builder));
    Groups groups;
    ShardList shards;
    for (const FoundFile& file : files) {
      const size_t before = groups.begins.size();
      const uint64_t first = groups.firsts.back();
      FW_ASSIGN_OR_RETURN(const Scanned scanned, ScanFile(location, file, builder, &groups));
      const uint64_t counted = groups.firsts.back();
      FoundFile read = file;
      if (!scanned.large.empty()) {
        groups.ReturnTo(before);
        FW_ASSIGN_OR_RETURN(read, UnpackFile(location, file, scanned, builder));
        FW_RETURN_IF_ERROR(ScanRecords(location, read, builder, &groups));
        if (groups.firsts.back() != counted) {
          return absl::DataLossError(absl::StrCat(
              "what was unpacked of ", location.root->Describe(file.path), " has ",
              groups.firsts.back() - first, " records, and its groups have ", counted - first,
              "; cure: remove the daemon's state_dir/staged, and it is unpacked again"));
        }
      }
      groups.forms.push_back(scanned.large.empty() ? kGroups : kRecords);
      shards.Add(read, static_cast<int64_t>(groups.firsts.back() - first));
    }
    Digest digest;
    digest.Add("array_record");
    shards.AddTo(location, builder, &digest);
    builder->digest = digest.Hex();
    builder->columns.Add(kBegins, groups.begins);
    builder->columns.Add(kBytes, groups.bytes);
    builder->columns.Add(kFirsts, groups.firsts);
    builder->columns.Add(kForms, groups.forms);
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
    std::vector<uint64_t> forms;  // by file

    void ReturnTo(size_t groups) {
      begins.resize(groups);
      bytes.resize(groups);
      firsts.resize(groups + 1);
    }
  };

  static absl::Status Wrong(const FileWindow& window, absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(window.what(), " ", why, "; cure: copy it again, or leave it out of 'files'"));
  }

  struct Scanned {
    uint64_t footer = 0;
    std::string large;          // what is to be said of the first group that is too large; "": none
    uint64_t most_records = 0;  // of a group
  };

  // Walks over the chunks in front of the footer.
  static absl::StatusOr<Scanned> ScanFile(const DatasetLocation& location, const FoundFile& file,
                                          IndexBuilder* builder, Groups* groups) {
    Scanned scanned;
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
        if (chunk->records > 1 && chunk->decoded_bytes > kMaxGroupBytes && scanned.large.empty()) {
          scanned.large =
              absl::StrCat("has ", chunk->records, " records in the group at byte ", at, ", ",
                           FormatBytes(static_cast<int64_t>(chunk->decoded_bytes)),
                           ", which would be read for each of them");
        }
        scanned.most_records = std::max(scanned.most_records, chunk->records);
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
    scanned.footer = footer;
    return scanned;
  }

  // A file of its records, each with its length before it.
  static absl::StatusOr<FoundFile> UnpackFile(const DatasetLocation& location,
                                              const FoundFile& file, const Scanned& scanned,
                                              IndexBuilder* builder) {
    // What UnpackRiegeliChunk holds, and pieces on their way to the disk.
    const uint64_t sizes = std::min<uint64_t>(scanned.most_records, 8 << 20) * 40;
    FW_RETURN_IF_ERROR(builder->Take(static_cast<int64_t>(sizes) + 8 * kPiece + kZstdWindow));
    const auto write = [&](int fd, const StagedFolder::Append& append) -> absl::Status {
      FW_ASSIGN_OR_RETURN(FileWindow window, FileWindow::Over(fd, location, file));
      std::string piece;
      const auto add = [&](absl::string_view bytes) -> absl::Status {
        piece.append(bytes.data(), bytes.size());
        if (piece.size() < kPiece) return absl::OkStatus();
        FW_RETURN_IF_ERROR(append(piece));
        piece.clear();
        return absl::OkStatus();
      };
      const auto begin = [&](uint64_t length) {
        return add({reinterpret_cast<const char*>(&length), kLength});
      };
      for (uint64_t at = 0; at < scanned.footer;) {
        char compression = 0;
        FW_ASSIGN_OR_RETURN(const RiegeliChunk chunk, ReadRiegeliChunk(&window, at, &compression));
        if (chunk.records > 0) {
          const absl::Status status = UnpackRiegeliChunk(&window, at, chunk, begin, add);
          if (absl::IsDataLoss(status))
            return Wrong(window, absl::StrCat(status.message(), ", at byte ", at));
          FW_RETURN_IF_ERROR(status);
        }
        at = RiegeliNextChunk(at, chunk);
      }
      return append(piece);
    };
    FW_ASSIGN_OR_RETURN(
        StagedFolder::File staged,
        builder->Stage(file.RootIn(location), file.path_to_read(), kForm, scanned.large,
                       "write it with ArrayRecordWriter(path, 'group_size:1')", write));
    return file.Unpacked(std::move(staged), *builder->staged());
  }

  // Finds the records of an unpacked file.
  static absl::Status ScanRecords(const DatasetLocation& location, const FoundFile& file,
                                  IndexBuilder* builder, Groups* groups) {
    FW_ASSIGN_OR_RETURN(FileWindow window, FileWindow::Open(location, file));
    const auto bytes = static_cast<uint64_t>(window.bytes());
    for (uint64_t at = 0; at < bytes;) {
      uint64_t length = 0;
      if (bytes - at >= kLength) {
        FW_RETURN_IF_ERROR(
            window.Read(static_cast<int64_t>(at), kLength, reinterpret_cast<char*>(&length)));
      }
      if (bytes - at < kLength || length > bytes - at - kLength) {
        return absl::DataLossError(absl::StrCat(window.what(), " is damaged at byte ", at,
                                                "; cure: remove it, and it is unpacked again"));
      }
      FW_RETURN_IF_ERROR(builder->Take(6 * sizeof(uint64_t)));
      groups->begins.push_back(at);
      groups->bytes.push_back(kLength + length);
      groups->firsts.push_back(groups->firsts.back() + 1);
      FW_RETURN_IF_ERROR(builder->Progress(static_cast<int64_t>(groups->firsts.back()), 0));
      at += kLength + length;
    }
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
        "them; a file with groups of more than 16 MiB is unpacked once, below state_dir. "
        "group_size:1 needs neither. Transposed groups, Brotli and Snappy are refused.",
        "dataset: {format: array_record, root: data, files: [\"train.array_record-*\"]}",
        FormatSchema<ArrayRecordParams>()
            .Files(
                "files", &ArrayRecordParams::files,
                "Files below `path`: names, globs (*.array_record) and ranges "
                "(x.array_record-{00000..00015}-of-00016). Left out: every *.array_record of the "
                "folder, and the parts of one set (*.array_record-00000-of-00016), all of them.")
            .Fields(&ArrayRecordParams::fields)));

}  // namespace
}  // namespace feedwater::server
