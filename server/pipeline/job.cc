#include "server/pipeline/job.h"

namespace feedwater::server {

OrderCursor MakeCursor(const std::shared_ptr<const OrderConfig>& config, uint64_t epoch,
                       int64_t position) {
  OrderCursor cursor{std::make_shared<EpochOrder>(config, epoch, position), 0};
  if (cursor.order->steps() == 0) {
    cursor.order = std::make_shared<EpochOrder>(config, epoch + 1, 0);
  }
  return cursor;
}

}  // namespace feedwater::server
