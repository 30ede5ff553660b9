// What a program offers with a Provide call, read and checked.
#pragma once

#include "absl/status/statusor.h"
#include "feedwater/v1/control.pb.h"
#include "server/provider/provided.h"

namespace feedwater::server {

// InvalidArgument that names what cannot be.
absl::StatusOr<Offer> ReadOffer(const v1::ProvideRequest& request, uint32_t user);

}  // namespace feedwater::server
