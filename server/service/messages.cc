#include "server/service/messages.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/base/escape.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxNameBytes = 256;

}  // namespace

absl::StatusOr<SessionTicket> ReadTicket(const std::string& bytes) {
  SessionTicket ticket;
  if (bytes.size() != ticket.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the ticket has ", bytes.size(),
                                                   " bytes instead of ", ticket.size(),
                                                   "; it comes from the WELCOME of data.sock"));
  }
  memcpy(ticket.data(), bytes.data(), ticket.size());
  return ticket;
}

absl::Status CheckName(absl::string_view what, const std::string& name) {
  if (name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", name.size(), " bytes, more than ", kMaxNameBytes));
  }
  for (char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " '", Printable(name), "' has a control character"));
    }
  }
  return absl::OkStatus();
}

void SetField(const FieldSpec& field, uint64_t offset, v1::Field* out) {
  out->set_name(ToUtf8(field.name));
  out->set_dtype(static_cast<v1::DType>(field.spec.dtype));
  for (int64_t side : field.spec.shape) out->add_shape(side);
  out->set_layout(std::string(LayoutName(field.spec.layout)));
  out->set_offset(offset);
  out->set_max_rows(field.max_rows);
  out->set_doc(ToUtf8(field.doc));
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), ToUtf8(status.message()));
}

}  // namespace feedwater::server
