#include "server/pipeline/cached_record.h"

#include "server/base/no_throw.h"
#include "server/pipeline/kept_fields.h"

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
  if (job.config().pipeline->cache_kind == CacheKind::kDecoded)
    return UnpackFields(job.plan()->prefix(), payload, &fields_);
  return UnpackExtents(payload, &extents_);
}

bool CachedRecord::IsWanted(const Job& job, const RecordBytes& bytes) {
  return bytes.origin() == RecordBytes::Origin::kDataset && job.cache() != nullptr &&
         RecordReader::IsSettled(bytes) && job.cache()->Wants(bytes.record(), bytes.stamp());
}

absl::Status CachedRecord::Pack(const Job& job, const RecordBytes& bytes, SampleMaker& maker) {
  extents_.assign(bytes.extents().begin(), bytes.extents().end());
  if (job.config().pipeline->cache_kind == CacheKind::kCoefficients) {
    const ImageLimits& limits = job.config().pipeline->spec.limits;
    documents_.resize(extents_.size());
    for (size_t i = 0; i < extents_.size(); ++i) {
      FW_RETURN_IF_ERROR(maker.Pack(extents_[i], limits, &documents_[i]));
      if (!documents_[i].empty()) extents_[i] = documents_[i];
    }
  }
  is_packed_ = PackExtents(extents_, &payload_) && UnpackExtents(payload_, &extents_).ok();
  return absl::OkStatus();
}

void CachedRecord::PackFields(const Job& job, const Record& fields) {
  is_packed_ = server::PackFields(job.plan()->prefix(), fields, &payload_);
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
  extents_.clear();
}

void CachedRecord::GiveBackLargeMemory() {
  if (payload_.capacity() > kSmallPayloadBytes) std::vector<std::byte>().swap(payload_);
}

}  // namespace feedwater::server
