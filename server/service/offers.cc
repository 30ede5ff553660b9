#include "server/service/offers.h"

#include <cmath>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/shm/wire.h"
#include "server/base/yaml.h"
#include "server/graph/op_spec.h"
#include "server/service/messages.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxNameBytes = 64;
constexpr int64_t kMaxRecords = int64_t{1} << 40;
// A worker waits for an op.
constexpr double kDefaultTimeoutSeconds = 60, kMaxTimeoutSeconds = 24 * 3600,
                 kMaxOpTimeoutSeconds = 600;
constexpr int kMaxClasses = 1 << 16;
constexpr int64_t kMaxWorkers = 1 << 16;  // of the ranks on all machines

absl::Status CheckOwnName(absl::string_view what, const std::string& name) {
  bool good = name.size() <= kMaxNameBytes;
  for (const char c : name)
    good = good &&
           (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-');
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the ", what, " '", Printable(name),
                                                 "' has more than letters, digits and . _ -, or "
                                                 "more than ",
                                                 kMaxNameBytes, " bytes"));
}

absl::StatusOr<FieldSpec> ReadField(const v1::Field& field) {
  YamlNode name;
  name.kind = YamlNode::Kind::kScalar;
  name.scalar = field.name();
  if (const absl::Status named = CheckFieldName(name); !named.ok())
    return absl::InvalidArgumentError(named.message());
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("field '", field.name(), "' ", why...));
  };
  if (IsOwnField(field.name())) return refuse("has a name that Feedwater's own fields have");
  if (field.dtype() < v1::DTYPE_UINT8 || field.dtype() > v1::DTYPE_FLOAT64)
    return refuse("has no known dtype");
  if (field.shape_size() > static_cast<int>(wire::kMaxAxes))
    return refuse("has ", field.shape_size(), " axes, more than ", wire::kMaxAxes);
  FieldSpec read;
  read.name = field.name();
  read.doc = std::string(absl::string_view(field.doc()).substr(0, 256));
  read.spec.dtype = static_cast<DType>(field.dtype());
  for (const int64_t side : field.shape()) {
    if (side < -1) return refuse("has an axis of ", side);
    read.spec.shape.push_back(side);
  }
  for (const Layout layout : {Layout::kHWC, Layout::kCHW, Layout::kEncoded}) {
    if (field.layout() == LayoutName(layout)) read.spec.layout = layout;
  }
  const Layout layout = read.spec.layout;
  if (layout == Layout::kPlain && !field.layout().empty() &&
      field.layout() != LayoutName(Layout::kPlain)) {
    return refuse("has an unknown layout '", Printable(field.layout()),
                  "': plain, HWC, CHW or encoded");
  }
  if ((layout == Layout::kHWC || layout == Layout::kCHW) && read.spec.shape.size() != 3)
    return refuse("is an image of ", read.spec.shape.size(), " axes instead of 3");
  if (layout == Layout::kEncoded &&
      (read.spec.dtype != DType::kUInt8 || read.spec.shape != Shape{-1})) {
    return refuse("is an encoded image, and so uint8[?], not ", read.spec.ToString());
  }
  if (read.spec.IsStatic()) FW_RETURN_IF_ERROR(read.spec.ByteSize().status());
  return read;
}

absl::Status ReadSource(const v1::OfferedSource& offered, OfferedSource* source) {
  if (offered.records() < 1 || offered.records() > kMaxRecords) {
    return absl::InvalidArgumentError(
        absl::StrCat("a source of ", offered.records(), " records: there are 1 to ", kMaxRecords));
  }
  source->records = offered.records();
  const int64_t workers = offered.workers();
  if (workers < 0 || workers > kMaxWorkers || offered.worker() < 0 ||
      offered.worker() >= std::max<int64_t>(workers, 1)) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", offered.worker(), " of ", workers,
                                                   ": there are at most ", kMaxWorkers));
  }
  source->workers = workers;
  if (offered.fields_size() < 1 || offered.fields_size() > static_cast<int>(wire::kMaxTensors)) {
    return absl::InvalidArgumentError(absl::StrCat("a source of ", offered.fields_size(),
                                                   " fields: there are 1 to ", wire::kMaxTensors));
  }
  std::set<std::string> names;
  for (const v1::Field& field : offered.fields()) {
    FW_ASSIGN_OR_RETURN(source->fields.emplace_back(), ReadField(field));
    if (!names.insert(field.name()).second)
      return absl::InvalidArgumentError(absl::StrCat("two fields are named '", field.name(), "'"));
  }
  if (offered.classes_size() > kMaxClasses) {
    return absl::InvalidArgumentError(
        absl::StrCat("a source of ", offered.classes_size(), " classes: at most ", kMaxClasses));
  }
  source->classes.assign(offered.classes().begin(), offered.classes().end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Offer> ReadOffer(const v1::ProvideRequest& request, uint32_t user) {
  FW_RETURN_IF_ERROR(CheckName("client", request.client()));
  Offer offer;
  offer.user = user;
  offer.source.user = user;
  offer.source.name = request.name();
  offer.source.version = request.version();
  if (request.name().empty())
    return absl::InvalidArgumentError("no name under which it is to be served");
  FW_RETURN_IF_ERROR(CheckOwnName("name", request.name()));
  FW_RETURN_IF_ERROR(CheckOwnName("version", request.version()));
  FW_RETURN_IF_ERROR(CheckOwnName("digest", request.contents()));
  offer.source.contents = request.contents();
  offer.timeout_seconds = request.timeout_s() == 0 ? kDefaultTimeoutSeconds : request.timeout_s();
  const double most = request.has_op() ? kMaxOpTimeoutSeconds : kMaxTimeoutSeconds;
  if (!(offer.timeout_seconds > 0 && offer.timeout_seconds <= most)) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout_s is ", request.timeout_s(), ": up to ", most, " seconds"));
  }
  switch (request.kind_case()) {
    case v1::ProvideRequest::kSource:
      offer.kind = Offer::Kind::kSource;
      FW_RETURN_IF_ERROR(ReadSource(request.source(), &offer.source));
      offer.worker = request.source().worker();
      return offer;
    case v1::ProvideRequest::kOp:
      offer.kind = Offer::Kind::kOp;
      return offer;
    case v1::ProvideRequest::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("neither a source nor an op is offered");
}

}  // namespace feedwater::server
