// What the daemon tells about its jobs: status, ledger, records, bad samples. Reads what others
// hold and changes nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "feedwater/v1/control.pb.h"
#include "server/base/user_shares.h"
#include "server/pipeline/ledger.h"
#include "server/pipeline/runtime.h"
#include "server/service/catalogue.h"
#include "server/service/config.h"
#include "server/service/stream_opener.h"
#include "server/transport/data_server.h"

namespace feedwater::server {

// Adds jobs, those of `first` before others, until the answer takes `most_bytes`; the rest is
// counted.
void AddJobs(std::vector<JobStats> jobs, uid_t first, int64_t most_bytes,
             v1::GetStatusResponse* response);

// Adds its steps and entries, whose texts need not be UTF-8.
void AddLedger(const Ledger& ledger, v1::GetLedgerResponse* response);

// Thread-safe.
class Reports {
 public:
  struct Parts {
    DataServer* data = nullptr;
    Runtime* runtime = nullptr;
    std::shared_ptr<UserShares> shares;  // of memory
    const Settings* settings = nullptr;
    const Catalogue* catalogue = nullptr;
    const Providers* providers = nullptr;  // may be null
    std::shared_ptr<BadSampleLog> bad_samples;
    std::shared_ptr<const DecoderHost> decoders;  // null: workers make all samples
    std::function<std::map<std::string, uint64_t>()> more_counters;  // may be null
    const StreamOpener* streams = nullptr;
  };
  // Who asks for a long report.
  struct Asker {
    uid_t user = 0;
    std::function<bool()> is_gone;
    std::function<absl::Status(int64_t bytes)> reserve;  // room for the answer
  };
  explicit Reports(Parts parts);

  // All but the jobs.
  void TellStatus(v1::GetStatusResponse* response) const;
  // The asker's own, or everybody's where the daemon's own user asks.
  void TellProviders(uid_t asker, v1::GetStatusResponse* response) const;
  // Behind what the answer holds already: as many as one answer has room for.
  void TellJobs(const Asker& asker, v1::GetStatusResponse* response) const;
  absl::Status ReadLedger(const Asker& asker, const v1::GetLedgerRequest& request,
                          v1::GetLedgerResponse* response) const;
  // Of a job's dataset, from `first` on: as many as the request wants and one answer holds.
  absl::Status ListRecords(const Asker& asker, const v1::ListRecordsRequest& request,
                           v1::ListRecordsResponse* response) const;
  absl::Status ListBadSamples(const Asker& asker, v1::ListBadSamplesResponse* response) const;

 private:
  std::vector<JobStats> Jobs() const;  // with where their trainers are

  const Parts parts_;
  const int64_t start_ns_;
};

}  // namespace feedwater::server
