#include "server/source/mix_spec.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/source/format.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxDigits = 9;    // of a weight, before its point and behind it
constexpr int64_t kRounded = 1000;  // what weights are rounded to in advice, in all
constexpr char kStops[] = "all, first, or a number of samples such as 1000000";

std::string WordOf(const YamlNode& map, const char* key) {
  const YamlNode* node = map.Find(key);
  return node != nullptr && node->is_scalar() ? node->scalar : "";
}

// A positive decimal as its digits: 0.25 is 25 and 2.
struct Decimal {
  int64_t digits = 0;
  size_t behind_point = 0;
};

absl::StatusOr<Decimal> ReadWeight(const YamlNode& node) {
  const auto wrong = [&](absl::string_view what) {
    return node.Error(
        absl::StrCat("'weight' must be a positive number such as 3 or 0.25, with at "
                     "most ",
                     kMaxDigits, " digits before and behind its point, ", what));
  };
  if (!node.is_scalar()) return wrong(absl::StrCat("not ", node.KindName()));
  const absl::string_view text = node.scalar;
  const size_t point = std::min(text.find('.'), text.size());
  const absl::string_view whole = text.substr(0, point);
  const absl::string_view part = point < text.size() ? text.substr(point + 1) : "";
  const auto are_digits = [](absl::string_view word) {
    return word.size() <= kMaxDigits &&
           absl::c_all_of(word, [](char c) { return absl::ascii_isdigit(c); });
  };
  Decimal weight;
  weight.behind_point = part.size();
  const bool is_number = !whole.empty() && are_digits(whole) && are_digits(part) &&
                         (point == text.size() || !part.empty()) &&
                         absl::SimpleAtoi(absl::StrCat(whole, part), &weight.digits);
  if (!is_number || weight.digits == 0) return wrong(absl::StrCat("not ", node.Found()));
  return weight;
}

// The weights as whole numbers that nothing divides all of.
absl::Status SetWeights(const YamlNode& list, const std::vector<Decimal>& weights, MixSpec* spec) {
  size_t behind_point = 0;
  for (const Decimal& weight : weights) behind_point = std::max(behind_point, weight.behind_point);
  std::vector<int64_t> scaled;  // each below 10^18
  int64_t divisor = 0;
  for (const Decimal& weight : weights) {
    int64_t value = weight.digits;
    for (size_t i = weight.behind_point; i < behind_point; ++i) value *= 10;
    scaled.push_back(value);
    divisor = std::gcd(divisor, value);
  }
  double sum = 0;
  for (int64_t& value : scaled) sum += static_cast<double>(value /= divisor);
  if (sum > static_cast<double>(kMaxMixWeights)) {
    std::vector<int64_t> rounded;
    for (const int64_t value : scaled) {
      const double share = static_cast<double>(value) / sum;
      rounded.push_back(
          std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(kRounded) + 0.5)));
    }
    return list.Error(absl::StrCat("the weights are ", absl::StrJoin(scaled, " : "),
                                   " in whole numbers, which add up to more than ", kMaxMixWeights,
                                   ": shares are kept exactly, over so many samples at most. Cure: "
                                   "round them, for example to ",
                                   absl::StrJoin(rounded, " : ")));
  }
  for (size_t i = 0; i < scaled.size(); ++i) spec->sources[i].weight = scaled[i];
  return absl::OkStatus();
}

absl::Status ReadStop(const YamlNode& node, MixSpec* spec) {
  const absl::Status wrong =
      node.Error(absl::StrCat("'stop' must be ", kStops, ", not ", node.Found()));
  if (!node.is_scalar()) return wrong;
  if (node.scalar == "all" || node.scalar == "first") {
    spec->stop = node.scalar == "all" ? DatasetMix::Stop::kAll : DatasetMix::Stop::kFirst;
    return absl::OkStatus();
  }
  spec->stop = DatasetMix::Stop::kSamples;
  const bool is_number = absl::c_all_of(node.scalar, [](char c) { return absl::ascii_isdigit(c); });
  if (!is_number || !absl::SimpleAtoi(node.scalar, &spec->samples) || spec->samples < 1 ||
      spec->samples > int64_t{1} << 62) {
    return wrong;
  }
  return absl::OkStatus();
}

absl::StatusOr<MixSpec::Source> ReadSource(const YamlNode& node, size_t number,
                                           std::vector<Decimal>* weights) {
  if (!node.is_map()) {
    return node.Error(
        absl::StrCat("a source of 'mix' must be a map such as {format: image_folder, root: NAME, "
                     "path: train, weight: 1}, not ",
                     node.Found()));
  }
  if (const YamlNode* inner = node.Find("mix")) {
    return inner->Error(
        "a mix inside a mix is refused: list its sources in the outer one, with weights that are "
        "multiplied");
  }
  MixSpec::Source source;
  source.dataset = node;
  source.dataset.entries.clear();
  weights->push_back({1, 0});
  for (const auto& [key, value] : node.entries) {
    if (key.scalar == "weight") {
      FW_ASSIGN_OR_RETURN(weights->back(), ReadWeight(value));
    } else {
      source.dataset.entries.emplace_back(key, value);
    }
  }
  const YamlNode* format = node.Find("format");
  if (format == nullptr)
    return node.Error("a source of 'mix' needs 'format', such as image_folder");
  if (!format->is_scalar())
    return format->Error(absl::StrCat("'format' must be a word, not ", format->KindName()));
  // A format that nobody knows is refused where it is opened.
  if (const FormatEntry* entry = Registry<FormatEntry>::Get().Find(format->scalar)) {
    if (!entry->has_files) {
      return format->Error(
          absl::StrCat("a source of 'mix' reads files, and the records of format '", format->scalar,
                       "' come from a program"));
    }
    std::vector<ParamInfo> known = DatasetParams();
    known.insert(known.end(), entry->params.begin(), entry->params.end());
    known.insert(known.end(), MixSourceParams().begin(), MixSourceParams().end());
    FW_RETURN_IF_ERROR(CheckKeys(
        node, known, absl::StrCat("a source of 'mix' with format '", format->scalar, "'")));
  }
  source.format = format->scalar;
  source.place = DatasetLocation::JoinPath(WordOf(node, "root"), WordOf(node, "path"));
  source.name = absl::StrCat("source ", number, " (", Printable(source.format), " in ",
                             Printable(source.place), ")");
  return source;
}

}  // namespace

const std::vector<ParamInfo>& MixParams() {
  static const auto* params = [] {
    auto* list = new std::vector<ParamInfo>(2);
    (*list)[0].name = "mix";
    (*list)[0].type = "list of datasets";
    (*list)[0].json_type = R"({"type":"array"})";
    (*list)[0].required = true;
    (*list)[0].doc = absl::StrCat(
        "Several datasets in one epoch, in exact shares: 1 to ", kMaxMixSources,
        " sources, each a `dataset:` map with a `weight`. They have the same fields and classes.");
    (*list)[1].name = "stop";
    (*list)[1].type = "word or integer";
    (*list)[1].json_type = R"({"anyOf":[{"enum":["all","first"]},{"type":"integer","minimum":1}]})";
    (*list)[1].default_text = "all";
    (*list)[1].doc =
        "Where an epoch ends. all: when every source has given as many samples as it has records. "
        "first: when one has. A number: after so many samples.";
    return list;
  }();
  return *params;
}

const std::vector<ParamInfo>& MixSourceParams() {
  static const auto* params = [] {
    auto* list = new std::vector<ParamInfo>(1);
    (*list)[0].name = "weight";
    (*list)[0].type = "number";
    (*list)[0].json_type = R"({"type":"number","exclusiveMinimum":0})";
    (*list)[0].default_text = "1";
    (*list)[0].doc = absl::StrCat(
        "Share of the source, in comparison with the other sources' weights: a positive number "
        "with at most ",
        kMaxDigits,
        " digits before and behind its point. As whole numbers without a common "
        "divisor all weights together are at most ",
        kMaxMixWeights, ".");
    return list;
  }();
  return *params;
}

absl::StatusOr<MixSpec> ReadMix(const YamlNode& node) {
  if (const YamlNode* format = node.Find("format")) {
    return format->Error(
        "'dataset' has either 'format' or 'mix': in a mix each source has a format of its own");
  }
  FW_RETURN_IF_ERROR(CheckKeys(node, MixParams(), "a dataset with 'mix'"));
  const YamlNode& list = *node.Find("mix");
  if (!list.is_list() || list.items.empty() || list.items.size() > kMaxMixSources) {
    return list.Error(absl::StrCat(
        "'mix' must be a list of 1 to ", kMaxMixSources,
        " datasets such as [{format: webdataset, root: a, weight: 3}, {format: webdataset, root: "
        "b, weight: 1}], not ",
        list.is_list() ? absl::StrCat("one of ", list.items.size()) : list.Found()));
  }
  MixSpec spec;
  std::vector<Decimal> weights;
  for (size_t i = 0; i < list.items.size(); ++i) {
    FW_ASSIGN_OR_RETURN(MixSpec::Source source, ReadSource(list.items[i], i, &weights));
    spec.sources.push_back(std::move(source));
  }
  FW_RETURN_IF_ERROR(SetWeights(list, weights, &spec));
  if (const YamlNode* stop = node.Find("stop")) FW_RETURN_IF_ERROR(ReadStop(*stop, &spec));
  return spec;
}

}  // namespace feedwater::server
