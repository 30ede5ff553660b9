// Reads and writes what the messages of proto/feedwater/v1/control.proto have in common.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "feedwater/v1/control.grpc.pb.h"
#include "server/graph/plan.h"
#include "server/source/dataset.h"
#include "server/transport/data_server.h"

namespace feedwater::server {

// InvalidArgument unless it has the length of a ticket.
absl::StatusOr<SessionTicket> ReadTicket(const std::string& bytes);
// InvalidArgument where a name is too long or has control characters; `what` names it.
absl::Status CheckName(absl::string_view what, const std::string& name);
// `offset` in bytes: where the field begins in a slot.
void SetField(const FieldSpec& field, uint64_t offset, v1::Field* out);
// How long an epoch is, and of a mix its sources.
absl::Status TellMix(const Dataset& dataset, v1::DescribePipelineResponse* response);
// An error's text, which is UTF-8, without the middle where it is longer than gRPC carries.
std::string FittingMessage(const std::string& text);
// The gRPC status with the same code and message, as far as that fits.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace feedwater::server
