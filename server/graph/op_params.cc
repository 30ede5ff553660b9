#include "server/graph/op_params.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_join.h"

namespace feedwater::server {
namespace {

constexpr const char* kOneOrPairJson =
    R"({"oneOf":[{"type":"integer"},{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2}]})";
constexpr const char* kNumberOrPairJson =
    R"({"oneOf":[{"type":"number","minimum":0},{"type":"array","items":{"type":"number"},"minItems":2,"maxItems":2}]})";

std::string Given(const YamlNode& node) {
  if (node.is_scalar()) return absl::StrCat("'", Printable(node.scalar), "'");
  if (node.is_list()) return absl::StrCat("a list of ", node.items.size());
  return std::string(node.KindName());
}

absl::Status ReadSize(const YamlNode& node, const char* form, int64_t* height, int64_t* width) {
  std::vector<int64_t> pair;
  if (node.is_scalar()) {
    *width = 0;
    return ParamType<int64_t>::Read(node, height);
  }
  if (!node.is_list() || node.items.size() != 2)
    return node.Error(absl::StrCat("must be ", form, ", not ", Given(node)));
  FW_RETURN_IF_ERROR(ParamType<std::vector<int64_t>>::Read(node, &pair));
  *height = pair[0];
  *width = pair[1];
  return absl::OkStatus();
}

std::string PairText(double low, double high) {
  return absl::StrCat("[", ParamType<double>::Text(low), ", ", ParamType<double>::Text(high), "]");
}

absl::Status ReadPair(const YamlNode& node, const char* form, double* low, double* high) {
  if (!node.is_list() || node.items.size() != 2)
    return node.Error(absl::StrCat("must be ", form, ", not ", Given(node)));
  std::vector<double> pair;
  FW_RETURN_IF_ERROR(ParamType<std::vector<double>>::Read(node, &pair));
  if (pair[0] > pair[1])
    return node.Error(absl::StrCat("must be ", form, " with low <= high, not ",
                                   PairText(pair[0], pair[1]),
                                   "; cure: ", PairText(pair[1], pair[0])));
  *low = pair[0];
  *high = pair[1];
  return absl::OkStatus();
}

absl::Status CheckPair(double first, double second, const Constraint& rule) {
  FW_RETURN_IF_ERROR(ParamType<double>::Check(first, rule));
  return ParamType<double>::Check(second, rule);
}

// The same of a range that was written as the number `written`, of which its ends were made: nobody
// wrote these. `most`: the largest number that fits.
absl::Status CheckSpread(double low, double high, double written, double most,
                         const Constraint& rule) {
  const absl::Status good = CheckPair(high, low, rule);
  if (good.ok()) return good;
  const absl::string_view text = good.message();
  return absl::InvalidArgumentError(absl::StrCat(
      text.substr(0, text.rfind(", not ")), ", not ", written, ", which means ",
      PairText(low, high),
      "; cure: ", most > 0 ? absl::StrCat("a number up to ", most, ", or ") : "", "[low, high]"));
}

struct InterpolationName {
  Interpolation value;
  const char* name;
};
constexpr InterpolationName kInterpolationNames[] = {
    {Interpolation::kNearest, "nearest"},
    {Interpolation::kBilinear, "bilinear"},
    {Interpolation::kBicubic, "bicubic"},
    {Interpolation::kOpenCvLinear, "opencv_linear"}};

absl::Status ReadInterpolation(const YamlNode& node, Interpolation* value) {
  std::vector<std::string> known;
  for (const InterpolationName& entry : kInterpolationNames) {
    if (node.is_scalar() && node.scalar == entry.name) {
      *value = entry.value;
      return absl::OkStatus();
    }
    known.emplace_back(entry.name);
  }
  return node.Error(absl::StrCat("must be an interpolation, not ", Given(node),
                                 Suggest(node.is_scalar() ? node.scalar : "", known)));
}

std::string InterpolationText(Interpolation value) {
  for (const InterpolationName& entry : kInterpolationNames) {
    if (entry.value == value) return entry.name;
  }
  return "";
}

}  // namespace

const char* const ParamType<CropSize>::kName = "integer or [height, width]";
const char* const ParamType<CropSize>::kJson = kOneOrPairJson;
absl::Status ParamType<CropSize>::Read(const YamlNode& node, CropSize* value) {
  FW_RETURN_IF_ERROR(
      ReadSize(node, "an integer or [height, width]", &value->height, &value->width));
  if (node.is_scalar()) value->width = value->height;
  return absl::OkStatus();
}
std::string ParamType<CropSize>::Text(const CropSize& value) {
  return absl::StrCat("[", value.height, ", ", value.width, "]");
}
absl::Status ParamType<CropSize>::Check(const CropSize& value, const Constraint& rule) {
  FW_RETURN_IF_ERROR(ParamType<int64_t>::Check(value.height, rule));
  return ParamType<int64_t>::Check(value.width, rule);
}

const char* const ParamType<ResizeSize>::kName = "integer or [height, width]";
const char* const ParamType<ResizeSize>::kJson = kOneOrPairJson;
absl::Status ParamType<ResizeSize>::Read(const YamlNode& node, ResizeSize* value) {
  FW_RETURN_IF_ERROR(ReadSize(node, "an integer (the shorter side) or [height, width]",
                              &value->height, &value->width));
  if (node.is_list() && value->width == 0) return node.Error("must be at least 1, not 0");
  return absl::OkStatus();
}
std::string ParamType<ResizeSize>::Text(const ResizeSize& value) {
  return value.is_shorter_side() ? absl::StrCat(value.height)
                                 : absl::StrCat("[", value.height, ", ", value.width, "]");
}
absl::Status ParamType<ResizeSize>::Check(const ResizeSize& value, const Constraint& rule) {
  FW_RETURN_IF_ERROR(ParamType<int64_t>::Check(value.height, rule));
  return value.is_shorter_side() ? absl::OkStatus() : ParamType<int64_t>::Check(value.width, rule);
}

const char* const ParamType<Interval>::kName = "[low, high]";
const char* const ParamType<Interval>::kJson =
    R"({"type":"array","items":{"type":"number"},"minItems":2,"maxItems":2})";
absl::Status ParamType<Interval>::Read(const YamlNode& node, Interval* value) {
  return ReadPair(node, "[low, high]", &value->low, &value->high);
}
std::string ParamType<Interval>::Text(const Interval& value) {
  return PairText(value.low, value.high);
}
absl::Status ParamType<Interval>::Check(const Interval& value, const Constraint& rule) {
  return CheckPair(value.low, value.high, rule);
}

const char* const ParamType<JitterFactor>::kName = "number or [low, high]";
const char* const ParamType<JitterFactor>::kJson = kNumberOrPairJson;
absl::Status ParamType<JitterFactor>::Read(const YamlNode& node, JitterFactor* value) {
  if (!node.is_scalar())
    return ReadPair(node, "a number or [low, high]", &value->low, &value->high);
  double amount = 0;
  FW_RETURN_IF_ERROR(ParamType<double>::Read(node, &amount));
  if (amount < 0)
    return node.Error(absl::StrCat("must be at least 0, not ", Printable(node.scalar)));
  *value = {std::max(0.0, 1 - amount), 1 + amount, true};
  return absl::OkStatus();
}
std::string ParamType<JitterFactor>::Text(const JitterFactor& value) {
  return PairText(value.low, value.high);
}
absl::Status ParamType<JitterFactor>::Check(const JitterFactor& value, const Constraint& rule) {
  if (!value.is_number) return CheckPair(value.low, value.high, rule);
  return CheckSpread(value.low, value.high, value.high - 1, rule.high.value_or(INFINITY) - 1, rule);
}

const char* const ParamType<HueShift>::kName = "number or [low, high]";
const char* const ParamType<HueShift>::kJson = kNumberOrPairJson;
absl::Status ParamType<HueShift>::Read(const YamlNode& node, HueShift* value) {
  if (!node.is_scalar())
    return ReadPair(node, "a number or [low, high]", &value->low, &value->high);
  double amount = 0;
  FW_RETURN_IF_ERROR(ParamType<double>::Read(node, &amount));
  if (amount < 0)
    return node.Error(absl::StrCat("must be at least 0, not ", Printable(node.scalar)));
  value->low = -amount;
  value->high = amount;
  return absl::OkStatus();
}
std::string ParamType<HueShift>::Text(const HueShift& value) {
  return PairText(value.low, value.high);
}
absl::Status ParamType<HueShift>::Check(const HueShift& value, const Constraint& rule) {
  return CheckPair(value.high, value.low, rule);  // the number that was given, if it was one
}

const char* const ParamType<Degrees>::kName = "number or [low, high]";
const char* const ParamType<Degrees>::kJson = kNumberOrPairJson;
absl::Status ParamType<Degrees>::Read(const YamlNode& node, Degrees* value) {
  HueShift both;
  FW_RETURN_IF_ERROR(ParamType<HueShift>::Read(node, &both));
  *value = {both.low, both.high, node.is_scalar()};
  return absl::OkStatus();
}
std::string ParamType<Degrees>::Text(const Degrees& value) {
  return PairText(value.low, value.high);
}
absl::Status ParamType<Degrees>::Check(const Degrees& value, const Constraint& rule) {
  if (!value.is_number) return CheckPair(value.high, value.low, rule);
  const double most = std::min(rule.high.value_or(INFINITY), -rule.low.value_or(-INFINITY));
  return CheckSpread(value.low, value.high, value.high, most, rule);
}

const char* const ParamType<Shear>::kName = "number, [low, high] or [x low, x high, y low, y high]";
const char* const ParamType<Shear>::kJson =
    R"({"oneOf":[{"type":"number","minimum":0},{"type":"array","items":{"type":"number"},"minItems":2,"maxItems":2},)"
    R"({"type":"array","items":{"type":"number"},"minItems":4,"maxItems":4}]})";
absl::Status ParamType<Shear>::Read(const YamlNode& node, Shear* value) {
  if (node.is_scalar() || !node.is_list() || node.items.size() != 4)
    return ParamType<Degrees>::Read(node, &value->x);
  std::vector<double> four;
  FW_RETURN_IF_ERROR(ParamType<std::vector<double>>::Read(node, &four));
  *value = {{four[0], four[1]}, {four[2], four[3]}};
  if (four[0] <= four[1] && four[2] <= four[3]) return absl::OkStatus();
  return node.Error(absl::StrCat("must be [x low, x high, y low, y high] with low <= high, not ",
                                 ParamType<std::vector<double>>::Text(four)));
}
std::string ParamType<Shear>::Text(const Shear& value) {
  return ParamType<std::vector<double>>::Text(
      {value.x.low, value.x.high, value.y.low, value.y.high});
}
absl::Status ParamType<Shear>::Check(const Shear& value, const Constraint& rule) {
  FW_RETURN_IF_ERROR(ParamType<Degrees>::Check(value.x, rule));
  return ParamType<Degrees>::Check(value.y, rule);
}

const char* const ParamType<OneOrTwo>::kName = "number or a list of 2";
const char* const ParamType<OneOrTwo>::kJson =
    R"({"oneOf":[{"type":"number"},{"type":"array","items":{"type":"number"},"minItems":2,"maxItems":2}]})";
absl::Status ParamType<OneOrTwo>::Read(const YamlNode& node, OneOrTwo* value) {
  if (node.is_scalar()) {
    FW_RETURN_IF_ERROR(ParamType<double>::Read(node, &value->first));
    value->second = value->first;
    return absl::OkStatus();
  }
  if (!node.is_list() || node.items.size() != 2)
    return node.Error(absl::StrCat("must be a number or a list of 2, not ", Given(node)));
  std::vector<double> pair;
  FW_RETURN_IF_ERROR(ParamType<std::vector<double>>::Read(node, &pair));
  *value = {pair[0], pair[1]};
  return absl::OkStatus();
}
std::string ParamType<OneOrTwo>::Text(const OneOrTwo& value) {
  return PairText(value.first, value.second);
}
absl::Status ParamType<OneOrTwo>::Check(const OneOrTwo& value, const Constraint& rule) {
  return CheckPair(value.first, value.second, rule);
}

const char* const ParamType<Padding>::kName = "integer, [x, y] or [left, top, right, bottom]";
const char* const ParamType<Padding>::kJson =
    R"({"oneOf":[{"type":"integer"},{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2},)"
    R"({"type":"array","items":{"type":"integer"},"minItems":4,"maxItems":4}]})";
absl::Status ParamType<Padding>::Read(const YamlNode& node, Padding* value) {
  if (node.is_scalar()) {
    int64_t all = 0;
    FW_RETURN_IF_ERROR(ParamType<int64_t>::Read(node, &all));
    *value = {all, all, all, all};
    return absl::OkStatus();
  }
  if (!node.is_list() || (node.items.size() != 2 && node.items.size() != 4)) {
    return node.Error(absl::StrCat("must be an integer, [x, y] or [left, top, right, bottom], not ",
                                   Given(node)));
  }
  std::vector<int64_t> sides;
  FW_RETURN_IF_ERROR(ParamType<std::vector<int64_t>>::Read(node, &sides));
  *value = {sides[0], sides[1], sides[sides.size() - 2], sides[sides.size() - 1]};
  return absl::OkStatus();
}
std::string ParamType<Padding>::Text(const Padding& value) {
  return absl::StrCat("[", value.left, ", ", value.top, ", ", value.right, ", ", value.bottom, "]");
}
absl::Status ParamType<Padding>::Check(const Padding& value, const Constraint& rule) {
  return ParamType<std::vector<int64_t>>::Check({value.left, value.top, value.right, value.bottom},
                                                rule);
}

const char* const ParamType<FillColor>::kName = "number, or list of 1 or 3 numbers";
const char* const ParamType<FillColor>::kJson =
    R"({"oneOf":[{"type":"number"},{"type":"array","items":{"type":"number"},"minItems":1,"maxItems":1},)"
    R"({"type":"array","items":{"type":"number"},"minItems":3,"maxItems":3}]})";
absl::Status ParamType<FillColor>::Read(const YamlNode& node, FillColor* value) {
  if (node.is_list()) {
    if (node.items.size() != 1 && node.items.size() != 3) {
      return node.Error(absl::StrCat("must be a number or a list of 1 or 3, not ", Given(node)));
    }
    return ParamType<std::vector<double>>::Read(node, &value->values);
  }
  value->values.assign(1, 0);
  return ParamType<double>::Read(node, &value->values[0]);
}
std::string ParamType<FillColor>::Text(const FillColor& value) {
  return ParamType<std::vector<double>>::Text(value.values);
}
absl::Status ParamType<FillColor>::Check(const FillColor& value, const Constraint& rule) {
  return ParamType<std::vector<double>>::Check(value.values, rule);
}

const char* const ParamType<Interpolations>::kName = "interpolation, or a list of them";
const char* const ParamType<Interpolations>::kJson =
    R"({"oneOf":[{"enum":["nearest","bilinear","bicubic","opencv_linear"]},)"
    R"({"type":"array","items":{"enum":["nearest","bilinear","bicubic","opencv_linear"]},"minItems":1}]})";
absl::Status ParamType<Interpolations>::Read(const YamlNode& node, Interpolations* value) {
  value->values.assign(1, Interpolation::kBilinear);
  if (!node.is_list()) return ReadInterpolation(node, &value->values[0]);
  if (node.items.empty())
    return node.Error(
        "must be an interpolation, or one for each image and mask, not an empty list");
  value->values.resize(node.items.size());
  for (size_t i = 0; i < node.items.size(); ++i)
    FW_RETURN_IF_ERROR(ReadInterpolation(node.items[i], &value->values[i]));
  return absl::OkStatus();
}
std::string ParamType<Interpolations>::Text(const Interpolations& value) {
  if (value.values.size() == 1) return InterpolationText(value.values[0]);
  return absl::StrCat("[",
                      absl::StrJoin(value.values, ", ",
                                    [](std::string* out, Interpolation one) {
                                      absl::StrAppend(out, InterpolationText(one));
                                    }),
                      "]");
}
absl::Status ParamType<Interpolations>::Check(const Interpolations&, const Constraint&) {
  return absl::OkStatus();
}

const char* const ParamType<SquareMatrix>::kName = "list of rows, each a list of numbers";
const char* const ParamType<SquareMatrix>::kJson =
    R"({"type":"array","items":{"type":"array","items":{"type":"number"},"minItems":1,"maxItems":64},)"
    R"("minItems":1,"maxItems":64})";
absl::Status ParamType<SquareMatrix>::Read(const YamlNode& node, SquareMatrix* value) {
  value->rows.clear();
  if (!node.is_list() || node.items.empty() || !node.items[0].is_list())
    return node.Error(absl::StrCat("must be a list of rows such as [[1, 0], [0, 1]], not ",
                                   node.is_list() ? "a flat list" : Given(node)));
  if (node.items.size() > kMaxMatrixRows) {
    return node.Error(absl::StrCat("must have at most ", kMaxMatrixRows, " rows, not ",
                                   node.items.size(),
                                   "; a larger matrix is for an op of one's "
                                   "own (op python, or a plug-in)"));
  }
  for (const YamlNode& row : node.items) {
    if (!row.is_list() || row.items.size() != node.items.size()) {
      return row.Error(absl::StrCat("must have rows of ", node.items.size(),
                                    " numbers, as many as there are rows, not ", Given(row)));
    }
    FW_RETURN_IF_ERROR(ParamType<std::vector<double>>::Read(row, &value->rows.emplace_back()));
  }
  return absl::OkStatus();
}
std::string ParamType<SquareMatrix>::Text(const SquareMatrix& value) {
  return absl::StrCat("[",
                      absl::StrJoin(value.rows, ", ",
                                    [](std::string* out, const std::vector<double>& row) {
                                      absl::StrAppend(out,
                                                      ParamType<std::vector<double>>::Text(row));
                                    }),
                      "]");
}
absl::Status ParamType<SquareMatrix>::Check(const SquareMatrix& value, const Constraint& rule) {
  for (const std::vector<double>& row : value.rows)
    FW_RETURN_IF_ERROR(ParamType<std::vector<double>>::Check(row, rule));
  return absl::OkStatus();
}

}  // namespace feedwater::server
