#include "server/decoder/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "server/base/sealed_file.h"

namespace feedwater::server {
namespace {

constexpr uint64_t kKeptPagesBytes = 4 << 20;  // of each area, from sample to sample
constexpr uint64_t kPage = 4096;

// The machine's fault, whatever the kernel's word for it: an error of a record would hide it.
absl::Status MachineError(int error, absl::string_view what) {
  const absl::Status status = ErrnoStatus(error, what);
  return absl::ResourceExhaustedError(status.message());
}

}  // namespace

Region& Region::operator=(Region&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr) munmap(data_, bytes_);
  fd_ = std::move(other.fd_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  header_ = other.header_;
  return *this;
}

Region::~Region() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

absl::Status Region::Map(size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (data == MAP_FAILED) return MachineError(errno, "mapping a decoder's memory");
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
  return absl::OkStatus();
}

absl::StatusOr<Region> Region::Make(uint64_t input_bytes, uint64_t output_bytes,
                                    uint64_t memory_bytes) {
  uint64_t bytes = 0;
  if (__builtin_add_overflow(output_bytes, kControlBytes + kPage, &bytes) ||
      __builtin_add_overflow(input_bytes, bytes, &bytes) || bytes > INT64_MAX) {
    return absl::InvalidArgumentError("the size of a sample overflows");
  }
  bytes = bytes / kPage * kPage;
  Region region;
  FW_ASSIGN_OR_RETURN(region.fd_, MakeSealedFile("feedwater-decoder", static_cast<int64_t>(bytes),
                                                 /*allocate=*/false));
  FW_RETURN_IF_ERROR(region.Map(bytes));
  region.header_ = {kRegionMagic, kRegionVersion, input_bytes, output_bytes, memory_bytes};
  std::memcpy(region.data_, &region.header_, sizeof(region.header_));
  return region;
}

absl::StatusOr<Region> Region::Open(int fd) {
  Region region;
  region.fd_ = Fd(fd);
  struct stat info;
  if (fstat(fd, &info) != 0) return MachineError(errno, "looking at a decoder's memory");
  if (info.st_size < static_cast<off_t>(kControlBytes))
    return absl::InvalidArgumentError("the memory is too small");
  FW_RETURN_IF_ERROR(region.Map(static_cast<size_t>(info.st_size)));
  region.header_ = CopyIn<RegionHeader>(region.data_);
  const RegionHeader& header = region.header_;
  if (header.magic != kRegionMagic || header.version != kRegionVersion)
    return absl::InvalidArgumentError("the memory is no decoder's, or of another version");
  const uint64_t room = region.bytes_ - kControlBytes;
  if (header.input_bytes > room || header.output_bytes > room - header.input_bytes)
    return absl::InvalidArgumentError("the memory is smaller than its header says");
  return region;
}

void Region::GiveBack(std::byte* area, uint64_t used) const {
  if (used <= kKeptPagesBytes) return;
  const auto start = reinterpret_cast<uintptr_t>(area);
  const uintptr_t from = (start + kKeptPagesBytes + kPage - 1) / kPage * kPage;
  const uintptr_t to = std::min((start + used + kPage - 1) / kPage * kPage,
                                reinterpret_cast<uintptr_t>(data_ + bytes_));
  if (to > from) madvise(reinterpret_cast<void*>(from), to - from, MADV_REMOVE);
}

int64_t Region::held_bytes() const {
  constexpr int64_t kBlock = 512;  // stat(2)
  struct stat info;
  return fstat(fd(), &info) == 0 ? info.st_blocks * kBlock : 0;
}

absl::StatusOr<SampleArea> SampleArea::Of(const Plan& plan) {
  constexpr int64_t kOffsetsOfOne = 2 * sizeof(int64_t);  // of a batch of one sample
  SampleArea area;
  const auto add = [&area](int64_t bytes) {
    return bytes >= 0 && bytes < INT64_MAX / 2 &&
           !__builtin_add_overflow(area.bytes, RoundUpToUnit(static_cast<uint64_t>(bytes)),
                                   &area.bytes) &&
           area.bytes < INT64_MAX / 2;
  };
  const absl::Status overflow = absl::InvalidArgumentError("the size of a sample overflows");
  for (const FieldSpec& output : plan.outputs()) {
    FW_ASSIGN_OR_RETURN(const int64_t bytes, output.SampleBytes());
    area.outputs.push_back(area.bytes);
    if (!add(bytes)) return overflow;
    area.rows.push_back(output.is_ragged() ? area.bytes : kNotRagged);
    if (output.is_ragged() && !add(kOffsetsOfOne)) return overflow;
  }
  area.staging = area.bytes;
  if (!add(plan.staging_bytes_per_sample())) return overflow;
  const SampleMemory::Calls& calls = plan.memory(SampleWay::kWhole).calls;
  if (calls.bytes() > 0) {
    area.call_inputs = RoundUpToUnit(static_cast<uint64_t>(calls.inputs)) + kCallSlackBytes;
    area.call_outputs = RoundUpToUnit(static_cast<uint64_t>(calls.outputs)) + kCallSlackBytes;
  }
  return area;
}

BatchMemory SampleArea::At(std::byte* area) const {
  BatchMemory memory;
  for (size_t i = 0; i < outputs.size(); ++i) {
    memory.outputs.push_back(area + outputs[i]);
    memory.offsets.push_back(rows[i] == kNotRagged ? nullptr
                                                   : reinterpret_cast<int64_t*>(area + rows[i]));
  }
  memory.staging = area + staging;
  memory.batch_size = 1;
  return memory;
}

bool Describe(const TensorSpec& spec, uint64_t offset, uint64_t bytes, RegionField* field) {
  if (spec.shape.size() > kMaxRegionAxes) return false;
  *field = {};
  field->dtype = static_cast<uint8_t>(spec.dtype);
  field->layout = static_cast<uint8_t>(spec.layout);
  field->axes = static_cast<uint16_t>(spec.shape.size());
  field->offset = offset;
  field->bytes = bytes;
  std::copy(spec.shape.begin(), spec.shape.end(), field->shape);
  return true;
}

absl::StatusOr<TensorSpec> CheckField(const RegionField& field, uint64_t area_bytes) {
  TensorSpec spec;
  spec.dtype = static_cast<DType>(field.dtype);
  spec.layout = static_cast<Layout>(field.layout);
  if (DTypeSize(spec.dtype) == 0 || field.layout > static_cast<uint8_t>(Layout::kEncoded))
    return absl::DataLossError("a field of an unknown type");
  if (field.axes > kMaxRegionAxes) return absl::DataLossError("a field of too many axes");
  spec.shape.assign(field.shape, field.shape + field.axes);
  const absl::StatusOr<int64_t> bytes = spec.ByteSize();
  if (!bytes.ok() || static_cast<uint64_t>(*bytes) != field.bytes)
    return absl::DataLossError("a field whose size is not that of its shape");
  if (field.offset % kRegionUnit != 0 || field.offset > area_bytes ||
      field.bytes > area_bytes - field.offset) {
    return absl::DataLossError("a field that lies outside");
  }
  return spec;
}

}  // namespace feedwater::server
