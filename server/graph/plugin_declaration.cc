#include "server/graph/plugin_declaration.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/graph/op_spec.h"
#include "server/graph/plugin_op.h"

namespace feedwater::server {
namespace {

constexpr uint32_t kMaxPluginOps = 256, kMaxPluginParams = 64, kMaxStructBytes = 4096;
constexpr uint32_t kDTypes = ((1u << (FEEDWATER_FLOAT64 + 1)) - 1) & ~1u;
constexpr uint32_t kLayouts = (1u << (FEEDWATER_ENCODED + 1)) - 1;

static_assert(static_cast<int>(DType::kFloat64) == FEEDWATER_FLOAT64);
static_assert(static_cast<int>(Layout::kEncoded) == FEEDWATER_ENCODED);
// The sizes of version 1, below which no plug-in can be: members are only added.
constexpr uint32_t kInfoBytes = 48, kOpBytes = 96, kPortBytes = 24, kParamBytes = 56;
static_assert(sizeof(feedwater_plugin_info) >= kInfoBytes && sizeof(feedwater_op) >= kOpBytes &&
              sizeof(feedwater_port) >= kPortBytes && sizeof(feedwater_param) >= kParamBytes);

// A struct of `size` bytes at `from` as this program knows it: what the plug-in does not have is
// zero. Members that this program does not have must be.
template <typename T>
absl::StatusOr<T> Known(const char* from, uint32_t size) {
  T known{};
  std::memcpy(&known, from, std::min<size_t>(size, sizeof(T)));
  const bool uses_more = std::any_of(from + std::min<size_t>(size, sizeof(T)), from + size,
                                     [](char byte) { return byte != 0; });
  if (uses_more)
    return absl::InvalidArgumentError(
        "uses members that this Feedwater does not have: it was built with a newer "
        "feedwater/plugin.h");
  return known;
}

// Item i of an array of structs of this size.
template <typename T>
absl::StatusOr<T> Item(const T* array, uint32_t size, uint32_t i) {
  return Known<T>(reinterpret_cast<const char*>(array) + static_cast<size_t>(i) * size, size);
}

absl::Status CheckCount(const void* array, uint32_t count, uint32_t least, uint32_t most,
                        absl::string_view what) {
  if (count < least || count > most)
    return absl::InvalidArgumentError(
        absl::StrCat("has ", count, " ", what, "; there can be ", least, " to ", most));
  if (count > 0 && array == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("its ", what, " are a null pointer"));
  return absl::OkStatus();
}

absl::StatusOr<Port> ReadPort(const feedwater_port& declared, bool is_input) {
  Port port;
  if (declared.field != nullptr || is_input) {
    YamlNode name;
    name.kind = YamlNode::Kind::kScalar;
    FW_ASSIGN_OR_RETURN(name.scalar, PluginText(declared.field, "`field`"));
    const absl::Status good = CheckFieldName(name);
    // Without the place, which there is none of.
    if (!good.ok() || IsOwnField(name.scalar)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", Printable(name.scalar), "' is no name for a field that is read or written"));
    }
    port.field = name.scalar;
  }
  FW_ASSIGN_OR_RETURN(port.doc, PluginText(declared.doc, "`doc`"));
  if ((declared.dtypes & ~kDTypes) != 0 || (declared.layouts & ~kLayouts) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the sets dtypes = ", declared.dtypes,
                                                   " and layouts = ", declared.layouts,
                                                   " name what there is not"));
  }
  for (int bit = FEEDWATER_UINT8; bit <= FEEDWATER_FLOAT64; ++bit) {
    if (declared.dtypes & FEEDWATER_BIT(bit)) port.dtypes.push_back(static_cast<DType>(bit));
  }
  for (int bit = FEEDWATER_PLAIN; bit <= FEEDWATER_ENCODED; ++bit) {
    if (declared.layouts & FEEDWATER_BIT(bit)) port.layouts.push_back(static_cast<Layout>(bit));
  }
  return port;
}

absl::Status ReadPorts(const feedwater_plugin_info& info, const feedwater_op& declared,
                       PluginOpDeclaration* op) {
  const auto read = [&](const feedwater_port* ports, uint32_t count, bool is_input,
                        std::vector<Port>* into) -> absl::Status {
    const char* const what = is_input ? "inputs" : "outputs";
    FW_RETURN_IF_ERROR(CheckCount(ports, count, 1, kMaxPluginPorts, what));
    for (uint32_t i = 0; i < count; ++i) {
      absl::StatusOr<Port> port = [&]() -> absl::StatusOr<Port> {
        FW_ASSIGN_OR_RETURN(const feedwater_port one, Item(ports, info.port_size, i));
        return ReadPort(one, is_input);
      }();
      if (!port.ok())
        return Annotate(port.status(), absl::StrCat("item ", i + 1, " of its ", what));
      into->push_back(*std::move(port));
    }
    return absl::OkStatus();
  };
  FW_RETURN_IF_ERROR(read(declared.inputs, declared.input_count, true, &op->inputs));
  FW_RETURN_IF_ERROR(read(declared.outputs, declared.output_count, false, &op->outputs));
  if (op->is_repeated && (op->inputs.size() != 1 || op->outputs.size() != 1))
    return absl::InvalidArgumentError(
        "is FEEDWATER_REPEATED and has more than one input or output");
  if (op->is_repeated && !op->outputs[0].field.empty())
    return absl::InvalidArgumentError(
        "is FEEDWATER_REPEATED and names its output, of which there may be several");
  for (size_t i = op->inputs.size(); i < op->outputs.size(); ++i) {
    if (op->outputs[i].field.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "output ", i + 1, " needs a `field`: there is no input that it could be named after"));
    }
  }
  if (declared.plan == nullptr && op->outputs.size() > op->inputs.size())
    return absl::InvalidArgumentError("needs a `plan`: it has more outputs than inputs");
  return absl::OkStatus();
}

absl::Status ReadParams(const feedwater_plugin_info& info, const feedwater_op& declared,
                        PluginOpDeclaration* op) {
  FW_RETURN_IF_ERROR(
      CheckCount(declared.params, declared.param_count, 0, kMaxPluginParams, "parameters"));
  for (uint32_t i = 0; i < declared.param_count; ++i) {
    FW_ASSIGN_OR_RETURN(const feedwater_param one, Item(declared.params, info.param_size, i));
    FW_ASSIGN_OR_RETURN(PluginParam param, PluginParam::Create(one));
    for (const PluginParam& other : op->params) {
      if (other.info().name == param.info().name)
        return absl::InvalidArgumentError(
            absl::StrCat("declares parameter '", param.info().name, "' twice"));
    }
    op->params.push_back(std::move(param));
  }
  return absl::OkStatus();
}

absl::Status ReadOp(const feedwater_plugin_info& info, const feedwater_op& declared,
                    PluginOpDeclaration* op) {
  FW_ASSIGN_OR_RETURN(op->version, PluginText(declared.version, "`version`"));
  FW_ASSIGN_OR_RETURN(op->summary, PluginText(declared.summary, "`summary`"));
  op->cost = "Not said.";
  if (declared.cost != nullptr) {
    FW_ASSIGN_OR_RETURN(op->cost, PluginText(declared.cost, "`cost`"));
  }
  op->example = absl::StrCat("- ", op->name);
  if (declared.example != nullptr) {
    FW_ASSIGN_OR_RETURN(op->example, PluginText(declared.example, "`example`"));
  }
  if ((declared.flags & ~uint32_t{FEEDWATER_RANDOM | FEEDWATER_REPEATED}) != 0)
    return absl::InvalidArgumentError(absl::StrCat("there are no flags ", declared.flags));
  op->is_random = (declared.flags & FEEDWATER_RANDOM) != 0;
  op->is_repeated = (declared.flags & FEEDWATER_REPEATED) != 0;
  op->plan = declared.plan;
  op->run = declared.run;
  if (op->run == nullptr) return absl::InvalidArgumentError("`run` is a null pointer");
  FW_RETURN_IF_ERROR(ReadPorts(info, declared, op));
  return ReadParams(info, declared, op);
}

}  // namespace

absl::Status CheckPluginAbi(const feedwater_plugin_info* info) {
  if (info == nullptr) return absl::InvalidArgumentError("feedwater_plugin() gave a null pointer");
  if (info->abi_version != FEEDWATER_PLUGIN_ABI_VERSION) {
    return absl::InvalidArgumentError(absl::StrCat(
        "was built for version ", info->abi_version,
        " of the plug-in interface, and this Feedwater has version ", FEEDWATER_PLUGIN_ABI_VERSION,
        "; cure: build it against this Feedwater's feedwater/plugin.h"));
  }
  const auto check = [](absl::string_view what, uint32_t size, uint32_t least) -> absl::Status {
    if (size >= least && size <= kMaxStructBytes && size % sizeof(void*) == 0)
      return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "says that its ", what, " has ", size, " bytes, and version ", FEEDWATER_PLUGIN_ABI_VERSION,
        " has ", least,
        " or more; cure: begin feedwater_plugin_info with FEEDWATER_PLUGIN_SIZES, and build it for "
        "this kind of machine"));
  };
  FW_RETURN_IF_ERROR(check("feedwater_plugin_info", info->info_size, kInfoBytes));
  FW_RETURN_IF_ERROR(check("feedwater_op", info->op_size, kOpBytes));
  FW_RETURN_IF_ERROR(check("feedwater_port", info->port_size, kPortBytes));
  return check("feedwater_param", info->param_size, kParamBytes);
}

absl::StatusOr<std::vector<PluginOpDeclaration>> ReadPluginOps(const feedwater_plugin_info& info) {
  FW_ASSIGN_OR_RETURN(const feedwater_plugin_info known, Item(&info, info.info_size, 0));
  FW_RETURN_IF_ERROR(CheckCount(known.ops, known.op_count, 1, kMaxPluginOps, "ops"));
  std::vector<PluginOpDeclaration> ops;
  for (uint32_t i = 0; i < known.op_count; ++i) {
    FW_ASSIGN_OR_RETURN(const feedwater_op declared, Item(known.ops, known.op_size, i));
    PluginOpDeclaration op;
    absl::StatusOr<std::string> name =
        PluginName(declared.name, absl::StrCat("the name of op ", i + 1));
    if (!name.ok()) return name.status();
    op.name = *std::move(name);
    FW_RETURN_IF_ERROR(Annotate(ReadOp(known, declared, &op), absl::StrCat("op '", op.name, "'")));
    for (const PluginOpDeclaration& other : ops) {
      if (other.name == op.name)
        return absl::InvalidArgumentError(absl::StrCat("offers op '", op.name, "' twice"));
    }
    ops.push_back(std::move(op));
  }
  return ops;
}

}  // namespace feedwater::server
