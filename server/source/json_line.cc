#include "server/source/json_line.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

// --- what Python writes beyond JSON

constexpr absl::string_view kNan = "NaN", kInfinity = "Infinity";
// Numbers of as many characters, so that a place in the mended line is one in the line, too.
constexpr absl::string_view kForNan = "0e0", kForInfinity = "0.0000e0";
static_assert(kForNan.size() == kNan.size() && kForInfinity.size() == kInfinity.size());

// Whether a number that stands at [at, at + bytes) is all that is there.
bool StandsAlone(absl::string_view line, size_t at, size_t bytes) {
  constexpr absl::string_view kBefore = ":,[ \t\r\n", kBehind = ",]} \t\r\n";
  return at > 0 && at + bytes < line.size() && absl::StrContains(kBefore, line[at - 1]) &&
         absl::StrContains(kBehind, line[at + bytes]);
}

// The unit of UTF-16 that "\u" and four digits at `at` say; 0 where there is none.
uint32_t EscapedUnit(absl::string_view line, size_t at) {
  constexpr size_t kDigits = 4;
  uint32_t unit = 0;
  if (line.substr(at, 2) != "\\u") return 0;
  const absl::string_view digits = line.substr(at + 2, kDigits);
  const bool is_number = digits.size() == kDigits &&
                         std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit) &&
                         absl::SimpleHexAtoi(digits, &unit);
  return is_number ? unit : 0;
}

// The line as JSON, of as many bytes; "" where it is that already, or is no JSON at all.
std::string Mended(absl::string_view line) {
  constexpr size_t kEscape = 6;  // characters of \uXXXX
  std::string mended;
  const auto replace = [&](size_t at, absl::string_view by) {
    if (mended.empty()) mended = std::string(line);
    mended.replace(at, by.size(), by.data(), by.size());
  };
  bool in_text = false;
  for (size_t at = 0; at < line.size();) {
    const char c = line[at];
    if (c == '"') in_text = !in_text;
    if (in_text && c == '\\') {
      const uint32_t unit = EscapedUnit(line, at);
      const bool is_first = unit >= 0xD800 && unit < 0xDC00, is_second = unit >> 10 == 0xDC00 >> 10;
      const bool is_pair = is_first && EscapedUnit(line, at + kEscape) >> 10 == 0xDC00 >> 10;
      if ((is_first && !is_pair) || is_second) replace(at, "\\ufffd");
      at += is_pair ? 2 * kEscape : unit != 0 ? kEscape : 2;
      continue;
    }
    if (!in_text && c == 'N' && absl::StartsWith(line.substr(at), kNan)) {
      if (StandsAlone(line, at, kNan.size())) replace(at, kForNan);
    } else if (!in_text && c == 'I' && absl::StartsWith(line.substr(at), kInfinity)) {
      const size_t sign = at > 0 && line[at - 1] == '-' ? 1 : 0;
      if (StandsAlone(line, at - sign, kInfinity.size() + sign)) replace(at, kForInfinity);
    }
    ++at;
  }
  return mended;
}

bool MayNeedMending(absl::string_view line) {
  if (absl::StrContains(line, kNan) || absl::StrContains(line, kInfinity)) return true;
  for (size_t at = line.find("\\u"); at != absl::string_view::npos; at = line.find("\\u", at + 2)) {
    // Units of surrogates are those from D800 on.
    if (at + 2 < line.size() && absl::ascii_tolower(line[at + 2]) == 'd') return true;
  }
  return false;
}

// A mended line, of which the parser takes one character after the other.
struct MendedLine {
  absl::string_view line, mended;
  size_t taken = 0;

  // What stood where the parser's last number stands; it has looked one character further.
  absl::string_view Number(size_t bytes) const {
    return taken > bytes ? line.substr(taken - 1 - bytes, bytes) : absl::string_view();
  }
};

class MendedIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  explicit MendedIterator(MendedLine* line = nullptr) : line_(line) {}
  char operator*() const { return line_->mended[line_->taken]; }
  MendedIterator& operator++() {
    ++line_->taken;
    return *this;
  }
  MendedIterator operator++(int) {
    MendedIterator before = *this;
    ++line_->taken;
    return before;
  }
  // One of the two is the end.
  bool operator==(const MendedIterator& other) const { return is_end() == other.is_end(); }
  bool operator!=(const MendedIterator& other) const { return !(*this == other); }

 private:
  bool is_end() const { return line_ == nullptr || line_->taken == line_->mended.size(); }
  MendedLine* line_;
};

// --- values

// A list on its way, with the lists in it.
class JsonList {
 public:
  static constexpr size_t kMaxElements = 4 << 20;

  void Begin() {
    shape_.clear();
    counts_.clear();
    integers_.clear();
    reals_.clear();
    kind_ = JsonKind::kNull;
    why_ = {};
    leaf_level_ = 0;
  }
  void Refuse(absl::string_view why) {
    if (why_.empty()) why_ = why;
  }
  void Open() {
    if (!counts_.empty()) ++counts_.back();
    counts_.push_back(0);
    if (counts_.size() > kMaxJsonListAxes) Refuse("lists in more than 4 levels");
    if (leaf_level_ != 0 && counts_.size() > leaf_level_) Refuse("a list of numbers and lists");
  }
  // Whether it was the outermost one.
  bool Close() {
    const size_t level = counts_.size() - 1;
    const int64_t count = counts_.back();
    counts_.pop_back();
    if (level < kMaxJsonListAxes) {
      while (shape_.size() <= level) shape_.push_back(-1);
      if (shape_[level] >= 0 && shape_[level] != count)
        Refuse("lists of different lengths in a list");
      shape_[level] = count;
    }
    return counts_.empty();
  }
  void Add(JsonKind kind, int64_t integer, double real) {
    ++counts_.back();
    if (!why_.empty()) return;
    if (leaf_level_ == 0) leaf_level_ = counts_.size();
    if (leaf_level_ != counts_.size() || shape_.size() > counts_.size())
      return Refuse("a list of numbers and lists");
    if (integers_.size() + reals_.size() >= kMaxElements)
      return Refuse("a list of more than 4,194,304 numbers");
    const bool is_bool = kind == JsonKind::kBool;
    if (kind_ != JsonKind::kNull && (kind_ == JsonKind::kBool) != is_bool)
      return Refuse("a list of numbers and of true or false");
    if (kind == JsonKind::kReal && kind_ == JsonKind::kInteger)
      reals_.assign(integers_.begin(), integers_.end());
    if (kind_ != JsonKind::kReal) kind_ = kind;
    if (kind_ == JsonKind::kReal) {
      reals_.push_back(real);
    } else {
      integers_.push_back(integer);
    }
  }
  JsonValue Value() const {
    JsonValue value;
    value.is_list = true;
    value.kind = why_.empty() ? kind_ : JsonKind::kOther;
    value.why = why_;
    value.shape = shape_;
    value.integers = &integers_;
    value.reals = &reals_;
    return value;
  }

 private:
  Shape shape_;
  std::vector<int64_t> counts_;  // of the lists that are open
  std::vector<int64_t> integers_;
  std::vector<double> reals_;
  JsonKind kind_ = JsonKind::kNull;
  absl::string_view why_;
  size_t leaf_level_ = 0;  // lists around its numbers; 0: none was seen
};

// Told by the parser what comes next; false ends the line, and status() says why.
class JsonEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  // `mended` is null where the line is read as it is.
  JsonEvents(JsonSink* sink, const MendedLine* mended) : sink_(sink), mended_(mended) {}
  const absl::Status& status() const { return status_; }

  bool null() override {
    if (IsIgnored()) return true;
    if (InList()) return RefuseList("null in a list");
    return Tell({});
  }
  bool boolean(bool value) override { return Number(JsonKind::kBool, value ? 1 : 0, 0); }
  bool number_integer(number_integer_t value) override {
    return Number(JsonKind::kInteger, value, static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<uint64_t>(INT64_MAX)) {
      return Number(JsonKind::kInteger, static_cast<int64_t>(value), static_cast<double>(value));
    }
    return TooLarge();
  }
  // The parser also gives integers that 64 bits do not hold, rounded.
  bool number_float(number_float_t value, const string_t& text) override {
    const bool is_integer = text.find_first_of(".eE") == string_t::npos;
    if (mended_ != nullptr) {
      const absl::string_view written = mended_->Number(text.size());
      constexpr double kInfinite = std::numeric_limits<double>::infinity();
      if (written == kNan) value = std::numeric_limits<double>::quiet_NaN();
      if (absl::EndsWith(written, kInfinity)) value = written[0] == '-' ? -kInfinite : kInfinite;
    }
    return is_integer ? TooLarge() : Number(JsonKind::kReal, 0, value);
  }
  bool string(string_t& text) override {
    if (IsIgnored()) return true;
    if (InList()) return RefuseList("a list of text");
    JsonValue value;
    value.kind = JsonKind::kText;
    value.text = absl::string_view(text.data(), text.size());
    return Tell(value);
  }
  bool binary(binary_t&) override { return Fail("no JSON"); }

  bool start_object(std::size_t) override {
    if (InList()) list_.Refuse("a list of objects");
    if (InList() && ignored_from_ == 0) ignored_from_ = open_.size() + 1;
    return Open({path_.size(), /*is_list=*/false});
  }
  bool key(string_t& key) override {
    if (IsIgnored()) return true;
    path_.resize(open_.back().path);
    if (open_.size() > 1) path_.push_back('.');
    if (key.empty() && open_.size() == 1) return Fail("a key without a name");
    if (path_.size() + key.size() > kMaxJsonPath)
      return Fail(absl::StrCat("a key that is longer than ", kMaxJsonPath, " bytes"));
    path_.append(key);
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override {
    if (open_.empty()) return Fail("a list, not an object");
    if (!IsIgnored()) {
      if (!InList()) list_.Begin();
      list_.Open();
    }
    return Open({path_.size(), /*is_list=*/true});
  }
  bool end_array() override {
    const bool ends = !IsIgnored() && list_.Close();
    return Close() && (!ends || Tell(list_.Value()));
  }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception&) override {
    if (!status_.ok()) return false;
    return Fail(absl::StrCat("no JSON at byte ", position, ", '",
                             Printable(absl::string_view(token).substr(0, 40)), "'"));
  }

 private:
  struct Level {
    size_t path;  // bytes of the path that belong to the levels above
    bool is_list;
  };

  bool Fail(absl::string_view why) {
    status_ = absl::DataLossError(why);
    return false;
  }
  bool InList() const { return !open_.empty() && open_.back().is_list; }
  bool IsIgnored() const { return ignored_from_ != 0; }  // within an object in a list
  bool RefuseList(absl::string_view why) {
    list_.Refuse(why);
    return true;
  }
  bool Tell(const JsonValue& value) {
    if (open_.empty()) return Fail("a value, not an object");
    status_ = sink_->Value(path_, value);
    return status_.ok();
  }
  bool TellOther(absl::string_view why) {
    JsonValue value;
    value.kind = JsonKind::kOther;
    value.why = why;
    return Tell(value);
  }
  bool TooLarge() {
    constexpr absl::string_view kWhy = "an integer beyond int64";
    if (IsIgnored()) return true;
    return InList() ? RefuseList(kWhy) : TellOther(kWhy);
  }
  bool Number(JsonKind kind, int64_t integer, double real) {
    if (IsIgnored()) return true;
    if (InList()) {
      list_.Add(kind, integer, real);
      return true;
    }
    integers_.assign(1, integer);
    reals_.assign(1, real);
    JsonValue value;
    value.kind = kind;
    value.integers = &integers_;
    value.reals = &reals_;
    return Tell(value);
  }
  bool Open(Level level) {
    if (open_.size() == kMaxJsonDepth)
      return Fail(absl::StrCat("more than ", kMaxJsonDepth, " levels"));
    open_.push_back(level);
    return true;
  }
  bool Close() {
    if (ignored_from_ == open_.size()) ignored_from_ = 0;
    path_.resize(std::min(path_.size(), open_.back().path));
    open_.pop_back();
    return true;
  }

  JsonSink* const sink_;
  const MendedLine* const mended_;
  absl::Status status_;
  std::string path_;
  std::vector<Level> open_;
  size_t ignored_from_ = 0;  // levels that are open with it; 0: none
  JsonList list_;
  std::vector<int64_t> integers_;
  std::vector<double> reals_;
};

}  // namespace

absl::Status ReadJsonLine(absl::string_view line, JsonSink* sink) {
  const std::string text = MayNeedMending(line) ? Mended(line) : "";
  MendedLine mended{line, text};
  JsonEvents events(sink, text.empty() ? nullptr : &mended);
  const bool parsed =
      text.empty() ? nlohmann::json::sax_parse(line.data(), line.data() + line.size(), &events)
                   : nlohmann::json::sax_parse(MendedIterator(&mended), MendedIterator(), &events);
  if (parsed || !events.status().ok()) return events.status();
  return absl::DataLossError("no JSON");
}

}  // namespace feedwater::server
