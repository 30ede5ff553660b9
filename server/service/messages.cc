#include "server/service/messages.h"

#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "server/base/escape.h"
#include "server/base/yaml.h"
#include "server/pipeline/dataset_order.h"
#include "server/source/given_records.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxNameBytes = 256;
constexpr const char* kNotServedDetails = "not-served";

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

absl::Status TellMix(const Dataset& dataset, v1::DescribePipelineResponse* response) {
  response->set_positions_per_epoch(dataset.size());
  if (dataset.mix() == nullptr) return absl::OkStatus();
  FW_ASSIGN_OR_RETURN(const std::shared_ptr<const Mix> order, MixOrderOf(dataset));
  response->set_positions_per_epoch(order->positions());
  for (size_t i = 0; i < order->sources().size(); ++i) {
    v1::MixSource* source = response->add_mix();
    source->set_name(ToUtf8(dataset.mix()->sources[i].name));
    source->set_weight(order->schedule().weights()[i]);
    source->set_records(order->sources()[i].records);
    source->set_samples_per_epoch(order->sources()[i].per_epoch);
  }
  return absl::OkStatus();
}

std::string FittingMessage(const std::string& text) {
  // Of the 8 KiB of metadata that a gRPC client takes; where a message is longer, it sees none.
  constexpr size_t kMostEncoded = 6 << 10, kMostHead = 4 << 10, kMostTail = 1 << 10;
  const auto encoded = [](char c) { return c >= 0x20 && c < 0x7f && c != '%' ? 1 : 3; };
  size_t total = 0;
  for (const char c : text) total += encoded(c);
  if (total <= kMostEncoded) return text;
  const auto begins = [&](size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
  };
  size_t head = 0, tail = text.size(), taken = 0;
  while ((taken += encoded(text[head])) <= kMostHead) ++head;
  while (!begins(head)) --head;
  taken = 0;
  while ((taken += encoded(text[tail - 1])) <= kMostTail) --tail;
  while (tail < text.size() && !begins(tail)) ++tail;
  return absl::StrCat(text.substr(0, head), " [", tail - head, " bytes left out] ",
                      text.substr(tail));
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      FittingMessage(ToUtf8(status.message())),
                      IsNotServed(status) ? kNotServedDetails : "");
}

}  // namespace feedwater::server
