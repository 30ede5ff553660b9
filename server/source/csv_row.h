// One row of a CSV file as RFC 4180 writes it: values in quotes may hold delimiters, line ends and
// doubled quotes; a line ends with LF or CRLF. A quote within a value that does not begin with one
// is part of it, as other readers have it. Files without quoting (`quotes: false`) have none that
// mean something: a row is a line. Pure; any bytes are safe.
#pragma once

#include <cstddef>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

class CsvRow {
 public:
  static constexpr size_t kMaxValues = 10'000;

  struct Value {
    absl::string_view text;  // without its quotes
    bool is_quoted = false;
    bool has_quotes = false;  // doubled ones in it: Unquote
  };
  enum class Outcome {
    kRow,
    kBlank,  // an empty line
    kMore,   // the text ends before the row does, and is not the end of the file
    kBad,    // error() says why
  };

  CsvRow(char delimiter, bool has_quoting) : delimiter_(delimiter), has_quoting_(has_quoting) {}

  // The row at the beginning of `text`, into which the values are views. REQUIRES: not empty.
  Outcome Parse(absl::string_view text, bool is_whole_file);

  const absl::InlinedVector<Value, 16>& values() const { return values_; }
  size_t bytes() const { return bytes_; }  // of the row with its line end
  absl::string_view error() const { return error_; }

  // Puts a value without its doubled quotes at `to`, which has room for text.size() bytes; returns
  // how many it takes.
  static size_t Unquote(absl::string_view text, char* to);

 private:
  Outcome Bad(absl::string_view why) {
    error_ = why;
    return Outcome::kBad;
  }
  Outcome Done(size_t bytes);

  const char delimiter_;
  const bool has_quoting_;
  absl::InlinedVector<Value, 16> values_;
  size_t bytes_ = 0;
  absl::string_view error_;
};

}  // namespace feedwater::server
