#include "server/text/json_vocabulary.h"

#include <algorithm>
#include <utility>

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
    return list_ == List::kVocabulary && depth_ == kListDepth ? AddToken(value)
           : In()                                             ? Odd("a number")
                  : Count() && rest_.number_integer(value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == List::kVocabulary && depth_ == kListDepth)
      return AddToken(static_cast<int64_t>(std::min<number_unsigned_t>(value, kMostTokens)));
    return In() ? Odd("a number") : Count() && rest_.number_unsigned(value);
  }
  bool number_float(number_float_t value, const string_t& text) override {
    return In() ? Odd("a number with a point") : Count() && rest_.number_float(value, text);
  }
  bool binary(binary_t&) override { return Odd("binary data"); }
  bool string(string_t& value) override {
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
      return rest_.null();
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
    if (Begins("vocab")) {
      return Fail(
          "model.vocab is a list, as Unigram has it, which is not read from a tokenizer.json; "
          "cure: give the .model file of SentencePiece that it was made from");
    }
    if (Begins("merges")) {
      list_ = List::kMerges;
      return rest_.null();
    }
    if (list_ == List::kMerges && depth_ == kListDepth + 1) {
      halves_ = 0;
      return true;
    }
    return In() ? Odd("a list") : Count() && rest_.start_array(static_cast<size_t>(-1));
  }
  bool end_array() override {
    --depth_;
    if (list_ != List::kMerges) return rest_.end_array();
    if (depth_ < kListDepth) {
      list_ = List::kNone;
      return true;
    }
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
  enum class List { kNone, kVocabulary, kMerges };
  static constexpr int kListDepth = 3;  // within {"model": {"vocab": {

  bool In() const { return list_ != List::kNone; }
  bool Begins(const char* list) const {
    return !In() && depth_ == kListDepth && section_ == "model" && name_ == list;
  }
  bool Fail(std::string why) {
    if (status.ok()) status = absl::InvalidArgumentError(std::move(why));
    return false;
  }
  std::string Entry() const {
    return list_ == List::kMerges ? absl::StrCat("model.merges[", made_.merges.size(), "]")
                                  : absl::StrCat("model.vocab '", Printable(token_), "'");
  }
  bool Odd(const char* found) {
    return Fail(absl::StrCat(Entry(), " is ", found, " in place of ",
                             list_ == List::kMerges ? "two texts" : "a number"));
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
