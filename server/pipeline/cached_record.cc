#include "server/pipeline/cached_record.h"

#include <algorithm>

#include "server/base/no_throw.h"
#include "server/codec/decode_need.h"

namespace feedwater::server {
namespace {

constexpr size_t kSmallPayloadBytes = 4 << 20;

}  // namespace

absl::Status CachedRecord::Open(const Job& job, const RecordBytes& bytes) {
  absl::Span<const std::byte> payload = bytes.extents()[0];
  if (bytes.origin() == RecordBytes::Origin::kDisk) {
    FW_ASSIGN_OR_RETURN(
        const BlockView block,
        job.cache()->TakeFromDisk(bytes.record(), bytes.stamp(), bytes.kept_at(), payload));
    payload = block.payload;
  }
  return UnpackFields(job.config().pipeline->kept, payload, &fields_);
}

bool CachedRecord::IsWanted(const Job& job, const RecordBytes& bytes) {
  return bytes.origin() == RecordBytes::Origin::kDataset && job.cache() != nullptr &&
         RecordReader::IsSettled(bytes) && job.cache()->Wants(bytes.record(), bytes.stamp());
}

CachedRecord::Need CachedRecord::NeedOf(const Job& job, const Record& record) {
  const std::vector<bool>& as_coefficients = job.config().pipeline->kept.as_coefficients;
  Need need;
  for (size_t i = 0; i < record.fields.size(); ++i) {
    const Tensor& field = record.fields[i];
    PackingNeed packing;
    if (i < as_coefficients.size() && as_coefficients[i])
      packing = NeedOfPacking({field.data, field.bytes()});
    need.packed_bytes += std::max(packing.document_bytes, static_cast<int64_t>(field.bytes()));
    need.coefficient_bytes = std::max(need.coefficient_bytes, packing.uncounted_bytes);
  }
  return need;
}

absl::Status CachedRecord::Pack(const Job& job, const Record& record, SampleMaker& maker) {
  const LoadedPipeline& pipeline = *job.config().pipeline;
  const KeptForm& form = pipeline.kept;
  Record packed;
  packed.fields = record.fields;
  documents_.resize(form.as_coefficients.size());
  for (size_t i = 0; i < form.as_coefficients.size() && i < packed.fields.size(); ++i) {
    if (!form.as_coefficients[i]) continue;
    Tensor& field = packed.fields[i];
    FW_RETURN_IF_ERROR(
        maker.Pack({field.data, field.bytes()}, pipeline.spec.limits, &documents_[i]));
    if (documents_[i].empty()) continue;
    field.spec.shape = {static_cast<int64_t>(documents_[i].size())};
    field.data = documents_[i].data();
  }
  is_packed_ =
      server::PackFields(form, packed, &payload_) && UnpackFields(form, payload_, &fields_).ok();
  return absl::OkStatus();
}

void CachedRecord::PackFields(const Job& job, const Record& fields) {
  is_packed_ = server::PackFields(job.config().pipeline->kept, fields, &payload_);
}

void CachedRecord::Put(const Job& job, const RecordBytes& bytes) {
  if (!is_packed_) return;
  NoThrow([&] {
    OpenedFiles files;
    RecordReader::AddFiles(bytes, &files);
    for (const auto& file : files) FW_RETURN_IF_ERROR(ProveUnchanged(*file));
    job.cache()->Put(bytes.record(), bytes.stamp(), payload_);
    return absl::OkStatus();
  }).IgnoreError();
}

void CachedRecord::GiveBackMemory() {
  std::vector<std::byte>().swap(payload_);
  documents_.clear();
  documents_.shrink_to_fit();
}

void CachedRecord::GiveBackLargeMemory() {
  if (payload_.capacity() > kSmallPayloadBytes) std::vector<std::byte>().swap(payload_);
}

}  // namespace feedwater::server
