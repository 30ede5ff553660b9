#include "server/source/coco_annotations.h"

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr int64_t kBytesPerImage = 2 * sizeof(CocoAnnotations::Image);
constexpr int64_t kBytesPerCategory = 2 * sizeof(CocoAnnotations::Category);
// Lists double when they grow.
constexpr int64_t kBytesPerInstance = 2 * sizeof(CocoAnnotations::Instance);

// The bytes of the file, one after the other, and what went wrong with them.
class Bytes {
 public:
  Bytes(FileStream* stream, IndexBuilder* builder) : stream_(stream), builder_(builder) {}

  bool AtEnd() {
    while (status_.ok() && at_ == stream_->view().size()) {
      if (stream_->reaches_end()) return true;
      stream_->Skip(at_);
      at_ = 0;
      status_ = stream_->Fill();
      if (status_.ok()) status_ = builder_->Progress(0, 0);
    }
    return !status_.ok();
  }
  char Now() const { return stream_->view()[at_]; }
  void Next() {
    ++at_;
    if (++since_value_ > kMaxCocoText) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("has a text of more than ", kMaxCocoText >> 20, " MiB"));
    }
  }
  void BeginValue() { since_value_ = 0; }
  int64_t position() const { return stream_->position() + static_cast<int64_t>(at_); }
  const absl::Status& status() const { return status_; }

 private:
  FileStream* const stream_;
  IndexBuilder* const builder_;
  size_t at_ = 0;  // in the stream's view
  size_t since_value_ = 0;
  absl::Status status_;
};

class ByteIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  explicit ByteIterator(Bytes* bytes = nullptr) : bytes_(bytes) {}
  char operator*() const { return bytes_->Now(); }
  ByteIterator& operator++() {
    bytes_->Next();
    return *this;
  }
  ByteIterator operator++(int) {
    ByteIterator before = *this;
    bytes_->Next();
    return before;
  }
  // One of the two is the end.
  bool operator==(const ByteIterator& other) const { return is_end() == other.is_end(); }
  bool operator!=(const ByteIterator& other) const { return !(*this == other); }

 private:
  bool is_end() const { return bytes_ == nullptr || bytes_->AtEnd(); }
  Bytes* bytes_;
};

enum class List { kNone, kImages, kCategories, kAnnotations };
constexpr const char* kListNames[] = {"", "images", "categories", "annotations"};

// Told by the parser what comes next; false ends the file, and status() says why.
class CocoEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  CocoEvents(Bytes* bytes, IndexBuilder* builder, bool with_segments)
      : bytes_(bytes), builder_(builder), with_segments_(with_segments) {}

  const absl::Status& status() const { return status_; }
  CocoAnnotations Take() { return std::move(found_); }
  absl::Status CheckIsWhole() const {
    for (const List list : {List::kImages, List::kAnnotations, List::kCategories}) {
      if (seen_[static_cast<size_t>(list)]) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "has no list '", kListNames[static_cast<size_t>(list)],
          "': COCO's instances have images, annotations and categories; for images without "
          "annotations there is the format images"));
    }
    return absl::OkStatus();
  }

  bool null() override { return Scalar(); }
  bool boolean(bool value) override { return Number(value ? 1 : 0, value ? 1 : 0, true); }
  bool number_integer(number_integer_t value) override {
    return Number(value, static_cast<double>(value), true);
  }
  bool number_unsigned(number_unsigned_t value) override {
    const bool fits = value <= static_cast<uint64_t>(INT64_MAX);
    return Number(fits ? static_cast<int64_t>(value) : 0, static_cast<double>(value), fits);
  }
  // 64.0 is a whole number, too, as tools write it that keep everything in floats.
  bool number_float(number_float_t value, const string_t&) override {
    constexpr double kExact = int64_t{1} << 53;
    const bool is_integer = std::trunc(value) == value && std::abs(value) <= kExact;
    return Number(is_integer ? static_cast<int64_t>(value) : 0, value, is_integer);
  }
  bool string(string_t& text) override {
    bytes_->BeginValue();
    if (!InEntry()) return Scalar();
    if (IsSegmentation()) segment_.bytes = -1;
    if (list_ == List::kImages && key_ == "file_name") return Text(&image_.file_name, text);
    if (list_ == List::kImages && key_ == "coco_url") url_name_ = NameInUrl(text);
    if (list_ == List::kCategories && key_ == "name") return Text(&category_.name, text);
    return Scalar();
  }
  bool binary(binary_t&) override { return Fail("is no JSON"); }

  bool start_object(std::size_t) override {
    bytes_->BeginValue();
    if (depth_ == 1 && ListOf(key_) != List::kNone)
      return Fail(absl::StrCat("has an object '", key_, "', not a list"));
    if (depth_ == 2 && list_ != List::kNone) BeginEntry();
    if (IsSegmentation()) segment_ = {bytes_->position() - 1, 0};
    return Open();
  }
  bool key(string_t& key) override {
    bytes_->BeginValue();
    if (depth_ == 1) key_ = key.substr(0, kKnownKeyBytes);
    if (InEntry()) key_ = key.substr(0, kKnownKeyBytes);
    return true;
  }
  bool end_object() override {
    bytes_->BeginValue();
    --depth_;
    if (IsSegmentation()) segment_.bytes = bytes_->position() - segment_.offset;
    return depth_ != 2 || list_ == List::kNone || EndEntry();
  }
  bool start_array(std::size_t) override {
    bytes_->BeginValue();
    if (depth_ == 0) return Fail("is a list, not an object with images and annotations");
    if (depth_ == 1) {
      list_ = ListOf(key_);
      number_ = 0;
      if (list_ != List::kNone && std::exchange(seen_[static_cast<size_t>(list_)], true))
        return Fail(absl::StrCat("has two lists '", key_, "'"));
    } else if (depth_ == 2 && list_ != List::kNone) {
      return FailEntry("is a list, not an object");
    }
    if (InEntry() && list_ == List::kAnnotations && key_ == "bbox") {
      if (box_numbers_ != 0) return FailEntry("has two boxes");
      in_box_ = true;
    } else if (in_box_) {
      return FailEntry("has a bbox that is no list of four numbers");
    }
    if (IsSegmentation()) segment_ = {bytes_->position() - 1, 0};
    return Open();
  }
  bool end_array() override {
    bytes_->BeginValue();
    --depth_;
    if (depth_ == 1) list_ = List::kNone;
    if (IsSegmentation()) segment_.bytes = bytes_->position() - segment_.offset;
    in_box_ = false;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception&) override {
    if (!status_.ok()) return false;
    return Fail(absl::StrCat("is no JSON at byte ", position, ", '",
                             Printable(absl::string_view(token).substr(0, 40)), "'"));
  }

 private:
  static constexpr size_t kKnownKeyBytes = 32;  // longer than any that counts
  static constexpr size_t kUrlNameBytes = 512;  // of two folders' entries at the most

  // "train2017/000000155379.jpg" of "http://images.cocodataset.org/train2017/000000155379.jpg"; ""
  // where the URL has no such end. LVIS gives no other name.
  static std::string NameInUrl(absl::string_view url) {
    const size_t name = url.rfind('/');
    const size_t folder = name == absl::string_view::npos || name == 0 ? absl::string_view::npos
                                                                       : url.rfind('/', name - 1);
    if (folder == absl::string_view::npos || folder + 1 == name || name + 1 == url.size() ||
        url.size() - folder > kUrlNameBytes)
      return "";
    return std::string(url.substr(folder + 1));
  }

  static List ListOf(absl::string_view key) {
    return key == "images"        ? List::kImages
           : key == "categories"  ? List::kCategories
           : key == "annotations" ? List::kAnnotations
                                  : List::kNone;
  }
  // Directly within an object of one of the three lists.
  bool InEntry() const { return depth_ == 3 && list_ != List::kNone; }
  // Whether a list or an object that stands here is an instance's segmentation.
  bool IsSegmentation() const {
    return InEntry() && list_ == List::kAnnotations && key_ == "segmentation";
  }
  bool Open() {
    if (++depth_ > kMaxDepth) return Fail(absl::StrCat("has more than ", kMaxDepth, " levels"));
    return true;
  }
  bool Fail(absl::string_view why) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(why);
    return false;
  }
  bool FailEntry(absl::string_view why) {
    return Fail(absl::StrCat("has ", kListNames[static_cast<size_t>(list_)], "[", number_,
                             "], which ", why));
  }
  bool Scalar() {
    bytes_->BeginValue();
    if (depth_ == 0) return Fail("is a value, not an object with images and annotations");
    if (depth_ == 1 && ListOf(key_) != List::kNone)
      return Fail(absl::StrCat("has a value '", key_, "', not a list"));
    if (depth_ == 2 && list_ != List::kNone) return FailEntry("is a value, not an object");
    if (in_box_) return FailEntry("has a bbox that is no list of four numbers");
    return true;
  }
  bool Text(std::string* to, const string_t& text) {
    status_ = builder_->Take(2 * static_cast<int64_t>(text.size()));
    if (!status_.ok()) return false;
    *to = text;
    return true;
  }
  // Numbers that are written as texts or have fractions are no ids.
  bool Number(int64_t integer, double real, bool is_integer) {
    bytes_->BeginValue();
    if (in_box_) {
      if (box_numbers_ == 4) return FailEntry("has a bbox of more than four numbers");
      instance_.box[box_numbers_++] = real;
      return true;
    }
    if (!InEntry()) return Scalar();
    if (IsSegmentation()) segment_.bytes = -1;
    int64_t* to = nullptr;
    bool* has = nullptr;
    if (list_ == List::kImages) {
      to = key_ == "id"       ? &image_.id
           : key_ == "width"  ? &image_.width
           : key_ == "height" ? &image_.height
                              : nullptr;
    } else if (list_ == List::kCategories) {
      to = key_ == "id" ? &category_.id : nullptr;
    } else if (key_ == "area") {
      instance_.area = real;
      has_area_ = true;
      return true;
    } else if (key_ == "iscrowd") {
      instance_.is_crowd = real != 0;
      return true;
    } else {
      to = key_ == "id"            ? &instance_.id
           : key_ == "image_id"    ? &instance_.image_id
           : key_ == "category_id" ? &instance_.category_id
                                   : nullptr;
    }
    if (to == nullptr) return true;
    has = key_ == "id"            ? &has_id_
          : key_ == "image_id"    ? &has_image_
          : key_ == "category_id" ? &has_category_
                                  : nullptr;
    // Nobody refers to an annotation by its id.
    if ((!is_integer || integer < 0) && to == &instance_.id) return true;
    if (!is_integer || integer < 0)
      return FailEntry(absl::StrCat("has ", real, " as '", key_, "', not an integer from 0 on"));
    if (has != nullptr && std::exchange(*has, true))
      return FailEntry(absl::StrCat("has two values '", key_, "'"));
    *to = integer;
    return true;
  }

  void BeginEntry() {
    image_ = {};
    url_name_.clear();
    category_ = {};
    instance_ = {};
    segment_ = {};
    has_id_ = has_image_ = has_category_ = has_area_ = false;
    box_numbers_ = 0;
    key_.clear();
  }
  bool EndEntry() {
    if (list_ == List::kImages) {
      if (!has_id_) return FailEntry("has no 'id'");
      if (image_.file_name.empty() && !url_name_.empty() && !Text(&image_.file_name, url_name_))
        return false;
      if (image_.file_name.empty())
        return FailEntry("has no 'file_name', nor a 'coco_url' that ends in a folder and a name");
      if (!Grow(kBytesPerImage)) return false;
      found_.images.push_back(std::move(image_));
    } else if (list_ == List::kCategories) {
      if (!has_id_) return FailEntry("has no 'id'");
      if (category_.name.empty()) return FailEntry("has no 'name'");
      if (!Grow(kBytesPerCategory)) return false;
      found_.categories.push_back(std::move(category_));
    } else {
      if (!has_image_) return FailEntry("has no 'image_id'");
      if (!has_category_ || box_numbers_ != 4) {
        return FailEntry(absl::StrCat("has no ",
                                      has_category_ ? "'bbox' of four numbers" : "'category_id'",
                                      ": is this a file of instances?"));
      }
      if (!has_id_) instance_.id = -1;
      if (!has_area_) instance_.area = instance_.box[2] * instance_.box[3];
      if (!Grow(kBytesPerInstance)) return false;
      found_.instances.push_back(instance_);
      if (with_segments_) {
        if (!Grow(2 * int64_t{sizeof(CocoAnnotations::Segment)})) return false;
        found_.segments.push_back(segment_);
      }
    }
    ++number_;
    return true;
  }
  bool Grow(int64_t bytes) {
    status_ = builder_->Take(bytes);
    return status_.ok();
  }

  Bytes* const bytes_;
  IndexBuilder* const builder_;
  const bool with_segments_;
  CocoAnnotations found_;
  absl::Status status_;
  size_t depth_ = 0;
  std::string key_;  // of the file's own object, or of the entry
  List list_ = List::kNone;
  bool seen_[4] = {};
  int64_t number_ = 0;  // of the entry in its list
  CocoAnnotations::Image image_;
  std::string url_name_;  // of the image
  CocoAnnotations::Category category_;
  CocoAnnotations::Instance instance_;
  CocoAnnotations::Segment segment_;
  bool has_id_ = false, has_image_ = false, has_category_ = false, has_area_ = false;
  bool in_box_ = false;
  size_t box_numbers_ = 0;
};

}  // namespace

absl::StatusOr<CocoAnnotations> ReadCocoAnnotations(FileStream* stream, IndexBuilder* builder,
                                                    bool with_segments) {
  FW_RETURN_IF_ERROR(CheckIsPlainText(stream->view(), stream->what()));
  Bytes source(stream, builder);
  CocoEvents events(&source, builder, with_segments);
  const bool parsed = nlohmann::json::sax_parse(ByteIterator(&source), ByteIterator(), &events);
  const auto named = [&](const absl::Status& status) {
    if (absl::IsInvalidArgument(status))
      return absl::InvalidArgumentError(absl::StrCat(stream->what(), " ", status.message()));
    return status;
  };
  FW_RETURN_IF_ERROR(named(source.status()));
  FW_RETURN_IF_ERROR(named(events.status()));
  if (!parsed) return absl::InvalidArgumentError(absl::StrCat(stream->what(), " is no JSON"));
  FW_RETURN_IF_ERROR(named(events.CheckIsWhole()));
  return events.Take();
}

}  // namespace feedwater::server
