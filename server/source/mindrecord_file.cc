#include "server/source/mindrecord_file.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/yaml.h"
#include "server/source/json_document.h"

namespace feedwater::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxColumns = 10'000, kMaxAxes = 8, kMaxShardNames = 100'000;
constexpr const char* kVersions[] = {"2.0", "3.0"};

absl::Status Wrong(absl::string_view why) { return absl::InvalidArgumentError(why); }

const json* Find(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}
absl::StatusOr<uint64_t> Number(const json& object, const char* key) {
  const json* number = Find(object, key);
  if (number == nullptr || !number->is_number_unsigned())
    return Wrong(absl::StrCat("has no number '", key, "' in its header, where one belongs"));
  return number->get<uint64_t>();
}
absl::StatusOr<std::string> Text(const json& object, const char* key) {
  const json* text = Find(object, key);
  if (text == nullptr || !text->is_string())
    return Wrong(absl::StrCat("has no text '", key, "' in its header, where one belongs"));
  return text->get<std::string>();
}
// A list, empty where it is null: so MindSpore writes one without elements.
absl::StatusOr<const json*> List(const json& object, const char* key) {
  static const json kEmpty = json::array();
  const json* list = Find(object, key);
  if (list != nullptr && list->is_null()) return &kEmpty;
  if (list == nullptr || !list->is_array())
    return Wrong(absl::StrCat("has no list '", key, "' in its header, where one belongs"));
  return list;
}

// A page of rows or blobs, by the bytes that it has in the file.
struct Page {
  uint64_t id = 0, begin = 0, end = 0;
};
struct BlobPage : Page {
  uint64_t first_row = 0, end_row = 0;
  bool has_rows = false;  // some RAW page has this group
};

class HeaderReader {
 public:
  HeaderReader(const json& header, uint64_t file_bytes, uint64_t json_bytes)
      : json_(header), file_bytes_(file_bytes), json_bytes_(json_bytes) {}

  absl::StatusOr<MindRecordHeader> Read() {
    FW_ASSIGN_OR_RETURN(version_, Text(json_, "version"));
    if (std::find(std::begin(kVersions), std::end(kVersions), version_) == std::end(kVersions)) {
      return Wrong(absl::StrCat("is of version '", Printable(version_),
                                "' of MindRecord, which is not known; 2.0 and 3.0 are"));
    }
    FW_RETURN_IF_ERROR(ReadSchema());
    FW_RETURN_IF_ERROR(ReadShards());
    FW_RETURN_IF_ERROR(ReadPages());
    return std::move(header_);
  }

 private:
  absl::Status ReadSchema() {
    FW_ASSIGN_OR_RETURN(const json* schemas, List(json_, "schema"));
    if (schemas->size() != 1 || !(*schemas)[0].is_object())
      return Wrong(absl::StrCat("has ", schemas->size(), " schemas, where one belongs"));
    const json& schema = (*schemas)[0];
    const json* columns = Find(schema, "schema");
    if (columns == nullptr || !columns->is_object())
      return Wrong("has no object 'schema' in its schema, where one belongs");
    FW_ASSIGN_OR_RETURN(const json* fields, List(schema, "blob_fields"));
    if (columns->size() > kMaxColumns || fields->size() > kMaxColumns)
      return Wrong(absl::StrCat("has more than ", kMaxColumns, " columns"));
    std::map<std::string, int> blobs;
    for (const json& field : *fields) {
      if (!field.is_string() || !columns->contains(field.get<std::string>()) ||
          !blobs.emplace(field.get<std::string>(), header_.blob_fields++).second) {
        return Wrong(
            "has a list 'blob_fields' that does not name columns of its schema, each once");
      }
    }
    bool has_integers = false, has_lists = false;
    for (const auto& [name, told] : columns->items()) {
      MindRecordColumn column;
      column.name = name;
      FW_RETURN_IF_ERROR(ReadColumn(told, &column));
      const auto blob = blobs.find(name);
      if (blob != blobs.end()) column.blob = blob->second;
      has_integers = has_integers || (column.has_shape && column.type.rfind("int", 0) == 0);
      has_lists = has_lists || (column.blob >= 0 && column.type == "array");
      header_.columns.push_back(std::move(column));
    }
    header_.blob = has_lists                           ? MindRecordBlob::kMap
                   : has_integers && version_ != "2.0" ? MindRecordBlob::kPacked
                                                       : MindRecordBlob::kPlain;
    return absl::OkStatus();
  }

  static absl::Status ReadColumn(const json& told, MindRecordColumn* column) {
    const auto fail = [&](absl::string_view why) {
      return Wrong(
          absl::StrCat("has a column '", Printable(column->name), "' in its schema ", why));
    };
    if (!told.is_object()) return fail("that is no object");
    const json* type = Find(told, "type");
    if (type == nullptr || !type->is_string()) return fail("without a type");
    column->type = type->get<std::string>();
    const json* shape = Find(told, "shape");
    if (shape == nullptr) return absl::OkStatus();
    if (!shape->is_array() || shape->size() > kMaxAxes) return fail("whose shape is no list");
    column->has_shape = true;
    for (const json& axis : *shape) {
      const int64_t length = axis.is_number_integer() ? axis.get<int64_t>() : -2;
      if (length < -1 || axis.is_number_float() || length > (int64_t{1} << 40))
        return fail("with an axis that is no length");
      column->shape.push_back(length);
    }
    if (std::count(column->shape.begin(), column->shape.end(), -1) > 1)
      return fail("with more than one axis of unknown length");
    return absl::OkStatus();
  }

  absl::Status ReadShards() {
    FW_ASSIGN_OR_RETURN(const json* names, List(json_, "shard_addresses"));
    if (names->size() > kMaxShardNames) return Wrong("names too many files of its set");
    for (const json& name : *names) {
      if (!name.is_string()) return Wrong("has a list 'shard_addresses' that names no files");
      header_.shard_names.push_back(name.get<std::string>());
    }
    FW_ASSIGN_OR_RETURN(header_.shard, Number(json_, "shard_id"));
    if (header_.shard < header_.shard_names.size()) return absl::OkStatus();
    return Wrong(absl::StrCat("says that it is file ", header_.shard, " of a set of ",
                              header_.shard_names.size()));
  }

  // Where a page's bytes lie.
  absl::StatusOr<Page> ReadPage(const json& told) {
    Page page;
    FW_ASSIGN_OR_RETURN(page.id, Number(told, "page_id"));
    FW_ASSIGN_OR_RETURN(const uint64_t bytes, Number(told, "page_size"));
    if (!page_ids_.insert(page.id).second)
      return Wrong(absl::StrCat("has two pages with the number ", page.id));
    if (bytes > page_bytes_) {
      return Wrong(absl::StrCat("has ", bytes, " bytes in page ", page.id, ", where a page has ",
                                page_bytes_));
    }
    if (__builtin_mul_overflow(page.id, page_bytes_, &page.begin) ||
        __builtin_add_overflow(page.begin, header_bytes_, &page.begin) ||
        __builtin_add_overflow(page.begin, bytes, &page.end) || page.end > file_bytes_) {
      return Wrong(absl::StrCat("is cut off: page ", page.id, " does not lie in its ", file_bytes_,
                                " bytes"));
    }
    return page;
  }

  absl::Status ReadPages() {
    FW_ASSIGN_OR_RETURN(header_bytes_, Number(json_, "header_size"));
    FW_ASSIGN_OR_RETURN(page_bytes_, Number(json_, "page_size"));
    if (header_bytes_ < kMindRecordLength + json_bytes_) {
      return Wrong(
          absl::StrCat("has a header of ", json_bytes_, " bytes in room for ", header_bytes_));
    }
    FW_ASSIGN_OR_RETURN(const json* pages, List(json_, "page"));
    std::map<uint64_t, BlobPage> blobs;              // by group
    std::vector<std::pair<Page, const json*>> raws;  // with their groups
    for (const json& told : *pages) {
      if (!told.is_object()) return Wrong("has a page in its header that is no object");
      FW_ASSIGN_OR_RETURN(const Page page, ReadPage(told));
      FW_ASSIGN_OR_RETURN(const std::string type, Text(told, "page_type"));
      if (type == "RAW_DATA") {
        FW_ASSIGN_OR_RETURN(const json* groups, List(told, "row_group_ids"));
        // One whose rows all moved on to another page still names a group.
        if (page.begin < page.end) raws.emplace_back(page, groups);
        continue;
      }
      if (type != "BLOB_DATA") {
        return Wrong(
            absl::StrCat("has a page of the type '", Printable(type), "', which is not known"));
      }
      BlobPage blob{page};
      FW_ASSIGN_OR_RETURN(const uint64_t group, Number(told, "page_type_id"));
      FW_ASSIGN_OR_RETURN(blob.first_row, Number(told, "start_row_id"));
      FW_ASSIGN_OR_RETURN(blob.end_row, Number(told, "end_row_id"));
      const bool fits =
          blob.first_row <= blob.end_row &&
          blob.end_row - blob.first_row <= (blob.end - blob.begin) / kMindRecordLength;
      if (!fits) {
        return Wrong(absl::StrCat("has rows ", blob.first_row, " to ", blob.end_row, " in the ",
                                  blob.end - blob.begin, " bytes of page ", page.id));
      }
      if (!blobs.emplace(group, blob).second)
        return Wrong(absl::StrCat("has two pages of blobs of row group ", group));
    }
    std::vector<std::pair<uint64_t, MindRecordGroup>> found;  // by first row
    for (const auto& [page, groups] : raws)
      FW_RETURN_IF_ERROR(ReadGroups(page, *groups, &blobs, &found));
    for (const auto& [group, blob] : blobs) {
      if (!blob.has_rows && blob.first_row < blob.end_row)
        return Wrong(absl::StrCat("has blobs of row group ", group, ", and no rows"));
    }
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    uint64_t next_row = 0;
    for (const auto& [first_row, group] : found) {
      if (first_row != next_row) {
        return Wrong(absl::StrCat("has a row group that begins with row ", first_row,
                                  ", where row ", next_row, " is the next"));
      }
      next_row += group.rows;
      header_.groups.push_back(group);
    }
    return absl::OkStatus();
  }

  static absl::Status ReadGroups(const Page& page, const json& groups,
                                 std::map<uint64_t, BlobPage>* blobs,
                                 std::vector<std::pair<uint64_t, MindRecordGroup>>* found) {
    const size_t first = found->size();
    uint64_t last_begin = 0;
    for (size_t i = 0; i < groups.size(); ++i) {
      if (!groups[i].is_object())
        return Wrong(absl::StrCat("has a row group in page ", page.id, " that is no object"));
      FW_ASSIGN_OR_RETURN(const uint64_t id, Number(groups[i], "id"));
      FW_ASSIGN_OR_RETURN(const uint64_t offset, Number(groups[i], "offset"));
      const auto blob = blobs->find(id);
      if (blob == blobs->end() || std::exchange(blob->second.has_rows, true)) {
        return Wrong(absl::StrCat(
            "has row group ", id, " in page ", page.id,
            blob == blobs->end() ? ", and no page of its blobs" : " and in another place"));
      }
      if (offset >= page.end - page.begin || (i > 0 && offset <= last_begin)) {
        return Wrong(absl::StrCat("has row group ", id, " at byte ", offset, " of page ", page.id,
                                  ", behind the page's end or before another"));
      }
      last_begin = offset;
      MindRecordGroup group;
      group.rows = blob->second.end_row - blob->second.first_row;
      group.raw_begin = page.begin + offset;
      group.raw_end = page.end;
      group.blob_begin = blob->second.begin;
      group.blob_end = blob->second.end;
      if (i > 0) found->back().second.raw_end = group.raw_begin;
      found->emplace_back(blob->second.first_row, group);
    }
    for (size_t i = first; i < found->size(); ++i) {
      const MindRecordGroup& group = (*found)[i].second;
      if (group.rows > (group.raw_end - group.raw_begin) / kMindRecordLength) {
        return Wrong(absl::StrCat("has ", group.rows, " rows in ", group.raw_end - group.raw_begin,
                                  " bytes of page ", page.id));
      }
    }
    return absl::OkStatus();
  }

  const json& json_;
  const uint64_t file_bytes_, json_bytes_;
  std::string version_;
  uint64_t header_bytes_ = 0, page_bytes_ = 0;
  std::set<uint64_t> page_ids_;
  MindRecordHeader header_;
};

uint64_t BigEndian(absl::string_view bytes) {
  uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

// How many bytes integer `i` has.
size_t WidthOf(absl::string_view widths, uint32_t i) {
  return size_t{1} << (static_cast<uint8_t>(widths[i / 4]) >> (6 - i % 4 * 2) & 3);
}

}  // namespace

absl::StatusOr<MindRecordHeader> ParseMindRecordHeader(absl::string_view text, int64_t file_bytes) {
  const json header = ParseJsonDocument(text);
  if (!header.is_object()) return Wrong("has a header that is no JSON object");
  return HeaderReader(header, static_cast<uint64_t>(file_bytes), text.size()).Read();
}

absl::StatusOr<MindRecordIntegers> MindRecordIntegers::Open(absl::string_view packed) {
  constexpr size_t kCount = sizeof(uint32_t);
  MindRecordIntegers integers;
  if (packed.size() < kCount) return absl::DataLossError("is cut off");
  integers.size_ = static_cast<uint32_t>(BigEndian(packed.substr(0, kCount)));
  packed.remove_prefix(kCount);
  const size_t widths = (size_t{integers.size_} + 3) / 4;
  if (widths > packed.size()) return absl::DataLossError("is cut off");
  integers.widths_ = packed.substr(0, widths);
  integers.values_ = packed.substr(widths);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < integers.size_; ++i) bytes += WidthOf(integers.widths_, i);
  if (bytes != integers.values_.size()) {
    return absl::DataLossError(absl::StrCat("has ", integers.values_.size(),
                                            " bytes of integers, where ", bytes, " belong"));
  }
  return integers;
}

absl::Status MindRecordIntegers::Unpack(size_t bytes, std::byte* to) const {
  const char* from = values_.data();
  for (uint32_t i = 0; i < size_; ++i) {
    const size_t width = WidthOf(widths_, i);
    uint64_t bits = 0;
    std::memcpy(&bits, from, width);
    from += width;
    const auto shift = static_cast<unsigned>(64 - 8 * width);
    const int64_t number = static_cast<int64_t>(bits << shift) >> shift;
    if (bytes == sizeof(int32_t) && number != static_cast<int32_t>(number)) {
      return absl::DataLossError(absl::StrCat("has the integer ", number, ", which is no int32"));
    }
    std::memcpy(to + i * bytes, &number, bytes);  // little-endian, as the machine is
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
