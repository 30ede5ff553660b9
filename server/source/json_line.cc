#include "server/source/json_line.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

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
  explicit JsonEvents(JsonSink* sink) : sink_(sink) {}
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
  JsonEvents events(sink);
  const bool parsed = nlohmann::json::sax_parse(line.data(), line.data() + line.size(), &events);
  if (parsed || !events.status().ok()) return events.status();
  return absl::DataLossError("no JSON");
}

}  // namespace feedwater::server
