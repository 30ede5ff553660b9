#include "server/sampler/mix_epoch.h"

#include <algorithm>
#include <utility>

namespace feedwater::server {
namespace {

PhiloxKey KeyOf(uint64_t seed, size_t source, uint64_t own_epoch) {
  return EpochKey(seed, own_epoch, static_cast<uint32_t>(source) + 1);
}

}  // namespace

MixEpoch::MixEpoch(std::shared_ptr<const Mix> mix, Shuffle shuffle, int64_t block_records,
                   uint64_t seed, uint64_t epoch)
    : mix_(std::move(mix)),
      shuffle_(shuffle),
      block_records_(block_records),
      seed_(seed),
      sources_(new Source[mix_->sources().size()]) {
  for (size_t i = 0; i < mix_->sources().size(); ++i) {
    const Mix::Source& source = mix_->sources()[i];
    // What the source has given before: 2^63 epochs of 2^62 samples need 125 bits.
    const unsigned __int128 before =
        static_cast<unsigned __int128>(epoch) * static_cast<unsigned __int128>(source.per_epoch);
    const auto records = static_cast<unsigned __int128>(source.records);
    sources_[i].own_epoch = static_cast<uint64_t>(before / records);
    sources_[i].own_position = static_cast<int64_t>(before % records);
  }
}

std::shared_ptr<const RecordOrder> MixEpoch::OrderOf(size_t source, int64_t own_epochs) const {
  const Mix::Source& of = mix_->sources()[source];
  const Source& state = sources_[source];
  const uint64_t own_epoch = state.own_epoch + static_cast<uint64_t>(own_epochs);
  const auto make = [&] {
    return std::make_shared<const RecordOrder>(of.records, shuffle_, block_records_,
                                               of.shard_starts, KeyOf(seed_, source, own_epoch));
  };
  MutexLock lock(&state.mu);
  for (const Kept& kept : state.kept) {
    if (kept.order != nullptr && kept.own_epoch == own_epoch) return kept.order;
  }
  Kept& place = state.kept[state.oldest];
  state.oldest = (state.oldest + 1) % state.kept.size();
  place = {own_epoch, make()};
  return place.order;
}

Pick MixEpoch::PickAt(int64_t position) const {
  const MixSchedule::Turn turn = mix_->schedule().TurnAt(position);
  const Mix::Source& source = mix_->sources()[turn.source];
  const Source& state = sources_[turn.source];
  // Both terms are at most 2^62.
  const int64_t at = state.own_position + turn.nth;
  const int64_t own_epochs = at / source.records, own_position = at % source.records;
  if (shuffle_ == Shuffle::kBlock) {
    const std::shared_ptr<const RecordOrder> order = OrderOf(turn.source, own_epochs);
    return {source.first + order->RecordAt(own_position), order->key()};
  }
  const RecordOrder order(
      source.records, shuffle_, block_records_, source.shard_starts,
      KeyOf(seed_, turn.source, state.own_epoch + static_cast<uint64_t>(own_epochs)));
  return {source.first + order.RecordAt(own_position), order.key()};
}

std::vector<int64_t> MixEpoch::PositionsOf(int64_t record, int64_t from, size_t most) const {
  const size_t source = mix_->SourceOf(record);
  const Mix::Source& of = mix_->sources()[source];
  const Source& state = sources_[source];
  const int64_t first_turn = mix_->schedule().TurnsBefore(source, from);
  std::vector<int64_t> positions;
  // One turn in each of the source's own epochs; the first and the last may be cut.
  for (int64_t own_epochs = (state.own_position + first_turn) / of.records; positions.size() < most;
       ++own_epochs) {
    const __int128 turn = static_cast<__int128>(own_epochs) * of.records +
                          OrderOf(source, own_epochs)->PositionOf(record - of.first) -
                          state.own_position;
    if (turn >= of.per_epoch) {
      // Behind the epoch's end; the next own epoch's turns all are.
      break;
    }
    if (turn >= first_turn)
      positions.push_back(mix_->schedule().PositionOf(source, static_cast<int64_t>(turn)));
  }
  return positions;
}

}  // namespace feedwater::server
