#include "server/source/coco_segmentation.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

// Told by the parser what comes next; false ends it, and status() says why.
class SegmentationEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  SegmentationEvents(uint8_t label, InstanceMap* map) : label_(label), map_(map) {}

  const absl::Status& status() const { return status_; }

  bool null() override { return Odd(); }
  bool boolean(bool) override { return Odd(); }
  bool number_integer(number_integer_t value) override { return Number(value, value); }
  bool number_unsigned(number_unsigned_t value) override {
    const bool fits = value <= static_cast<uint64_t>(INT64_MAX);
    return Number(static_cast<double>(value), fits ? static_cast<int64_t>(value) : -1);
  }
  bool number_float(number_float_t value, const string_t&) override { return Number(value, -1); }
  bool string(string_t& text) override {
    if (!is_runs_ || in_list_) return Odd();
    if (key_ != "counts") return true;
    return Take(ReadRuns(text, &runs_));
  }
  bool binary(binary_t&) override { return Odd(); }

  bool start_object(std::size_t) override {
    if (depth_++ > 0) return Odd();
    is_runs_ = true;
    return true;
  }
  bool key(string_t& key) override {
    key_ = key;
    return true;
  }
  // The size may stand behind the runs.
  bool end_object() override {
    if (size_.size() != 2 || size_[0] != map_->height() || size_[1] != map_->width()) {
      return Fail(absl::StrCat("has runs of pixels of another size than its image's ",
                               map_->width(), "x", map_->height()));
    }
    return Take(map_->CoverRuns(runs_, label_));
  }
  bool start_array(std::size_t) override {
    ++depth_;
    if (depth_ > 2) return Odd();
    if (is_runs_) {
      (key_ == "counts" ? runs_ : key_ == "size" ? size_ : other_).clear();
      in_list_ = true;
    } else {
      points_.clear();
    }
    return true;
  }
  bool end_array() override {
    --depth_;
    in_list_ = false;
    if (is_runs_ || depth_ == 0) return true;
    return Take(map_->CoverPolygon(points_, label_));
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return Fail("is no JSON any more");
  }

 private:
  bool Fail(absl::string_view why) { return Take(absl::InvalidArgumentError(why)); }
  bool Take(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
    return status_.ok();
  }
  bool Odd() { return Take(OddSegmentation()); }
  // `integer`: -1 where it is none that counts.
  bool Number(double real, int64_t integer) {
    if (is_runs_) {
      if (!in_list_) return true;
      if (integer < 0 && key_ == "counts")
        return Fail(absl::StrCat("has a run of ", real, " pixels"));
      (key_ == "counts" ? runs_ : key_ == "size" ? size_ : other_).push_back(integer);
      return true;
    }
    if (depth_ != 2) return Odd();
    points_.push_back(real);
    return true;
  }
  bool Number(int64_t real, int64_t integer) { return Number(static_cast<double>(real), integer); }

  const uint8_t label_;
  InstanceMap* const map_;
  absl::Status status_;
  int depth_ = 0;
  bool is_runs_ = false;  // an object of counts and size
  bool in_list_ = false;  // of it
  std::string key_;
  std::vector<double> points_;
  std::vector<int64_t> runs_, size_, other_;
};

}  // namespace

absl::Status OddSegmentation() {
  return absl::InvalidArgumentError(
      "has a segmentation that is neither a list of polygons (lists of x and y in turn) nor "
      "runs of pixels ('counts' and 'size')");
}

absl::Status ReadRuns(absl::string_view text, std::vector<int64_t>* runs) {
  // Five bits a character, the lowest first, and one that says whether more follow. From the third
  // run on it is the difference from the last but one.
  constexpr int kMostBits = 40;
  runs->clear();
  for (size_t at = 0; at < text.size();) {
    int64_t value = 0;
    int bits = 0;
    bool more = true;
    while (more) {
      const int digit = at < text.size() ? text[at++] - '0' : -1;
      if (digit < 0 || digit > 63 || bits == kMostBits)
        return absl::InvalidArgumentError("has 'counts' that are no text of pycocotools");
      value |= int64_t{digit & 31} << bits;
      bits += 5;
      more = (digit & 32) != 0;
      if (!more && (digit & 16) != 0) value |= -(int64_t{1} << bits);
    }
    if (runs->size() > 2) value += (*runs)[runs->size() - 2];
    if (value < 0 || value > INT32_MAX) {
      return absl::InvalidArgumentError(absl::StrCat("has a run of ", value, " pixels"));
    }
    runs->push_back(value);
  }
  return absl::OkStatus();
}

absl::Status CoverSegmentation(absl::string_view json, uint8_t label, InstanceMap* map) {
  if (json.size() > kMaxSegmentationBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has a segmentation of ", json.size(), " bytes, more than the ",
                     kMaxSegmentationBytes >> 20, " MiB that one may have"));
  }
  SegmentationEvents events(label, map);
  const bool parsed = nlohmann::json::sax_parse(json.begin(), json.end(), &events);
  FW_RETURN_IF_ERROR(events.status());
  return parsed ? absl::OkStatus() : absl::InvalidArgumentError("is no JSON any more");
}

}  // namespace feedwater::server
