// Fields whose number of rows differs from sample to sample, on their way into a batch: boxes
// float32[?,4], labels int64[?], texts.
//
// While a batch is filled each sample writes its rows to a place of its own, which has room for as
// many as the output allows, and their number beside them; so no sample waits for another one. When
// all are there, the rows of a ragged output move together and the numbers become offsets: Pack.
// An output with `pad_to` keeps its room, and what is behind a sample's rows is filled.
#pragma once

#include <cstdint>

#include "server/graph/plan_impl.h"

namespace feedwater::server {

// InvalidArgument when the output that the value becomes has no room for so many rows: with the
// key that gives more.
absl::Status CheckRows(const Plan::Impl& plan, int value, const TensorSpec& spec);

// Notes the number of a sample's rows, and fills what is behind them where the output is padded.
// The rows themselves are in their place. REQUIRES: CheckRows.
void FinishRows(const Plan::Impl& plan, int value, int64_t rows, int64_t k,
                const BatchMemory& memory);

// Takes a sample's rows over from memory that somebody else may write (Plan::CopySample). DataLoss:
// their number makes no sense.
absl::Status CopyRows(const Plan::Impl& plan, int value, const BatchMemory& from, int64_t from_k,
                      const BatchMemory& memory, int64_t k);

// Moves the rows of every ragged output together, once all `samples` places are written. Offsets
// behind the last sample are that of the end.
void PackRaggedOutputs(const Plan::Impl& plan, int64_t samples, const BatchMemory& memory);

}  // namespace feedwater::server
