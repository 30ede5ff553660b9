#include "server/source/csv_row.h"

#include <cstring>

namespace feedwater::server {
namespace {

constexpr absl::string_view kNeverClosed =
    "a quote that is opened and never closed; cure: close it, or 'quotes: false' where a quote is "
    "a character like any other";
constexpr absl::string_view kBehindQuote =
    "text behind a closing quote; cure: double the quotes in a value, or 'quotes: false' where a "
    "quote is a character like any other";
constexpr absl::string_view kCarriageReturn =
    "a carriage return without a line feed; cure: quote the value, or dos2unix -c mac";
constexpr absl::string_view kCarriageReturnInLine =
    "a carriage return without a line feed; cure: dos2unix -c mac, or take it out";

}  // namespace

CsvRow::Outcome CsvRow::Done(size_t bytes) {
  bytes_ = bytes;
  const bool is_blank = values_.size() == 1 && values_[0].text.empty() && !values_[0].is_quoted;
  return is_blank ? Outcome::kBlank : Outcome::kRow;
}

CsvRow::Outcome CsvRow::Parse(absl::string_view text, bool is_whole_file) {
  values_.clear();
  const size_t size = text.size();
  size_t at = 0;
  while (true) {
    Value value;
    if (has_quoting_ && at < size && text[at] == '"') {
      value.is_quoted = true;
      const size_t begin = ++at;
      while (true) {
        const size_t quote = text.find('"', at);
        if (quote == absl::string_view::npos)
          return is_whole_file ? Bad(kNeverClosed) : Outcome::kMore;
        at = quote + 1;
        if (at == size && !is_whole_file) return Outcome::kMore;
        if (at == size || text[at] != '"') break;
        value.has_quotes = true;
        ++at;
      }
      value.text = text.substr(begin, at - 1 - begin);
    } else {
      const size_t begin = at;
      while (at < size && text[at] != delimiter_ && text[at] != '\n' && text[at] != '\r') ++at;
      value.text = text.substr(begin, at - begin);
    }
    if (values_.size() == kMaxValues) return Bad("more than 10,000 values");
    values_.push_back(value);
    if (at == size) return is_whole_file ? Done(at) : Outcome::kMore;
    if (text[at] == delimiter_) {
      ++at;
      continue;
    }
    if (text[at] == '\n') return Done(at + 1);
    if (text[at] != '\r') return Bad(kBehindQuote);
    if (at + 1 == size) return is_whole_file ? Done(at + 1) : Outcome::kMore;
    if (text[at + 1] == '\n') return Done(at + 2);
    return Bad(has_quoting_ ? kCarriageReturn : kCarriageReturnInLine);
  }
}

size_t CsvRow::Unquote(absl::string_view text, char* to) {
  size_t bytes = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    to[bytes++] = text[i];
    if (text[i] == '"') ++i;  // the second of two
  }
  return bytes;
}

}  // namespace feedwater::server
