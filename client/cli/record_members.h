// What a record of any dataset becomes in a tar shard: one member a field, as the webdataset
// library names and decodes them, and the `fields:` with which the format webdataset reads the same
// fields, types and shapes back.
//
//   encoded bytes          jpg, png, webp, ppm, tif, bmp by content; fwcs for coefficient
//                          documents, bin for what is no image
//   uint8[?] that is text  txt
//   the integer `label`    cls
//   everything else        FIELD.npy; bfloat16, which NumPy does not have, FIELD.bf16
//
// One field of a kind has the bare extension (`data` or `image`, `txt`, `text` or `caption`, else
// the first), others FIELD.jpg, FIELD.txt. Immutable and thread-safe once planned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/source/dataset.h"

namespace feedwater::cli {

// The extensions of encoded bytes, as bits of a set.
using ImageKinds = uint8_t;

class RecordMembers {
 public:
  // `is_text`: by field, whether its bytes are UTF-8 (asked for uint8[?] alone). InvalidArgument
  // where a field could not be read back as what it is.
  static absl::StatusOr<RecordMembers> Plan(const std::vector<server::FieldSpec>& fields,
                                            const std::vector<bool>& is_text);

  size_t fields() const { return members_.size(); }
  bool is_encoded(size_t field) const { return members_[field].kind == Kind::kEncoded; }
  // "data: jpg|png|...", "boxes: boxes.npy": what is written of each field.
  std::vector<std::string> Describe() const;

  // What Append appends at most.
  size_t MostBytes(const server::Record& values) const;
  // Appends the record's members to an archive. `key_digits`: KeyDigits of the dataset. `kinds`: by
  // field, what was written is added.
  void Append(int64_t record, int key_digits, const server::Record& values, std::string* archive,
              std::vector<ImageKinds>* kinds) const;

  // The lines of `fields:` in a dataset's section, each with `indent`.
  std::string Section(const std::vector<ImageKinds>& kinds, const std::string& indent) const;

 private:
  enum class Kind { kEncoded, kText, kNumber, kArray, kRaw };
  struct Member {
    std::string name;
    server::TensorSpec spec;
    Kind kind = Kind::kArray;
    std::string stem;       // "" or "FIELD."
    std::string extension;  // where it is the same in all records
  };
  static std::string FromOf(const Member& member, ImageKinds kinds);
  static absl::Status CheckReadBack(const Member& member);

  std::vector<Member> members_;
};

// How many digits name the records of a dataset of so many.
int KeyDigits(int64_t records);

// Appends the one member of a record that could not be made and whose place stays: KEY.bad.txt,
// which says why. Who reads it finds that the record's fields are missing, so it is bad there, too.
void AppendBadPlace(int64_t record, int key_digits, absl::string_view reason, std::string* archive);

// Whether bytes are a text in UTF-8 without control characters.
bool IsPlainText(absl::Span<const std::byte> bytes);

}  // namespace feedwater::cli
