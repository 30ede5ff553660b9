#include "server/audio/flac_frames.h"

#include <array>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

struct FrameHeader {
  int64_t samples = 0, rate = 0;  // rate 0: as the stream info says
  int channels = 0, bits = 0;     // bits 0: as the stream info says
  uint64_t number = 0;            // of the frame, or of its first sample
};

// Both checksums begin with the highest bit; the one of 8 bits is kept in the upper half.
constexpr std::array<uint16_t, 256> ChecksumTable(uint32_t polynomial) {
  std::array<uint16_t, 256> table = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i << 8;
    for (int bit = 0; bit < 8; ++bit) value = value << 1 ^ ((value & 0x8000) != 0 ? polynomial : 0);
    table[i] = static_cast<uint16_t>(value);
  }
  return table;
}
constexpr std::array<uint16_t, 256> kTable16 = ChecksumTable(0x8005),
                                    kTable8 = ChecksumTable(0x0700);

uint16_t Checksum(const std::array<uint16_t, 256>& table, uint16_t sum,
                  absl::Span<const uint8_t> bytes) {
  for (const uint8_t byte : bytes)
    sum = static_cast<uint16_t>(sum << 8 ^ table[(sum >> 8 ^ byte) & 0xff]);
  return sum;
}

uint32_t Big16(const uint8_t* at) { return uint32_t{at[0]} << 8 | at[1]; }

// The header of a frame that begins here, if one does.
std::optional<FrameHeader> ReadHeader(absl::Span<const uint8_t> bytes) {
  constexpr int kRates[] = {0,     88200, 176400, 192000, 8000,  16000,
                            22050, 24000, 32000,  44100,  48000, 96000};
  constexpr int kBits[] = {0, 8, 12, -1, 16, 20, 24, 32};
  if (bytes.size() < 5 || bytes[0] != 0xff || (bytes[1] & 0xfe) != 0xf8) return std::nullopt;
  const int size_code = bytes[2] >> 4, rate_code = bytes[2] & 15, channel_code = bytes[3] >> 4;
  FrameHeader header;
  header.bits = kBits[bytes[3] >> 1 & 7];
  if (size_code == 0 || rate_code == 15 || channel_code > 10 || header.bits < 0 ||
      (bytes[3] & 1) != 0)
    return std::nullopt;
  header.channels = channel_code < 8 ? channel_code + 1 : 2;
  // The number, as UTF-8 has it: as many ones as it has bytes, or none.
  size_t number_bytes = 0;
  while (number_bytes < 8 && (bytes[4] << number_bytes & 0x80) != 0) ++number_bytes;
  if (number_bytes == 1 || number_bytes == 8) return std::nullopt;
  header.number = number_bytes == 0 ? bytes[4] : bytes[4] & 0x7fu >> number_bytes;
  size_t at = 5;
  const size_t behind = at + (number_bytes > 0 ? number_bytes - 1 : 0),
               size_bytes = size_code == 6   ? 1
                            : size_code == 7 ? 2
                                             : 0,
               rate_bytes = rate_code == 12  ? 1
                            : rate_code > 12 ? 2
                                             : 0,
               end = behind + size_bytes + rate_bytes;
  if (bytes.size() <= end) return std::nullopt;
  for (; at < behind; ++at) {
    if ((bytes[at] & 0xc0) != 0x80) return std::nullopt;
    header.number = header.number << 6 | (bytes[at] & 0x3f);
  }
  if (size_code == 1) header.samples = 192;
  if (size_code >= 2 && size_code <= 5) header.samples = 576 << (size_code - 2);
  if (size_code == 6) header.samples = bytes[at] + 1;
  if (size_code == 7) header.samples = Big16(&bytes[at]) + 1;
  if (size_code >= 8) header.samples = 256 << (size_code - 8);
  at += size_bytes;
  if (rate_code < 12) header.rate = kRates[rate_code];
  if (rate_code == 12) header.rate = bytes[at] * 1000;
  if (rate_code == 13) header.rate = Big16(&bytes[at]);
  if (rate_code == 14) header.rate = Big16(&bytes[at]) * 10;
  if (Checksum(kTable8, 0, bytes.first(end)) >> 8 != bytes[end]) return std::nullopt;
  return header;
}

}  // namespace

absl::StatusOr<int64_t> CountFlacSamples(const AudioFile& file) {
  const absl::Span<const uint8_t> bytes = file.body;
  const uint8_t* const info = &file.head[8];
  const int bits = static_cast<int>((info[12] & 1) << 4 | info[13] >> 4) + 1;
  int64_t samples = 0;
  for (size_t at = 0; at < bytes.size() && (samples < file.most_frames || !file.is_exact);) {
    const auto header = ReadHeader(bytes.subspan(at));
    if (!header) {
      return absl::InvalidArgumentError(
          absl::StrCat("FLAC has a damaged frame behind its first ", samples, " samples"));
    }
    if (header->channels != file.channels || (header->rate != 0 && header->rate != file.rate) ||
        (header->bits != 0 && header->bits != bits)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "FLAC says in its stream info that it is of ", file.channels, " channels at ", file.rate,
          " Hz with ", bits, " bits, but a frame is of ", header->channels, " at ", header->rate,
          " Hz with ", header->bits, " bits (0: as the stream info says)"));
    }
    samples += header->samples;
    // Its end: the next header with the checksum of all bytes before it in the last two of them,
    // which together make 0.
    uint16_t sum = 0;
    size_t summed = at, end = bytes.size();
    for (size_t from = at + kLeastFlacFrameBytes; from < bytes.size();) {
      const void* const found = std::memchr(&bytes[from], 0xff, bytes.size() - from);
      if (found == nullptr) break;
      const auto place = static_cast<size_t>(static_cast<const uint8_t*>(found) - bytes.data());
      from = place + 1;
      const auto next = ReadHeader(bytes.subspan(place));
      if (!next) continue;
      sum = Checksum(kTable16, sum, bytes.subspan(summed, place - summed));
      summed = place;
      if (sum != 0) continue;
      if (next->number != header->number + 1 &&
          next->number != header->number + static_cast<uint64_t>(header->samples)) {
        return absl::InvalidArgumentError(
            absl::StrCat("FLAC lacks a frame behind its first ", samples, " samples"));
      }
      end = place;
      break;
    }
    if (end == bytes.size()) {
      // The last one. Zeros behind it leave the sum as it is.
      sum = Checksum(kTable16, sum, bytes.subspan(summed));
      if (sum != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("FLAC is cut off or damaged within the frame behind its first ",
                         samples - header->samples, " samples"));
      }
    } else if (file.is_exact && samples >= file.most_frames) {
      return absl::InvalidArgumentError(
          absl::StrCat("FLAC holds more than the ", file.most_frames, " frames that it promises"));
    }
    at = end;
  }
  if (samples == file.most_frames || !file.is_exact) return samples;
  return absl::InvalidArgumentError(
      absl::StrCat("FLAC promises ", file.most_frames, " frames, but ", samples, " are there"));
}

}  // namespace feedwater::server
