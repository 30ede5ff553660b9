#include "server/source/voc_annotation.h"

#include <expat.h>

#include <cmath>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxDepth = 32, kMaxText = 4096, kMaxPath = 1024;
constexpr absl::string_view kSides[] = {"xmin", "ymin", "xmax", "ymax"};
constexpr double kLargestSide = 1e9;  // of an image

class Reader {
 public:
  explicit Reader(XML_Parser parser) : parser_(parser) {
    XML_SetUserData(parser_, this);
    XML_SetElementHandler(
        parser_,
        [](void* self, const XML_Char* name, const XML_Char**) {
          static_cast<Reader*>(self)->Begin(name);
        },
        [](void* self, const XML_Char*) { static_cast<Reader*>(self)->End(); });
    XML_SetCharacterDataHandler(parser_, [](void* self, const XML_Char* text, int bytes) {
      static_cast<Reader*>(self)->Text({text, static_cast<size_t>(bytes)});
    });
    XML_SetStartDoctypeDeclHandler(
        parser_, [](void* self, const XML_Char*, const XML_Char*, const XML_Char*, int) {
          static_cast<Reader*>(self)->Fail("a document type, which is not read");
        });
  }

  absl::StatusOr<VocAnnotation> Read(absl::string_view xml) {
    const XML_Status parsed =
        XML_Parse(parser_, xml.data(), static_cast<int>(xml.size()), /*isFinal=*/1);
    if (why_.empty() && parsed != XML_STATUS_OK)
      why_ = absl::StrCat("no XML (", XML_ErrorString(XML_GetErrorCode(parser_)), ")");
    if (why_.empty() && !has_root_) why_ = "no element 'annotation'";
    if (why_.empty()) return std::move(found_);
    return absl::InvalidArgumentError(
        absl::StrCat("has ", why_, " in line ", XML_GetCurrentLineNumber(parser_)));
  }

 private:
  void Fail(std::string why) {
    if (!why_.empty()) return;
    why_ = std::move(why);
    XML_StopParser(parser_, XML_FALSE);
  }

  void Begin(absl::string_view name) {
    if (!why_.empty()) return;
    if (ends_.size() == kMaxDepth || path_.size() + name.size() > kMaxPath)
      return Fail(absl::StrCat("more than ", kMaxDepth, " levels, or names that long"));
    ends_.push_back(path_.size());
    absl::StrAppend(&path_, "/", name);
    text_.clear();
    if (ends_.size() == 1 && name != "annotation")
      return Fail(absl::StrCat("'", Printable(name.substr(0, 40)), "' in place of 'annotation'"));
    has_root_ = true;
    if (path_ != "/annotation/object") return;
    found_.objects.emplace_back();
    sides_ = 0;
  }

  void Text(absl::string_view text) {
    if (!why_.empty()) return;
    if (text_.size() + text.size() > kMaxText)
      return Fail(absl::StrCat("a text of more than ", kMaxText, " bytes"));
    absl::StrAppend(&text_, text);
  }

  void End() {
    if (!why_.empty()) return;
    Take(absl::StripAsciiWhitespace(text_));
    text_.clear();
    path_.resize(ends_.back());
    ends_.pop_back();
  }

  // The text of the element that ends.
  void Take(absl::string_view text) {
    absl::string_view path = path_;
    if (!absl::ConsumePrefix(&path, "/annotation/")) return;
    if (path == "size/width") return Number(text, &found_.width);
    if (path == "size/height") return Number(text, &found_.height);
    if (path == "object") {
      if (found_.objects.back().name.empty()) return Fail("an object without a name");
      if (sides_ != 15) return Fail("an object without a box of xmin, ymin, xmax and ymax");
      return;
    }
    if (!absl::ConsumePrefix(&path, "object/")) return;
    VocAnnotation::Object& object = found_.objects.back();
    if (path == "name") {
      object.name = std::string(text);
      return;
    }
    if (path == "difficult") {
      int64_t difficult = 0;
      if (!absl::EqualsIgnoreCase(text, "unspecified")) Number(text, &difficult);
      object.is_difficult = difficult != 0;
      return;
    }
    if (!absl::ConsumePrefix(&path, "bndbox/")) return;
    for (size_t i = 0; i < object.box.size(); ++i) {
      if (path != kSides[i]) continue;
      if ((sides_ >> i & 1) != 0) return Fail(absl::StrCat("two values ", kSides[i]));
      sides_ |= 1 << i;
      if (!absl::SimpleAtod(text, &object.box[i]) || !(std::abs(object.box[i]) <= kLargestSide))
        return Fail(absl::StrCat("'", Printable(text.substr(0, 40)), "' as ", kSides[i]));
    }
  }

  // A whole number, also as "64.0"; none where nothing is written.
  void Number(absl::string_view text, int64_t* to) {
    *to = 0;
    double number = 0;
    if (text.empty()) return;
    if (absl::SimpleAtod(text, &number) && number >= 0 && number <= kLargestSide &&
        number == std::trunc(number)) {
      *to = static_cast<int64_t>(number);
      return;
    }
    Fail(absl::StrCat("'", Printable(text.substr(0, 40)), "' as ",
                      path_.substr(path_.rfind('/') + 1)));
  }

  const XML_Parser parser_;
  VocAnnotation found_;
  std::string path_, text_, why_;
  std::vector<size_t> ends_;  // where the paths of the elements around end
  bool has_root_ = false;
  int sides_ = 0;  // of the object's box, those that were given
};

}  // namespace

absl::StatusOr<VocAnnotation> ReadVocAnnotation(absl::string_view xml) {
  if (xml.size() > kMaxVocBytes) {
    return absl::InvalidArgumentError(absl::StrCat("has more than ", kMaxVocBytes >> 20, " MiB"));
  }
  const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(
      XML_ParserCreate(nullptr), &XML_ParserFree);
  if (parser == nullptr) return absl::ResourceExhaustedError("no memory for an XML file");
  return Reader(parser.get()).Read(xml);
}

}  // namespace feedwater::server
