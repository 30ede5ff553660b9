#include "server/text/json_vocabulary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/charconv.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

using nlohmann::json;

constexpr int kMostDepth = 32;
constexpr int64_t kMostOtherValues = 200'000;
constexpr size_t kMostMerges = 1 << 21;

// Where the parser is: the two lists are told by their place alone, `model.vocab` and
// `model.merges`.
class Reader : public nlohmann::json_sax<json> {
 public:
  Reader(absl::string_view text, JsonVocabulary* made)
      : text_(text), made_(*made), rest_(made->rest, /*allow_exceptions=*/false) {}

  absl::Status status = absl::OkStatus();

  bool null() override { return In() ? Odd("null") : Count() && rest_.null(); }
  bool boolean(bool value) override {
    return In() ? Odd("true or false") : Count() && rest_.boolean(value);
  }
  bool number_integer(number_integer_t value) override {
    if (list_ == List::kVocabulary && depth_ == kListDepth) return AddToken(value);
    if (list_ == List::kPieces) return AddScore(static_cast<double>(value));
    return In() ? Odd("a number") : Count() && rest_.number_integer(value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == List::kVocabulary && depth_ == kListDepth)
      return AddToken(static_cast<int64_t>(std::min<number_unsigned_t>(value, kMostTokens)));
    if (list_ == List::kPieces) return AddScore(static_cast<double>(value));
    return In() ? Odd("a number") : Count() && rest_.number_unsigned(value);
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (list_ == List::kPieces) return AddScore(NumberOfSerde(text));
    return In() ? Odd("a number with a point") : Count() && rest_.number_float(value, text);
  }
  bool binary(binary_t&) override { return Odd("binary data"); }
  bool string(string_t& value) override {
    if (list_ == List::kPieces) return AddPiece(value);
    if (list_ == List::kMerges) return depth_ == kListDepth ? AddLine(value) : AddHalf(value);
    return In() ? Odd("a text") : Count() && rest_.string(value);
  }
  bool key(string_t& value) override {
    if (list_ == List::kVocabulary) {
      token_ = value;
      return true;
    }
    if (depth_ == 1) section_ = value;
    if (depth_ == 2) name_ = value;
    return Count() && rest_.key(value);
  }

  bool start_object(size_t) override {
    if (!Deeper()) return false;
    if (Begins("vocab")) {
      list_ = List::kVocabulary;
      return IsFirst(&has_vocabulary_) && rest_.null();
    }
    return In() ? Odd("an object") : Count() && rest_.start_object(static_cast<size_t>(-1));
  }
  bool end_object() override {
    const bool was_list = In();
    --depth_;
    if (!was_list) return rest_.end_object();
    list_ = List::kNone;
    return true;
  }
  bool start_array(size_t) override {
    if (!Deeper()) return false;
    if (Begins("vocab") || Begins("merges")) {
      list_ = name_ == "vocab" ? List::kPieces : List::kMerges;
      made_.is_list = list_ == List::kPieces || made_.is_list;
      return IsFirst(list_ == List::kPieces ? &has_vocabulary_ : &has_merges_) && rest_.null();
    }
    if ((list_ == List::kMerges || list_ == List::kPieces) && depth_ == kListDepth + 1) {
      halves_ = 0;
      return true;
    }
    return In() ? Odd("a list") : Count() && rest_.start_array(static_cast<size_t>(-1));
  }
  bool end_array() override {
    --depth_;
    if (!In()) return rest_.end_array();
    if (depth_ < kListDepth) {
      list_ = List::kNone;
      return true;
    }
    if (list_ == List::kPieces)
      return halves_ == 2 || Fail(absl::StrCat(Entry(), " is not a text and a number"));
    if (halves_ != 2) return Fail(absl::StrCat(Entry(), " has ", halves_, " texts, not two"));
    return AddMerge(half_, token_);
  }
  bool parse_error(size_t at, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    const absl::string_view before = text_.substr(0, std::min(at, text_.size()));
    return Fail(absl::StrCat("line ", 1 + std::count(before.begin(), before.end(), '\n'),
                             ": it is no JSON: ", Printable(error.what())));
  }

 private:
  enum class List { kNone, kVocabulary, kPieces, kMerges };
  static constexpr int kListDepth = 3;  // within {"model": {"vocab": {

  bool In() const { return list_ != List::kNone; }
  bool Begins(const char* list) const {
    return !In() && depth_ == kListDepth && section_ == "model" && name_ == list;
  }
  bool Fail(std::string why) {
    if (status.ok()) status = absl::InvalidArgumentError(std::move(why));
    return false;
  }
  bool IsFirst(bool* was_there) {
    if (!std::exchange(*was_there, true)) return true;
    return Fail(absl::StrCat("model.", name_, " stands there a second time"));
  }
  std::string Entry() const {
    if (list_ == List::kMerges) return absl::StrCat("model.merges[", made_.merges.size(), "]");
    if (list_ == List::kPieces) return absl::StrCat("model.vocab[", made_.scores.size(), "]");
    return absl::StrCat("model.vocab '", Printable(token_), "'");
  }
  bool Odd(const char* found) {
    return Fail(absl::StrCat(Entry(), " is ", found, " in place of ",
                             list_ == List::kMerges   ? "two texts"
                             : list_ == List::kPieces ? "a text and a number"
                                                      : "a number"));
  }
  bool Deeper() {
    if (++depth_ <= kMostDepth) return true;
    return Fail(absl::StrCat("it is nested deeper than ", kMostDepth));
  }
  bool Count() {
    if (++others_ <= kMostOtherValues) return true;
    return Fail(absl::StrCat("it has more than ", kMostOtherValues,
                             " values beside model.vocab and model.merges"));
  }
  bool AddToken(int64_t id) {
    const absl::Status added = made_.vocabulary.Add(token_, id);
    return added.ok() || Fail(absl::StrCat("model.vocab: ", added.message()));
  }
  // The two of a piece, in this order.
  bool AddPiece(const std::string& text) {
    if (depth_ != kListDepth + 1 || halves_ != 0) return Odd("a text");
    token_ = text;
    halves_ = 1;
    return true;
  }
  bool AddScore(double score) {
    if (depth_ != kListDepth + 1 || halves_ != 1) return Odd("a number");
    if (!std::isfinite(score)) return Odd("a number out of range");
    halves_ = 2;
    if (!AddToken(static_cast<int64_t>(made_.scores.size()))) return false;
    made_.scores.push_back(score);
    return true;
  }
  bool AddMerge(absl::string_view first, absl::string_view second) {
    if (made_.merges.size() >= kMostMerges)
      return Fail(absl::StrCat("model.merges has more than ", kMostMerges, " entries"));
    made_.merges.Add(first, second);
    return true;
  }
  bool AddLine(const std::string& line) {
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
      return Fail(absl::StrCat(Entry(), " '", Printable(line), "' is not two texts and a space"));
    return AddMerge(absl::string_view(line).substr(0, space),
                    absl::string_view(line).substr(space + 1));
  }
  bool AddHalf(const std::string& half) {
    (halves_ == 0 ? half_ : token_) = half;
    return ++halves_ <= 2 || Odd("more than two texts");
  }

  const absl::string_view text_;
  JsonVocabulary& made_;
  nlohmann::detail::json_sax_dom_parser<json> rest_;
  int depth_ = 0;
  int64_t others_ = 0;
  std::string section_, name_, token_, half_;
  int halves_ = 0;
  bool has_vocabulary_ = false, has_merges_ = false;
  List list_ = List::kNone;
};

}  // namespace

void MergeList::Add(absl::string_view first, absl::string_view second) {
  pairs_.push_back({static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(first.size()),
                    static_cast<uint32_t>(second.size())});
  absl::StrAppend(&texts_, first, second);
}

absl::string_view MergeList::first(size_t i) const {
  return absl::string_view(texts_).substr(pairs_[i].offset, pairs_[i].first_bytes);
}

absl::string_view MergeList::second(size_t i) const {
  return absl::string_view(texts_).substr(pairs_[i].offset + pairs_[i].first_bytes,
                                          pairs_[i].second_bytes);
}

double NumberOfSerde(absl::string_view text) {
  constexpr int64_t kMostExponent = 308, kFarExponent = 1'000'000'000;
  static const auto* const powers = [] {
    auto* made = new std::array<double, kMostExponent + 1>;
    for (size_t i = 0; i < made->size(); ++i) {
      const std::string power = absl::StrCat("1e", i);
      absl::from_chars(power.data(), power.data() + power.size(), (*made)[i]);
    }
    return made;
  }();
  const auto is_digit = [&](size_t at) {
    return at < text.size() && text[at] >= '0' && text[at] <= '9';
  };
  size_t at = 0;
  const bool is_negative = !text.empty() && text[0] == '-';
  if (is_negative) ++at;
  uint64_t digits = 0;
  int64_t exponent = 0;
  bool is_full = false;  // further digits do not count
  const auto take = [&](size_t i) {
    const auto digit = static_cast<uint64_t>(text[i] - '0');
    constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
    is_full = is_full || digits > kMost / 10 || digits * 10 > kMost - digit;
    if (!is_full) digits = digits * 10 + digit;
    return !is_full;
  };
  for (; is_digit(at); ++at) exponent += take(at) ? 0 : 1;
  if (at < text.size() && text[at] == '.') {
    is_full = false;
    for (++at; is_digit(at); ++at) exponent -= take(at) ? 1 : 0;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    const bool is_small = ++at < text.size() && text[at] == '-';
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    int64_t written = 0;
    for (; is_digit(at); ++at) written = std::min(kFarExponent, written * 10 + (text[at] - '0'));
    exponent += is_small ? -written : written;
  }
  auto value = static_cast<double>(digits);
  for (; exponent < -kMostExponent && value != 0; exponent += kMostExponent)
    value /= (*powers)[kMostExponent];
  if (exponent > kMostExponent) {
    if (value != 0) value = std::numeric_limits<double>::infinity();
  } else if (exponent >= 0) {
    value *= (*powers)[static_cast<size_t>(exponent)];
  } else {
    value /= (*powers)[static_cast<size_t>(std::min(-exponent, kMostExponent))];
  }
  return is_negative ? -value : value;
}

absl::StatusOr<JsonVocabulary> ReadJsonVocabulary(absl::string_view text) {
  JsonVocabulary made;
  Reader reader(text, &made);
  const bool is_read = json::sax_parse(text.begin(), text.end(), &reader);
  FW_RETURN_IF_ERROR(reader.status);
  if (!is_read || !made.rest.is_object())
    return absl::InvalidArgumentError("it is no tokenizer.json: a JSON object with `model`");
  return made;
}

}  // namespace feedwater::server
