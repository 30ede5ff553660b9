// Format `tokens`: flat files of token numbers, uint16 or uint32, little-endian, as language models
// are trained from. A record is a window of `length` tokens; windows begin `stride` tokens apart
// and never reach into the next file. A header may stand in front of the tokens. The index holds
// nothing for a record.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/units.h"
#include "server/source/column_format.h"
#include "server/source/file_window.h"

namespace feedwater::server {
namespace {

constexpr absl::string_view kSuffixes[] = {".bin", ".tokens"};
constexpr double kMaxLength = 1 << 24;

struct TokensParams {
  std::vector<std::string> files;
  int64_t length = 0, stride = 0, header_bytes = 0;
  std::string dtype = "uint16";
  bool targets = false;
  FieldRequests fields;

  int64_t token_bytes() const { return dtype == "uint16" ? 2 : 4; }
  int64_t step() const { return stride > 0 ? stride : length; }
  int64_t tokens_read() const { return length + (targets ? 1 : 0); }
  int64_t TokensOf(int64_t bytes) const { return (bytes - header_bytes) / token_bytes(); }
  int64_t WindowsOf(int64_t tokens) const {
    return tokens < tokens_read() ? 0 : (tokens - tokens_read()) / step() + 1;
  }
};

// The headers that llm.c and what was built on it (modded-nanogpt) write: 256 int32, of which the
// first one tells the kind. As tokens they would be numbers like any others.
struct KnownHeader {
  int32_t magic;
  absl::string_view dtype;
};
constexpr KnownHeader kKnownHeaders[] = {{20240520, "uint16"}, {20240801, "uint32"}};

class TokensColumns final : public ShardedColumns {
 public:
  TokensColumns(Shards shards, TokensParams params)
      : ShardedColumns(std::move(shards)), params_(std::move(params)) {}

  void AddExtents(int64_t record, std::vector<Extent>* extents) const override {
    const uint32_t shard = shards().Of(record);
    const int64_t window = record - shards().first(shard);
    extents->push_back({shard,
                        params_.header_bytes + window * params_.step() * params_.token_bytes(),
                        params_.tokens_read() * params_.token_bytes()});
  }

  std::optional<StoredField> StoredAt(size_t column) const override {
    if (params_.token_bytes() != 2) return std::nullopt;  // uint32 is looked at
    return StoredField{0, static_cast<int64_t>(column) * params_.token_bytes()};
  }
  absl::Status Read(int64_t, RecordSpans bytes, ColumnValues* values) const override {
    const int64_t token_bytes = params_.token_bytes();
    if (static_cast<int64_t>(bytes[0].size()) != params_.tokens_read() * token_bytes) {
      return absl::DataLossError(
          absl::StrCat("a window has ", params_.tokens_read() * token_bytes, " bytes"));
    }
    if (token_bytes == 4) FW_RETURN_IF_ERROR(CheckInt32(bytes[0]));
    const auto window_bytes = static_cast<size_t>(params_.length * token_bytes);
    values->Set(0, bytes[0].data(), window_bytes, {params_.length});
    if (params_.targets)
      values->Set(1, bytes[0].data() + token_bytes, window_bytes, {params_.length});
    return absl::OkStatus();
  }

 private:
  // uint32 is delivered as int32, which every embedding takes.
  static absl::Status CheckInt32(absl::Span<const std::byte> tokens) {
    uint32_t all = 0;
    for (size_t at = 0; at < tokens.size(); at += 4) {
      uint32_t token;
      std::memcpy(&token, tokens.data() + at, 4);
      all |= token;
    }
    if (all <= INT32_MAX) return absl::OkStatus();
    return absl::InvalidArgumentError("a token of the window is beyond int32");
  }

  const TokensParams params_;
};

class Tokens final : public ColumnFormat {
 public:
  explicit Tokens(TokensParams params) : ColumnFormat(params.fields), params_(std::move(params)) {}
  int64_t sections_version() const override { return 2; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    FW_ASSIGN_OR_RETURN(const std::vector<FoundFile> files,
                        FindFiles(location, params_.files, kSuffixes, builder));
    ShardList shards;
    int64_t left_out = 0;
    for (const FoundFile& file : files) {
      FW_RETURN_IF_ERROR(CheckIsHeaderless(location, file));
      const int64_t bytes = file.bytes - params_.header_bytes;
      if (bytes < 0 || bytes % params_.token_bytes() != 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            location.root->Describe(file.path), " has ", FormatCount(file.bytes, "byte"), ", no ",
            params_.header_bytes > 0 ? absl::StrCat("header of ", params_.header_bytes, " and ")
                                     : "",
            "whole number of ", params_.dtype, ": it is truncated, or has another dtype",
            params_.header_bytes > 0 ? " or another 'header_bytes'" : ""));
      }
      const int64_t tokens = params_.TokensOf(file.bytes);
      const int64_t windows = params_.WindowsOf(tokens);
      left_out += windows == 0 ? tokens
                               : std::max<int64_t>(0, tokens - (windows - 1) * params_.step() -
                                                          params_.tokens_read());
      shards.Add(file, windows);
    }
    if (shards.records() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(location.Describe(), ": no file has the ", params_.tokens_read(),
                       " tokens of one window; take a smaller 'length'"));
    }
    Digest digest;
    digest.Add("tokens");
    digest.Add(static_cast<uint64_t>(params_.token_bytes()));
    if (params_.header_bytes > 0) {
      digest.Add("header_bytes");
      digest.Add(static_cast<uint64_t>(params_.header_bytes));
    }
    shards.AddTo(location, builder, &digest);
    builder->digest = digest.Hex();
    if (left_out > 0) {
      builder->notes = absl::StrCat(FormatCount(left_out, "token"),
                                    " at the ends of files fill no window and are left out");
    }
    *columns = Columns();
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<const RecordColumns>> OpenRecords(
      const IndexedParts& parts, const std::vector<ColumnSpec>& columns,
      const std::vector<bool>&) const override {
    FW_ASSIGN_OR_RETURN(Shards shards, Shards::Open(*parts.index, parts.records));
    bool fits = columns == Columns();
    for (uint32_t shard = 0; shard < shards.size(); ++shard) {
      fits &= shards.bytes(shard) >= params_.header_bytes &&
              shards.records(shard) == params_.WindowsOf(params_.TokensOf(shards.bytes(shard)));
    }
    if (!fits) return absl::DataLossError("a tokens index whose files do not hold its windows");
    return std::make_unique<TokensColumns>(std::move(shards), params_);
  }

 private:
  // A file that begins with a known header has to be read without it.
  absl::Status CheckIsHeaderless(const DatasetLocation& location, const FoundFile& file) const {
    int32_t first = 0;
    if (params_.header_bytes > 0 || file.bytes < static_cast<int64_t>(sizeof(first)))
      return absl::OkStatus();
    FW_ASSIGN_OR_RETURN(FileWindow window, FileWindow::Open(location, file));
    FW_RETURN_IF_ERROR(window.Read(0, sizeof(first), reinterpret_cast<char*>(&first)));
    for (const KnownHeader& known : kKnownHeaders) {
      if (first != known.magic) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          window.what(), " begins with ", first, ", the header of 1,024 bytes in front of ",
          known.dtype, " that llm.c and modded-nanogpt write; cure: 'header_bytes: 1024'",
          known.dtype == params_.dtype ? "" : absl::StrCat(" and 'dtype: ", known.dtype, "'")));
    }
    return absl::OkStatus();
  }

  std::vector<ColumnSpec> Columns() const {
    const DType dtype = params_.token_bytes() == 2 ? DType::kUInt16 : DType::kInt32;
    std::vector<ColumnSpec> columns = {ColumnSpec::Array("tokens", dtype, {params_.length})};
    columns.back().doc = "A window of tokens.";
    if (!params_.targets) return columns;
    columns.push_back(ColumnSpec::Array("targets", dtype, {params_.length}));
    columns.back().doc = "The same window, one token later.";
    return columns;
  }

  const TokensParams params_;
};

const Registrar kRegistrar(
    "tokens",
    DeclareFormat<Tokens>(
        "Flat files of token numbers. A record is a window of `length` tokens; with `targets` also "
        "the window one token later. uint16 is delivered as it is, uint32 as int32.",
        "dataset: {format: tokens, root: data, path: train.bin, length: 1024, targets: true}",
        FormatSchema<TokensParams>()
            .Required("length", &TokensParams::length, "Tokens of a window.", Range(1, kMaxLength))
            .Param("stride", &TokensParams::stride,
                   "Tokens from the begin of one window to that of the next; 0: `length`.",
                   Range(0, kMaxLength))
            .Param("dtype", &TokensParams::dtype, "Of the files.", OneOf({"uint16", "uint32"}))
            .Param("targets", &TokensParams::targets, "Adds the field `targets`.")
            .LaterParam("header_bytes", &TokensParams::header_bytes,
                        "Bytes at the start of each file that are no tokens: 1024 of the .bin "
                        "files of llm.c and modded-nanogpt.",
                        Range(0, 1e15))
            .Files("files", &TokensParams::files,
                   "Files below `path`: names, globs and ranges. Left out: every *.bin and "
                   "*.tokens of the folder.")
            .Fields(&TokensParams::fields)));

}  // namespace
}  // namespace feedwater::server
