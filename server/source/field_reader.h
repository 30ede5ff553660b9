// From a record's columns to its fields, as `fields:` asks for them (field_requests.h). What can be
// settled before the first record is settled by Create: which columns, which types. Read converts
// the values of one record. Immutable after SetClasses; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "server/base/status.h"
#include "server/source/columns.h"
#include "server/source/dataset.h"
#include "server/source/field_requests.h"
#include "server/source/index_file.h"

namespace feedwater::server {

// A file that a record names, for a field that is its bytes.
struct NamedFile {
  absl::Span<const std::byte> bytes;
  absl::string_view path;  // below the root, for messages; "" where an optional column named none
  bool is_there = false;   // when the index was made
};

class FieldReader {
 public:
  // `what` names the dataset. InvalidArgument with the field's place where a request does not fit
  // the columns.
  static absl::StatusOr<FieldReader> Create(const std::vector<FieldRequest>& requests,
                                            const std::vector<ColumnSpec>& columns,
                                            const std::string& what);

  const std::vector<FieldSpec>& fields() const { return specs_; }
  const std::vector<bool>& wanted() const { return wanted_; }  // by column
  // Fields whose values are paths of files, and those whose texts are classes, by number.
  const std::vector<size_t>& file_fields() const { return file_fields_; }
  const std::vector<size_t>& class_fields() const { return class_fields_; }

  // The column whose value is the field as it is, in a shape that is known; nothing: it is made of
  // one, or of several.
  std::optional<size_t> ColumnAsStored(size_t field) const;

  // The text of a file's or a class's field in a record, without a line end behind it; nothing
  // where an optional column is missing. InvalidArgument that names the column.
  absl::StatusOr<std::optional<absl::string_view>> TextOf(size_t field,
                                                          const ColumnValues& values) const;
  // The names of class field i of class_fields(): entries `first` to `last` - 1 of a column whose
  // index outlives the reader. DataLoss when they are not in order.
  absl::Status SetClasses(size_t i, const TextColumn& names, size_t first, size_t last);
  // Those of a field; empty where it is none of class_fields().
  std::vector<std::string> ClassesOf(size_t field) const;

  // `files`: in the order of file_fields(). Any values are safe. The fields live as long as the
  // record's bytes and `out`, whose scratch `values` was made with.
  absl::Status Read(ColumnValues& values, absl::Span<const NamedFile> files, Record* out) const;

 private:
  enum class Way { kAsStored, kConverted, kParsed, kReinterpreted, kClass, kFile };
  struct Field {
    std::string from;  // for messages
    absl::InlinedVector<size_t, 2> columns;
    Way way = Way::kAsStored;
    DType stored = DType::kUInt8;
    bool is_optional = false;
    size_t number = 0;  // among file_fields or class_fields
  };
  // Where a field's data is: at an address, or in scratch, which may move until all are there.
  struct Place {
    const std::byte* data = nullptr;
    size_t at = 0;
    bool is_in_scratch = false;
  };
  struct Elements {
    Place place;
    Shape shape;
    int64_t count = 0;
  };

  static absl::Status Settle(const FieldRequest& request, const std::vector<ColumnSpec>& columns,
                             const std::string& what, Field* field, FieldSpec* spec);
  absl::Status ReadField(size_t number, ColumnValues& values, absl::Span<const NamedFile> files,
                         Place* place, Tensor* out) const;
  static absl::Status Missing(const Field& field, const FieldSpec& spec, ColumnValues& values,
                              Place* place, Tensor* out);
  static absl::Status FileBytes(const Field& field, absl::Span<const NamedFile> files, Place* place,
                                Tensor* out);
  absl::StatusOr<int64_t> ClassOf(const Field& field, absl::string_view text) const;
  static absl::Status PutNumber(const void* number, size_t bytes, ColumnValues& values,
                                Place* place);
  static absl::Status Reinterpret(const TensorSpec& planned, absl::string_view bytes,
                                  Elements* elements);
  static absl::Status PutElements(const Field& field, const Elements& elements,
                                  ColumnValues& values, Place* place, Tensor* out);

  std::vector<Field> fields_;
  std::vector<FieldSpec> specs_;
  std::vector<bool> wanted_;
  std::vector<size_t> file_fields_, class_fields_;
  struct Classes {
    TextColumn names;
    size_t first = 0, last = 0;
  };
  std::vector<Classes> classes_;
};

}  // namespace feedwater::server
