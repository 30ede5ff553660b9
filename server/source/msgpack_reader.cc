#include "server/source/msgpack_reader.h"

#include <cstring>

namespace feedwater::server {
namespace {

using Kind = MsgpackValue::Kind;

MsgpackValue Integer(int64_t value) {
  MsgpackValue integer;
  integer.kind = Kind::kInteger;
  integer.integer = value;
  return integer;
}

// The two's complement number of so many bytes.
int64_t Signed(uint64_t value, size_t bytes) {
  const auto shift = static_cast<unsigned>(64 - 8 * bytes);
  return static_cast<int64_t>(value << shift) >> shift;
}

}  // namespace

const char* MsgpackValue::name() const {
  switch (kind) {
    case Kind::kNil:
      return "nothing";
    case Kind::kBool:
      return "true or false";
    case Kind::kInteger:
    case Kind::kUnsigned:
      return "an integer";
    case Kind::kFloat:
      return "a number";
    case Kind::kText:
      return "a text";
    case Kind::kBytes:
      return "bytes";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a map";
  }
  return "";
}

absl::StatusOr<absl::string_view> MsgpackReader::Take(uint64_t bytes) {
  if (bytes > rest_.size()) return absl::DataLossError("ends within a value");
  const absl::string_view taken = rest_.substr(0, static_cast<size_t>(bytes));
  rest_.remove_prefix(taken.size());
  return taken;
}

absl::StatusOr<uint64_t> MsgpackReader::TakeNumber(size_t bytes) {
  FW_ASSIGN_OR_RETURN(const absl::string_view taken, Take(bytes));
  uint64_t number = 0;
  for (const char byte : taken) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

absl::StatusOr<MsgpackValue> MsgpackReader::Next() {
  FW_ASSIGN_OR_RETURN(const uint64_t head, TakeNumber(1));
  MsgpackValue value;
  const auto sized = [&](Kind kind, uint64_t size) -> absl::StatusOr<MsgpackValue> {
    value.kind = kind;
    if (kind == Kind::kList || kind == Kind::kMap) {
      value.items = static_cast<uint32_t>(size);
      return value;
    }
    FW_ASSIGN_OR_RETURN(value.bytes, Take(size));
    return value;
  };
  // A size of 1, 2 or 4 bytes, and what it is the size of. Extensions have a type besides.
  const auto long_one = [&](Kind kind, size_t bytes,
                            uint64_t more = 0) -> absl::StatusOr<MsgpackValue> {
    FW_ASSIGN_OR_RETURN(const uint64_t size, TakeNumber(bytes));
    return sized(kind, size + more);
  };
  if (head < 0x80) return Integer(static_cast<int64_t>(head));
  if (head >= 0xe0) return Integer(Signed(head, 1));
  if (head < 0x90) return sized(Kind::kMap, head & 0xf);
  if (head < 0xa0) return sized(Kind::kList, head & 0xf);
  if (head < 0xc0) return sized(Kind::kText, head & 0x1f);
  switch (head) {
    case 0xc0:
      return value;
    case 0xc2:
    case 0xc3:
      value.kind = Kind::kBool;
      value.integer = static_cast<int64_t>(head & 1);
      return value;
    case 0xc4:
    case 0xc5:
    case 0xc6:
      return long_one(Kind::kBytes, size_t{1} << (head - 0xc4));
    case 0xc7:
    case 0xc8:
    case 0xc9:
      return long_one(Kind::kBytes, size_t{1} << (head - 0xc7), 1);
    case 0xca: {
      FW_ASSIGN_OR_RETURN(const uint64_t bits, TakeNumber(4));
      const auto half = static_cast<uint32_t>(bits);
      float number;
      std::memcpy(&number, &half, sizeof(number));
      value.kind = Kind::kFloat;
      value.number = number;
      return value;
    }
    case 0xcb: {
      FW_ASSIGN_OR_RETURN(const uint64_t bits, TakeNumber(8));
      std::memcpy(&value.number, &bits, sizeof(bits));
      value.kind = Kind::kFloat;
      return value;
    }
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf: {
      FW_ASSIGN_OR_RETURN(const uint64_t number, TakeNumber(size_t{1} << (head - 0xcc)));
      if (number <= INT64_MAX) return Integer(static_cast<int64_t>(number));
      value.kind = Kind::kUnsigned;
      return value;
    }
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3: {
      const size_t bytes = size_t{1} << (head - 0xd0);
      FW_ASSIGN_OR_RETURN(const uint64_t number, TakeNumber(bytes));
      return Integer(Signed(number, bytes));
    }
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
      return sized(Kind::kBytes, (uint64_t{1} << (head - 0xd4)) + 1);
    case 0xd9:
    case 0xda:
    case 0xdb:
      return long_one(Kind::kText, size_t{1} << (head - 0xd9));
    case 0xdc:
    case 0xdd:
      return long_one(Kind::kList, size_t{2} << (head - 0xdc));
    case 0xde:
    case 0xdf:
      return long_one(Kind::kMap, size_t{2} << (head - 0xde));
    default:
      return absl::DataLossError("holds a byte that begins no value");
  }
}

absl::Status MsgpackReader::Skip(const MsgpackValue& value) {
  // A value takes a byte at least, so the sum cannot pass what 64 bits hold.
  const auto within = [](const MsgpackValue& one) {
    return one.kind == Kind::kMap ? 2 * uint64_t{one.items} : uint64_t{one.items};
  };
  for (uint64_t left = within(value); left > 0; --left) {
    FW_ASSIGN_OR_RETURN(const MsgpackValue next, Next());
    left += within(next);
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
