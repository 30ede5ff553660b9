// How an op is declared: once, in its file, with everything that reading YAML, planning, `describe
// op`, the JSON Schema and the reference pages need. OpEntry is what the registry keeps;
// Registry<OpEntry>::Get() lists every op.
//
//   const OpRegistrar kRegistrar(
//       OpSchema<Params>("center_crop")
//           .Summary("Cuts a window out of the middle.")
//           .Input({.field = "image", .layouts = kImageLayouts, .dtypes = {}, .doc = "The image."})
//           .OutputLikeInput()
//           .Required("size", &Params::size, "Height and width of the window.")
//           .Cost("A copy when it runs alone, nothing when it is fused.")
//           .Example("- center_crop: {size: 224}")
//           .Create<CenterCrop>());
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/registry.h"
#include "server/base/schema.h"
#include "server/graph/op.h"

namespace feedwater::server {

enum class Randomness { kNone, kPerSample, kPerBatch };

// What the planner can do with the op, from what its class is (op.h).
enum class Fusion { kNone, kDecode, kGeometry, kPixel };

// An input or output. An empty list allows everything. Images (HWC, CHW) have 1 or 3 channels.
struct Port {
  std::string field;  // the name taken when the pipeline gives none
  std::vector<Layout> layouts;
  std::vector<DType> dtypes;
  std::string doc;
};

struct OpEntry {
  static constexpr const char* kKind = "op";

  std::string name, summary, cost, example;
  Randomness randomness = Randomness::kNone;
  Fusion fusion = Fusion::kNone;
  bool is_batch_op = false;           // belongs in `batch: graph:`
  bool is_repeated = false;           // takes several fields like inputs[0] and writes as many
  std::vector<Port> inputs, outputs;  // an output without a field name is named after its input
  std::vector<ParamInfo> params;

  // `node` holds the parameters without `in` and `out`; null when there are none. InvalidArgument
  // with place.
  std::function<absl::StatusOr<std::unique_ptr<Op>>(const YamlNode& node)> create;
  std::function<absl::StatusOr<std::unique_ptr<BatchOp>>(const YamlNode& node)> create_batch;
  // The parameters as they will be used, defaults included (but LaterParam's): "p=0.5;size=[224,
  // 224];". For the digest.
  std::function<absl::StatusOr<std::string>(const YamlNode& node)> canonical;

  std::string InputText(size_t i) const;   // "uint8, HWC", "any dtype, HWC or CHW"
  std::string OutputText(size_t i) const;  // the same; "" where the parameters decide
};

inline const std::vector<Layout> kImageLayouts = {Layout::kHWC, Layout::kCHW};
const char* RandomnessText(Randomness randomness);  // "none", "per sample", "per batch"
const char* FusionText(Fusion fusion);              // "no", or with what

struct OpRegistrar {
  explicit OpRegistrar(OpEntry entry) {
    std::string name = entry.name;
    Registry<OpEntry>::Get().Add(std::move(name), std::move(entry));
  }
};

template <typename Params>
class OpSchema {
 public:
  explicit OpSchema(std::string name) { entry_.name = std::move(name); }

  OpSchema&& Summary(std::string text) && {
    return entry_.summary = std::move(text), std::move(*this);
  }
  OpSchema&& Input(Port port) && {
    return entry_.inputs.push_back(std::move(port)), std::move(*this);
  }
  OpSchema&& Output(Port port) && {
    return entry_.outputs.push_back(std::move(port)), std::move(*this);
  }
  // One output for each input so far, of the same name.
  OpSchema&& OutputLikeInput() && {
    for (const Port& input : entry_.inputs) {
      entry_.outputs.push_back(input);
      entry_.outputs.back().field.clear();
    }
    return std::move(*this);
  }
  OpSchema&& Repeated() && { return entry_.is_repeated = true, std::move(*this); }
  OpSchema&& Randomness(server::Randomness kind) && {
    return entry_.randomness = kind, std::move(*this);
  }
  // What it costs beside the other ops of a pipeline, and how to pay less.
  OpSchema&& Cost(std::string text) && { return entry_.cost = std::move(text), std::move(*this); }
  OpSchema&& Example(std::string yaml) && {
    return entry_.example = std::move(yaml), std::move(*this);
  }

  template <typename T>
  OpSchema&& Param(std::string name, T Params::*field, std::string doc, Constraint rule = {}) && {
    AddText(name, field);
    std::move(schema_).Param(std::move(name), field, std::move(doc), std::move(rule));
    return std::move(*this);
  }
  // A parameter that came to the op after pipelines' digests had been kept (in saved cursors, as
  // names of caches): they stay what they were as long as it has its default.
  template <typename T>
  OpSchema&& LaterParam(std::string name, T Params::*field, std::string doc,
                        Constraint rule = {}) && {
    AddText(name, field, /*unless_default=*/true);
    std::move(schema_).Param(std::move(name), field, std::move(doc), std::move(rule));
    return std::move(*this);
  }
  template <typename T>
  OpSchema&& Required(std::string name, T Params::*field, std::string doc,
                      Constraint rule = {}) && {
    AddText(name, field);
    std::move(schema_).Required(std::move(name), field, std::move(doc), std::move(rule));
    return std::move(*this);
  }

  // C is an Op or a BatchOp made from Params. Where parameters depend on each other, C has
  // `static absl::Status Check(const Params&)`, whose message is given the op's place.
  template <typename C>
  OpEntry Create() && {
    const std::string what = absl::StrCat("op '", entry_.name, "'");
    entry_.params = schema_.params();
    entry_.fusion = std::is_base_of_v<DecodeOp, C>     ? Fusion::kDecode
                    : std::is_base_of_v<GeometryOp, C> ? Fusion::kGeometry
                    : std::is_base_of_v<PixelOp, C>    ? Fusion::kPixel
                                                       : Fusion::kNone;
    auto read = [schema = std::move(schema_),
                 what](const YamlNode& node) -> absl::StatusOr<Params> {
      FW_ASSIGN_OR_RETURN(Params params, schema.Read(node, what));
      if constexpr (requires { C::Check(params); }) {
        const absl::Status checked = C::Check(params);
        if (!checked.ok()) return node.Error(absl::StrCat(what, ": ", checked.message()));
      }
      return params;
    };
    entry_.canonical =
        [read, texts = std::move(texts_)](const YamlNode& node) -> absl::StatusOr<std::string> {
      FW_ASSIGN_OR_RETURN(const Params params, read(node));
      std::string text;
      for (const auto& print : texts) absl::StrAppend(&text, print(params));
      return text;
    };
    if constexpr (std::is_base_of_v<BatchOp, C>) {
      entry_.is_batch_op = true;
      entry_.create_batch =
          [read](const YamlNode& node) -> absl::StatusOr<std::unique_ptr<BatchOp>> {
        FW_ASSIGN_OR_RETURN(Params params, read(node));
        return std::unique_ptr<BatchOp>(new C(std::move(params)));
      };
    } else {
      entry_.create = [read](const YamlNode& node) -> absl::StatusOr<std::unique_ptr<Op>> {
        FW_ASSIGN_OR_RETURN(Params params, read(node));
        return std::unique_ptr<Op>(new C(std::move(params)));
      };
    }
    return std::move(entry_);
  }

 private:
  using Print = std::function<std::string(const Params&)>;

  template <typename T>
  void AddText(const std::string& name, T Params::*field, bool unless_default = false) {
    texts_.push_back([=](const Params& params) -> std::string {
      const std::string value = ParamType<T>::Text(params.*field);
      if (unless_default && value == ParamType<T>::Text(Params().*field)) return "";
      return absl::StrCat(name, "=", value, ";");
    });
  }

  OpEntry entry_;
  Schema<Params> schema_;
  std::vector<Print> texts_;
};

}  // namespace feedwater::server
