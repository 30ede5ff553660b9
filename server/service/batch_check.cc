#include "server/service/batch_check.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/units.h"
#include "server/batch/slot_layout.h"
#include "server/graph/plan.h"

namespace feedwater::server {

absl::Status CheckBatchFits(const PipelineSpec& spec, const Settings& settings) {
  if (spec.batch_size <= 0) return absl::OkStatus();
  const std::string what = absl::StrCat("pipeline ", spec.name, ", batch.size ", spec.batch_size);
  FW_ASSIGN_OR_RETURN(const auto fields, DescribeDataset(spec.dataset));
  if (!fields) return absl::OkStatus();
  // How many classes there are is known only when the dataset is opened; with one, what depends on
  // them is smallest.
  FW_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan> plan,
                      Plan::Create(spec, *fields, /*classes=*/1, {.classes_are_known = false}));
  FW_RETURN_IF_ERROR(Annotate(plan->CheckBatchSize(spec.batch_size), what));
  const auto layout =
      SlotLayout::Create(plan->outputs(), spec.batch_size, settings.config.limits.max_slot.bytes);
  if (!layout.ok()) return Annotate(layout.status(), what);
  if (layout->slot_bytes <= settings.memory_limit_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": a slot of ", FormatBytes(layout->slot_bytes), " is more than `memory` = ",
      FormatBytes(settings.memory_limit_bytes), "; take a smaller batch.size"));
}

}  // namespace feedwater::server
