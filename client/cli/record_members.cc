#include "client/cli/record_members.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "server/base/escape.h"
#include "server/base/yaml_word.h"
#include "server/codec/image.h"
#include "server/source/field_reader.h"
#include "server/source/npy_header.h"
#include "server/source/tar_writer.h"
#include "server/source/value_conversion.h"

namespace feedwater::cli {
namespace {

using server::ColumnSpec;
using server::DType;
using server::Layout;
using server::TensorSpec;

// In the order in which a field's `from` names them.
constexpr const char* kExtensions[] = {"jpg", "png", "webp", "ppm", "tif", "bmp", "bin", "fwcs"};
constexpr size_t kNoImage = 6, kCoefficients = 7;
constexpr size_t kMaxStem = 60;
constexpr int kFewestKeyDigits = 8;
constexpr size_t kMaxReason = 4096;

absl::string_view ViewOf(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The place in kExtensions, by the first bytes.
size_t KindOf(absl::Span<const std::byte> encoded) {
  const absl::string_view bytes = ViewOf(encoded);
  if (absl::StartsWith(bytes, "\xFF\xD8\xFF")) return 0;
  if (absl::StartsWith(bytes, "\x89PNG\r\n\x1a\n")) return 1;
  if (absl::StartsWith(bytes, "RIFF") && bytes.substr(0, 12).substr(8) == "WEBP") return 2;
  if (bytes.size() > 8 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '6' &&
      (absl::ascii_isspace(static_cast<unsigned char>(bytes[2])) || bytes[2] == '#')) {
    return 3;
  }
  if (absl::StartsWith(bytes, absl::string_view("II*\0", 4)) ||
      absl::StartsWith(bytes, absl::string_view("MM\0*", 4))) {
    return 4;
  }
  // Two letters say little; the reserved bytes behind the file's size are zero.
  if (bytes.size() >= 26 && absl::StartsWith(bytes, "BM") &&
      bytes.substr(6, 4) == absl::string_view("\0\0\0\0", 4)) {
    return 5;
  }
  if (server::IsCoefficients(encoded)) return kCoefficients;
  return kNoImage;
}

template <typename T>
std::string NumberText(const std::byte* at) {
  T number;
  std::memcpy(&number, at, sizeof(T));
  return absl::StrCat(+number);
}

std::string IntegerText(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kUInt8:
      return NumberText<uint8_t>(at);
    case DType::kInt8:
      return NumberText<int8_t>(at);
    case DType::kInt16:
      return NumberText<int16_t>(at);
    case DType::kUInt16:
      return NumberText<uint16_t>(at);
    case DType::kInt32:
      return NumberText<int32_t>(at);
    default:
      return NumberText<int64_t>(at);
  }
}

// A part of an extension: lower case, without what a shell or the webdataset library splits at.
// "mask.png", as a tar shard may call a field, is "mask": what it holds comes behind.
std::string SafeName(absl::string_view field, std::set<std::string>* taken) {
  for (const char* known : {".jpg", ".jpeg", ".png", ".webp", ".ppm", ".txt", ".npy"}) {
    if (absl::ConsumeSuffix(&field, known)) break;
  }
  std::string safe;
  for (const char c : absl::AsciiStrToLower(field.substr(0, kMaxStem)))
    safe.push_back(absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ? c : '_');
  if (safe.empty()) safe = "field";
  std::string unique = safe;
  for (int i = 2; !taken->insert(unique).second; ++i) unique = absl::StrCat(safe, "_", i);
  return unique;
}

void AppendMember(const std::string& name, std::initializer_list<absl::string_view> parts,
                  std::string* archive) {
  size_t bytes = 0;
  for (const absl::string_view part : parts) bytes += part.size();
  server::AppendTarHeader(name, static_cast<int64_t>(bytes), archive);
  for (const absl::string_view part : parts) archive->append(part.data(), part.size());
  server::FinishTarMember(archive);
}

}  // namespace

int KeyDigits(int64_t records) {
  return std::max(kFewestKeyDigits, static_cast<int>(absl::StrCat(records - 1).size()));
}

void AppendBadPlace(int64_t record, int key_digits, absl::string_view reason,
                    std::string* archive) {
  AppendMember(absl::StrFormat("%0*d.bad.txt", key_digits, record),
               {reason.substr(0, kMaxReason), "\n"}, archive);
}

bool IsPlainText(absl::Span<const std::byte> bytes) {
  absl::string_view text = ViewOf(bytes);
  while (!text.empty()) {
    const size_t length = server::Utf8Length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (length == 0 || (first < ' ' && first != '\n' && first != '\t' && first != '\r'))
      return false;
    text.remove_prefix(length);
  }
  return true;
}

namespace {

bool IsBytes(const TensorSpec& spec) {
  return spec.dtype == DType::kUInt8 && spec.shape == server::Shape{-1};
}

// Which of the fields gets the bare extension: the first one with one of these names, else the
// first one.
template <typename Matches>
size_t FindMain(const std::vector<server::FieldSpec>& fields, const Matches& matches,
                std::initializer_list<absl::string_view> names) {
  size_t main = fields.size();
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!matches(i)) continue;
    if (std::find(names.begin(), names.end(), fields[i].name) != names.end()) return i;
    if (main == fields.size()) main = i;
  }
  return main;
}

}  // namespace

absl::StatusOr<RecordMembers> RecordMembers::Plan(const std::vector<server::FieldSpec>& fields,
                                                  const std::vector<bool>& is_text) {
  RecordMembers plan;
  std::set<std::string> stems;
  const auto is_encoded = [&](size_t i) {
    return IsBytes(fields[i].spec) && fields[i].spec.layout == Layout::kEncoded;
  };
  const auto is_plain_text = [&](size_t i) {
    return IsBytes(fields[i].spec) && !is_encoded(i) && is_text[i];
  };
  const size_t main_image = FindMain(fields, is_encoded, {"data", "image"});
  const size_t main_text = FindMain(fields, is_plain_text, {"txt", "text", "caption"});
  for (size_t i = 0; i < fields.size(); ++i) {
    Member member;
    member.name = fields[i].name;
    member.spec = fields[i].spec;
    const std::string stem = SafeName(member.name, &stems) + ".";
    if (is_encoded(i)) {
      member.kind = Kind::kEncoded;
      if (i != main_image) member.stem = stem;
    } else if (is_plain_text(i)) {
      member.kind = Kind::kText;
      member.extension = "txt";
      if (i != main_text) member.stem = stem;
    } else if (member.name == "label" && member.spec.shape.empty() &&
               server::IsInteger(member.spec.dtype)) {
      member.kind = Kind::kNumber;
      member.extension = "cls";
    } else {
      const bool is_raw = member.spec.dtype == DType::kBFloat16;
      member.kind = is_raw ? Kind::kRaw : Kind::kArray;
      member.extension = is_raw ? "bf16" : "npy";
      member.stem = stem;
    }
    if (const absl::Status same = CheckReadBack(member); !same.ok()) return same;
    plan.members_.push_back(std::move(member));
  }
  return plan;
}

// Asks the reader what it would make of the member.
absl::Status RecordMembers::CheckReadBack(const Member& member) {
  server::FieldRequest request;
  request.name = request.from = member.name;
  ColumnSpec column = ColumnSpec::Bytes(member.name);
  if (member.kind == Kind::kText || member.kind == Kind::kNumber)
    column = ColumnSpec::Text(member.name);
  if (member.kind != Kind::kEncoded && member.kind != Kind::kText) {
    request.dtype = member.spec.dtype;
    request.shape = member.spec.shape;
  }
  const absl::StatusOr<server::FieldReader> reader =
      server::FieldReader::Create({request}, {column}, "the shards");
  std::string found = "nothing";
  if (reader.ok()) {
    const TensorSpec& spec = reader->fields()[0].spec;
    // What the source calls plain may look like an image, and then goes where images go, too.
    if (spec.dtype == member.spec.dtype && spec.shape == member.spec.shape &&
        (spec.layout == member.spec.layout || member.spec.layout == Layout::kPlain)) {
      return absl::OkStatus();
    }
    found = spec.ToString();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("field '", server::Printable(member.name), "' is ", member.spec.ToString(),
                   ", and would be read back from tar shards as ", found,
                   "; cure: leave it out of the dataset's 'fields', or give it another shape"));
}

std::vector<std::string> RecordMembers::Describe() const {
  std::vector<std::string> lines;
  for (const Member& member : members_) {
    lines.push_back(absl::StrCat(member.name, " ", member.spec.ToString(), ": ", member.stem,
                                 member.kind == Kind::kEncoded ? "*" : member.extension));
  }
  return lines;
}

size_t RecordMembers::MostBytes(const server::Record& values) const {
  size_t bytes = 0;
  for (size_t i = 0; i < members_.size(); ++i)
    bytes += 4 * server::kTarBlock + values.fields[i].bytes();
  return bytes;
}

void RecordMembers::Append(int64_t record, int key_digits, const server::Record& values,
                           std::string* archive, std::vector<ImageKinds>* kinds) const {
  const std::string key = absl::StrFormat("%0*d.", key_digits, record);
  archive->reserve(archive->size() + MostBytes(values));
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    const server::Tensor& value = values.fields[i];
    const absl::string_view bytes(reinterpret_cast<const char*>(value.data), value.bytes());
    const std::string begin = absl::StrCat(key, member.stem);
    switch (member.kind) {
      case Kind::kEncoded: {
        const size_t kind = KindOf({value.data, value.bytes()});
        (*kinds)[i] = static_cast<ImageKinds>((*kinds)[i] | 1u << kind);
        AppendMember(begin + kExtensions[kind], {bytes}, archive);
        break;
      }
      case Kind::kNumber:
        AppendMember(begin + member.extension, {IntegerText(member.spec.dtype, value.data)},
                     archive);
        break;
      case Kind::kArray:
        AppendMember(begin + member.extension,
                     {server::WriteNpyHeader(value.spec.dtype, value.spec.shape), bytes}, archive);
        break;
      case Kind::kText:
      case Kind::kRaw:
        AppendMember(begin + member.extension, {bytes}, archive);
        break;
    }
  }
}

std::string RecordMembers::FromOf(const Member& member, ImageKinds kinds) {
  if (member.kind != Kind::kEncoded) return absl::StrCat(member.stem, member.extension);
  std::vector<std::string> names;
  for (size_t kind = 0; kind < std::size(kExtensions); ++kind) {
    if ((kinds >> kind & 1) != 0) names.push_back(absl::StrCat(member.stem, kExtensions[kind]));
  }
  return absl::StrJoin(names, ";");
}

std::string RecordMembers::Section(const std::vector<ImageKinds>& kinds,
                                   const std::string& indent) const {
  std::string section;
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    absl::StrAppend(&section, indent, server::YamlWord(member.name),
                    ": {from: ", server::YamlWord(FromOf(member, kinds[i])));
    if (member.kind != Kind::kEncoded && member.kind != Kind::kText) {
      absl::StrAppend(&section, ", dtype: ", server::DTypeName(member.spec.dtype));
      if (member.kind != Kind::kNumber)
        absl::StrAppend(&section, ", shape: [", absl::StrJoin(member.spec.shape, ", "), "]");
    }
    absl::StrAppend(&section, "}\n");
  }
  return section;
}

}  // namespace feedwater::cli
