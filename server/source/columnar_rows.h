// What feedwater-columnar (server/columnar/) and the daemon agree on: what it is asked, the columns
// that it has found in a file of Arrow or Parquet, and the rows that it writes one behind the
// other. A staged file is the columns and the rows as they were written.
//
//   columns   kHeaderMark, bytes of what follows, the columns (4 bytes each number)
//   row       bytes of what follows; a RowState for each staged column; the values of those that
//             are kValue: numbers as they are, behind their number of rows (4 bytes) where that
//             differs; texts and bytes behind their length (4 bytes)
//   end       kEndMark and the number of rows (8 bytes), or kErrorMark, a ColumnarError, the bytes
//             of the text, the text; both for the daemon alone
//
// Little-endian. Nothing here trusts what it reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/tensor.h"
#include "server/source/columns.h"

namespace feedwater::server {

inline constexpr uint32_t kHeaderMark = 0xfeed0001, kErrorMark = 0xfeed0002, kEndMark = 0xfeed0003;
inline constexpr uint32_t kMaxRowBytes = 256 << 20;  // as the pipeline's reader
inline constexpr uint32_t kMaxHeaderBytes = 16 << 20;
inline constexpr uint32_t kMaxErrorBytes = 4 << 10;
inline constexpr uint32_t kMaxRequestBytes = 1 << 20;
inline constexpr size_t kMaxColumnarColumns = 10'000;
inline constexpr size_t kMaxColumnarAxes = 8;

enum class RowState : uint8_t {
  kNull = 0,
  kValue = 1,
  kNullInside = 2,  // a list with a null among its numbers
  kTooLarge = 3,    // an unsigned number that int64 does not hold
};

enum class ColumnarError : uint32_t {
  kDamaged = 1,  // the file, or it is of another kind
  kMemory = 2,
  kMachine = 3,
  kStorage = 4,  // the text is an errno, 4 bytes
};

struct ColumnarColumn {
  ColumnSpec spec;         // without a doc
  std::string type;        // as Arrow names it, for people
  std::string trouble;     // why it cannot be read, with the cure; "": it can
  bool is_staged = false;  // its values are in the rows
};

// The bytes of a value that are the same in every row; -1: they differ. `row_bytes` receives those
// of one row of a value whose number of rows differs. False: the shape is none that is staged.
bool StagedBytes(const ColumnSpec& spec, int64_t* bytes, int64_t* row_bytes);

std::string EncodeColumns(const std::vector<ColumnarColumn>& columns);
// False when the bytes are not what EncodeColumns writes.
bool DecodeColumns(absl::string_view bytes, std::vector<ColumnarColumn>* columns);

struct ColumnarRequest {
  bool is_parquet = false;  // else Arrow IPC, a file or a stream
  bool wants_all = false;   // columns; else those in `wanted` that are there
  uint64_t file_bytes = 0;
  uint64_t memory_bytes = 0;  // of its own, at most
  std::vector<std::string> wanted;
};
std::string EncodeRequest(const ColumnarRequest& request);
bool DecodeRequest(absl::string_view bytes, ColumnarRequest* request);

// A value's text, a number or a list of bytes, read from the front of bytes that may be any.
class BytesReader {
 public:
  explicit BytesReader(absl::string_view bytes) : rest_(bytes) {}
  template <typename T>
  T Number() {
    T value{};
    const absl::string_view bytes = Bytes(sizeof(T));
    if (bytes.size() == sizeof(T)) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  absl::string_view Text() { return Bytes(Number<uint32_t>()); }
  absl::string_view Bytes(uint64_t length) {
    if (!is_good_ || length > rest_.size()) {
      is_good_ = false;
      return {};
    }
    const absl::string_view bytes = rest_.substr(0, static_cast<size_t>(length));
    rest_.remove_prefix(static_cast<size_t>(length));
    return bytes;
  }
  bool good() const { return is_good_; }
  bool at_end() const { return rest_.empty(); }

 private:
  absl::string_view rest_;
  bool is_good_ = true;
};

template <typename T>
void PutNumber(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace feedwater::server
