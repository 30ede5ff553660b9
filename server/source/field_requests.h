// `fields:` of a dataset, one rule for every format with columns: which columns become fields of
// its records, under which names, and as what.
//
//   fields:
//     image: path                                        # a column under another name
//     label: {from: species, classes: auto}              # strings numbered in sorted order
//     boxes: {from: bbox, dtype: float32, shape: [-1, 4]}
//     photo: {from: path, file: true}                    # the bytes of the file that it names
//
// Bytes with a dtype and a shape are elements, little-endian, or a .npy file; with a dtype alone,
// like texts, a number that is written out.
//
// Left out: every column under its own name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/base/schema.h"
#include "server/base/tensor.h"

namespace feedwater::server {

struct FieldRequest {
  std::string name;
  std::string from;            // a column; several with ';' between them: the first that is there
  std::optional<DType> dtype;  // as stored, integers as int64, when it is not given
  std::optional<Shape> shape;  // -1 stands for a length that differs from record to record
  bool is_file = false;        // the column's text is a path below the dataset's
  bool has_classes = false;    // the column's texts are numbered, and are the dataset's classes
  std::optional<int64_t> offset;  // bytes from the record's begin: format raw alone
  bool is_optional = false;       // a record without it has no elements there, or a zero
  std::string where;              // "file:line:column"
};

struct FieldRequests {
  std::vector<FieldRequest> list;  // empty: every column
};
FW_DECLARE_PARAM_TYPE(FieldRequests);

// A key of a field that is a map, with an example of such a field. For people: the reference pages
// and `feedwater describe format`.
struct FieldKey {
  ParamInfo param;
  std::string example;  // "image: {from: path}"
};
const std::vector<FieldKey>& FieldKeys();
// What `fields` is, to stand above them.
extern const char kFieldsText[];
// Whether a format's parameter is `fields`.
bool IsFields(const ParamInfo& param);

}  // namespace feedwater::server
