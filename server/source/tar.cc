#include "server/source/tar.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

constexpr int64_t kMaxName = 64 << 10, kMaxPax = 1 << 20;

struct Field {
  size_t at, bytes;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kMagic{257, 6}, kPrefix{345, 155};
constexpr size_t kType = 156;

// A text that ends with a NUL, or with its field.
absl::string_view TextOf(const char* block, const Field& field) {
  const char* begin = block + field.at;
  return {begin, strnlen(begin, field.bytes)};
}

// An octal number, or a binary one, whose first bit is set. False: it is none, or does not fit.
bool NumberOf(const char* block, const Field& field, int64_t* number) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(block) + field.at;
  uint64_t value = 0;
  if ((bytes[0] & 0x80) != 0) {
    if (bytes[0] != 0x80) return false;  // negative, or more than 88 bits
    for (size_t i = 1; i < field.bytes; ++i) {
      if (value >> 55 != 0) return false;
      value = value << 8 | bytes[i];
    }
  } else {
    const absl::string_view text = absl::StripAsciiWhitespace(TextOf(block, field));
    for (const char digit : text) {
      if (digit < '0' || digit > '7' || value >> 60 != 0) return false;
      value = value << 3 | static_cast<uint64_t>(digit - '0');
    }
  }
  if (value > static_cast<uint64_t>(INT64_MAX)) return false;
  *number = static_cast<int64_t>(value);
  return true;
}

// The sum of a header's bytes, with spaces where the sum itself stands; signed chars in old ones.
bool HasItsChecksum(const char* block) {
  int64_t wanted = 0, plain = 0, with_sign = 0;
  if (!NumberOf(block, kChecksum, &wanted)) return false;
  for (size_t i = 0; i < kTarBlock; ++i) {
    const bool is_own = i >= kChecksum.at && i < kChecksum.at + kChecksum.bytes;
    plain += is_own ? ' ' : static_cast<unsigned char>(block[i]);
    with_sign += is_own ? ' ' : static_cast<signed char>(block[i]);
  }
  return wanted == plain || wanted == with_sign;
}

bool IsZero(const char* block, size_t bytes) {
  return std::all_of(block, block + bytes, [](char c) { return c == 0; });
}

int64_t RoundUp(int64_t bytes) { return (bytes + kTarBlock - 1) / kTarBlock * kTarBlock; }

}  // namespace

absl::Status TarReader::Error(int64_t offset, absl::string_view what) const {
  return absl::DataLossError(absl::StrCat("at byte ", offset, ": ", what));
}

absl::StatusOr<std::string> TarReader::ReadText(int64_t offset, int64_t bytes, int64_t most) {
  if (bytes > most) return Error(offset, absl::StrCat("an extended header of ", bytes, " bytes"));
  if (bytes > archive_bytes_ - offset) return Error(offset, "the archive ends within a header");
  std::string text(static_cast<size_t>(bytes), '\0');
  FW_RETURN_IF_ERROR(read_(offset, text.data(), text.size()));
  return text;
}

// "LENGTH KEY=VALUE\n" again and again.
absl::Status TarReader::Pax(absl::string_view records, bool is_global) {
  const int64_t at = position_;
  while (!records.empty()) {
    const size_t space = records.find(' ');
    uint64_t length = 0;
    if (space == absl::string_view::npos || !absl::SimpleAtoi(records.substr(0, space), &length) ||
        length <= space + 1 || length > records.size() || records[length - 1] != '\n') {
      return Error(at, "a pax header that is damaged");
    }
    const absl::string_view record = records.substr(space + 1, length - space - 2);
    records.remove_prefix(length);
    const size_t equals = record.find('=');
    if (equals == absl::string_view::npos) return Error(at, "a pax header without a value");
    const absl::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (absl::StartsWith(key, "GNU.sparse."))
      return Error(at, "a sparse file; cure: tar without --sparse");
    if (key != "path" && key != "size") continue;
    if (is_global) return Error(at, absl::StrCat("a pax header that gives all members one ", key));
    if (key == "path") {
      if (value.size() > static_cast<size_t>(kMaxName) || absl::StrContains(value, '\0'))
        return Error(at, "a name that is none");
      name_ = std::string(value);
      continue;
    }
    int64_t bytes = 0;
    if (!absl::SimpleAtoi(value, &bytes) || bytes < 0) return Error(at, "a size that is no number");
    bytes_ = bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<TarMember>> TarReader::Next() {
  std::optional<int64_t> begin;
  name_.reset();
  bytes_.reset();
  char block[kTarBlock];
  while (true) {
    const int64_t at = position_;
    if (archive_bytes_ - at < kTarBlock) {
      if (begin || (archive_bytes_ - at) > 0)
        return Error(at, "the archive ends within a header: it was cut off");
      return std::nullopt;  // without the zeros that end an archive, as some writers leave it
    }
    FW_RETURN_IF_ERROR(read_(at, block, kTarBlock));
    if (IsZero(block, kTarBlock)) {
      if (begin) return Error(at, "an extended header without a member");
      return std::nullopt;
    }
    if (!HasItsChecksum(block)) return Error(at, "no tar header, or one with a wrong checksum");
    int64_t bytes = 0;
    if (!NumberOf(block, kSize, &bytes)) return Error(at, "a size that is no number");
    const char type = block[kType];
    // What a global header says belongs to no member: archives hold them as padding.
    if (!begin && type != 'g') begin = at;
    const int64_t data = at + kTarBlock;
    const bool is_extended = type == 'x' || type == 'g' || type == 'L' || type == 'K';
    if (!is_extended && bytes_) bytes = *bytes_;
    // Links and devices have a size, as a rule 0, and no bytes.
    const bool has_bytes = type != '1' && type != '2' && type != '3' && type != '4' && type != '6';
    if (!has_bytes) bytes = 0;
    if (bytes > archive_bytes_ - data) {
      return Error(at,
                   absl::StrCat("a member of ", bytes, " bytes, but the archive ends ",
                                archive_bytes_ - data, " bytes behind its header: it was cut off"));
    }
    position_ = std::min(data + RoundUp(bytes), archive_bytes_);
    if (is_extended) {
      const int64_t next = position_;
      position_ = at;  // for messages
      if (type == 'K') {
        position_ = next;
        continue;
      }
      FW_ASSIGN_OR_RETURN(std::string text,
                          ReadText(data, bytes, type == 'L' ? kMaxName : kMaxPax));
      if (type == 'L') {
        text.resize(strnlen(text.data(), text.size()));
        name_ = std::move(text);
      } else {
        FW_RETURN_IF_ERROR(Pax(text, type == 'g'));
      }
      position_ = next;
      continue;
    }
    if (type == 'S') return Error(at, "a sparse file; cure: tar without --sparse");
    if (type == 'M') return Error(at, "a part of an archive of several volumes");
    TarMember member;
    member.begin = *begin;
    member.data = data;
    member.bytes = bytes;
    if (name_) {
      member.name = *std::move(name_);
    } else {
      const bool is_ustar = absl::StartsWith(TextOf(block, kMagic), "ustar") &&
                            block[kMagic.at + 5] == '\0';  // GNU's own headers have no prefix
      const absl::string_view prefix = is_ustar ? TextOf(block, kPrefix) : absl::string_view();
      member.name = prefix.empty() ? std::string(TextOf(block, kName))
                                   : absl::StrCat(prefix, "/", TextOf(block, kName));
    }
    const bool is_plain = type == '0' || type == '\0' || type == '7';
    member.kind = type == '5' || (is_plain && absl::EndsWith(member.name, "/"))
                      ? TarMember::Kind::kFolder
                  : is_plain                   ? TarMember::Kind::kFile
                  : type == '1' || type == '2' ? TarMember::Kind::kLink
                                               : TarMember::Kind::kOther;
    return member;
  }
}

bool SplitMemberName(absl::string_view name, absl::string_view* key, std::string* extension) {
  const size_t slash = name.rfind('/');
  const size_t base = slash == absl::string_view::npos ? 0 : slash + 1;
  const absl::string_view file = name.substr(base);
  const size_t dot = file.find('.');
  if (dot == 0 || dot == absl::string_view::npos) return false;
  if (absl::StartsWith(file, "__") && absl::EndsWith(file, "__")) return false;
  *key = name.substr(0, base + dot);
  *extension = absl::AsciiStrToLower(file.substr(dot + 1));
  return true;
}

}  // namespace feedwater::server
