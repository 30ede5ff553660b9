#include "server/source/npy_header.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxAxes = 16;

absl::Status Damaged(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("is no .npy file: ", why));
}

// The text behind "'key':", up to what ends the value; empty when the key is not there.
absl::string_view ValueOf(absl::string_view head, absl::string_view key, char end) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = absl::StrCat(std::string(1, quote), key, std::string(1, quote));
    const size_t at = head.find(quoted);
    if (at == absl::string_view::npos) continue;
    absl::string_view rest = absl::StripLeadingAsciiWhitespace(head.substr(at + quoted.size()));
    if (!absl::ConsumePrefix(&rest, ":")) return {};
    rest = absl::StripLeadingAsciiWhitespace(rest);
    const size_t stop = rest.find(end);
    return stop == absl::string_view::npos ? absl::string_view() : rest.substr(0, stop);
  }
  return {};
}

constexpr struct {
  absl::string_view name;
  DType dtype;
} kKnown[] = {{"u1", DType::kUInt8},  {"i1", DType::kInt8},    {"b1", DType::kBool},
              {"i2", DType::kInt16},  {"u2", DType::kUInt16},  {"i4", DType::kInt32},
              {"i8", DType::kInt64},  {"f2", DType::kFloat16}, {"f4", DType::kFloat32},
              {"f8", DType::kFloat64}};

absl::StatusOr<DType> DTypeOf(absl::string_view descr) {
  const std::string shown = Printable(descr);
  if (!absl::StartsWith(descr, "'") && !absl::StartsWith(descr, "\"")) {
    return absl::InvalidArgumentError(
        absl::StrCat("has the structured dtype ", shown, "; cure: save each of its fields alone"));
  }
  descr = descr.substr(1, descr.empty() ? 0 : descr.size() - 2);
  if (absl::StrContains(descr, 'O')) {
    return absl::InvalidArgumentError(
        "holds Python objects (pickles), which are never read; cure: arr.astype(...) to a numeric "
        "dtype and numpy.save again");
  }
  if (absl::StartsWith(descr, ">")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is big-endian (", shown, "); cure: arr.astype(arr.dtype.newbyteorder('<')) and save"));
  }
  const absl::string_view kind =
      absl::StripPrefix(absl::StripPrefix(absl::StripPrefix(descr, "<"), "|"), "=");
  for (const auto& known : kKnown) {
    if (kind == known.name) return known.dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("has dtype ", shown,
                   ", which has no counterpart; cure: arr.astype('int64') or "
                   "'float32' and save"));
}

absl::StatusOr<Shape> ShapeOf(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "(")) return Damaged("its header names no shape");
  Shape shape;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty()) continue;
    absl::ConsumeSuffix(&part, "L");  // a `long` of Python 2: (3L, 4L)
    int64_t axis = 0;
    if (!absl::SimpleAtoi(part, &axis) || axis < 0 || shape.size() == kMaxAxes)
      return Damaged(absl::StrCat("its shape is (", Printable(text), ")"));
    shape.push_back(axis);
  }
  return shape;
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view head) {
  constexpr size_t kShort = 10, kLong = 12;
  if (head.size() < kLong || !absl::StartsWith(head, kNpyMagic))
    return Damaged("it does not begin with \\x93NUMPY");
  const auto byte = [&](size_t at) {
    return static_cast<size_t>(static_cast<unsigned char>(head[at]));
  };
  const size_t version = byte(6);
  if (version < 1 || version > 3) return Damaged(absl::StrCat("its version is ", version));
  const size_t begin = version == 1 ? kShort : kLong;
  size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > head.size() - begin) {
    return Damaged(length > kMaxNpyHeaderBytes ? absl::StrCat("its header has ", length, " bytes")
                                               : std::string("it ends within its header"));
  }
  const absl::string_view text = head.substr(begin, length);
  NpyHeader header;
  header.bytes = begin + length;
  // A list in descr (a structured dtype) holds commas: it is told by its first character.
  const absl::string_view descr = ValueOf(text, "descr", ',');
  if (descr.empty()) return Damaged("its header names no dtype");
  FW_ASSIGN_OR_RETURN(header.dtype, DTypeOf(descr));
  FW_ASSIGN_OR_RETURN(header.shape, ShapeOf(ValueOf(text, "shape", ')')));
  const absl::string_view fortran = ValueOf(text, "fortran_order", ',');
  if (fortran != "False" && fortran != "True") return Damaged("its header names no order");
  if (fortran == "True" && header.shape.size() > 1) {
    return absl::InvalidArgumentError(
        "is in Fortran order, so that a record's elements do not lie together; cure: "
        "numpy.save(path, numpy.ascontiguousarray(arr))");
  }
  return header;
}

std::string WriteNpyHeader(DType dtype, const Shape& shape) {
  constexpr size_t kBegin = 10, kUnit = 64;
  std::string descr;
  for (const auto& known : kKnown) {
    if (known.dtype == dtype) descr = absl::StrCat(DTypeSize(dtype) == 1 ? "|" : "<", known.name);
  }
  if (descr.empty()) return "";
  // One axis has a comma behind it, as every tuple of one in Python.
  std::string text = absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (",
                                  absl::StrJoin(shape, ", "), shape.size() == 1 ? "," : "", "), }");
  text.append(kUnit - 1 - (kBegin + text.size()) % kUnit, ' ');
  text.push_back('\n');
  std::string head(kNpyMagic);
  for (const size_t byte : {size_t{1}, size_t{0}, text.size() & 0xFF, text.size() >> 8})
    head.push_back(static_cast<char>(byte));
  return head + text;
}

}  // namespace feedwater::server
