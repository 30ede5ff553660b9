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
#include "server/graph/joint_fields.h"
#include "server/graph/op.h"
#include "server/graph/op_file.h"
#include "server/graph/point_op.h"

namespace feedwater::server {

enum class Randomness { kNone, kPerSample, kPerBatch };

// What the planner can do with the op, from what its class is (op.h).
enum class Fusion { kNone, kDecode, kGeometry, kPoint, kPixel, kCombinator };

// An input or output. An empty list allows everything. Images (HWC, CHW) have 1 or 3 channels.
struct Port {
  std::string field;  // the name taken when the pipeline gives none
  std::vector<Layout> layouts;
  std::vector<DType> dtypes;
  std::string doc;
};

// What another library calls the op; or calls something that has no counterpart here, and which
// this op comes nearest to.
struct OtherName {
  std::string library, name;
  bool is_nearest = false;
};

struct OpEntry {
  static constexpr const char* kKind = "op";

  std::string name, summary, cost, example;
  std::string plugin, version;  // of a plug-in's op: its file, and what it calls the op's version
  Randomness randomness = Randomness::kNone;
  Fusion fusion = Fusion::kNone;
  bool is_batch_op = false;  // belongs in `batch: graph:`
  bool is_repeated = false;  // takes several fields like inputs[0] and writes as many
  bool is_joint = false;     // is_repeated, and takes what moves with an image: joint_fields.h
  bool is_free = false;      // takes any fields, and writes as many
  std::vector<Port> inputs, outputs;  // an output without a field name is named after its input
  std::vector<ParamInfo> params;
  std::vector<std::string> files;  // those of params that are files (op_file.h)
  std::vector<OtherName> other_names;

  // `node` holds the parameters without `in` and `out`; null when there are none. `files`: what was
  // read of the op's files; what is missing there was not read. InvalidArgument with place.
  std::function<absl::StatusOr<std::unique_ptr<Op>>(const YamlNode& node, const OpFiles& files)>
      create;
  std::function<absl::StatusOr<std::unique_ptr<BatchOp>>(const YamlNode& node,
                                                         const OpFiles& files)>
      create_batch;
  // Of a combinator (combinator.h), which has to know the names of its fields.
  std::function<absl::StatusOr<std::unique_ptr<Op>>(const YamlNode& node,
                                                    absl::Span<const std::string> in)>
      create_over;
  bool is_combinator() const { return create_over != nullptr; }
  // Whether it reads what strangers may have made for its libraries: the bytes of files, images and
  // audio alike. A plug-in's op may do so wherever it says that it takes them.
  bool DecodesFiles() const;
  // The parameters as they will be used, defaults included (but LaterParam's): "p=0.5;size=[224,
  // 224];". For the digest.
  std::function<absl::StatusOr<std::string>(const YamlNode& node, const OpFiles& files)> canonical;

  std::string InputText(size_t i) const;   // "uint8, HWC", "any dtype, HWC or CHW"
  std::string OutputText(size_t i) const;  // the same; "" where the parameters decide
};

// That the ops of a pipeline keep as tables, at most.
inline constexpr int64_t kMostTableBytes = 64 << 20;

// The op of these parameters for these fields. `tables`: those of the ops made before, to which its
// own are added. InvalidArgument: they are over kMostTableBytes. REQUIRES: entry.create.
absl::StatusOr<std::unique_ptr<Op>> MakeOp(const OpEntry& entry, const YamlNode& params,
                                           const OpFiles& files, absl::Span<const std::string> in,
                                           int64_t* tables);

// What point ops take.
inline const Port kColourImage = {.field = "image",
                                  .layouts = {Layout::kHWC},
                                  .dtypes = {DType::kUInt8},
                                  .doc = "The image, RGB or grey."};
inline const std::vector<Layout> kImageLayouts = {Layout::kHWC, Layout::kCHW};
const char* RandomnessText(Randomness randomness);  // "none", "per sample", "per batch"
const char* FusionText(Fusion fusion);              // "no", or with what
// "`ColorJitter` (torchvision); nearest to `hsv` (DALI)"; "" where no library has such a thing.
std::string OtherNamesText(const OpEntry& op);

// The ops that a library has under this name, however it is written (RandomColorAdjust,
// random_color_adjust); where there are none, those that come nearest to what has the name.
struct OpOfOtherName {
  const OpEntry* op;
  const OtherName* other;
  // "'RandomColorAdjust' is MindSpore's name of 'color_jitter'"
  std::string Text() const;
};
std::vector<OpOfOtherName> FindByOtherName(absl::string_view name);
// "unknown op 'resise', did you mean 'resize'? Known: ..."; of another library's name, the op.
std::string UnknownOp(absl::string_view name);

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
  OpSchema&& AnyFields() && { return entry_.is_free = true, std::move(*this); }
  OpSchema&& Repeated() && { return entry_.is_repeated = true, std::move(*this); }
  // Several fields that move together, the first one an image (joint_fields.h). REQUIRES: Params
  // derives from BoxRules.
  OpSchema&& Joint() && {
    entry_.is_repeated = entry_.is_joint = true;
    return std::move(*this)
        .template LaterParam<double>("min_visibility", &Params::min_visibility,
                                     "Boxes of which a smaller share is still in the picture are "
                                     "dropped, with their labels.",
                                     Range(0, 1))
        .template LaterParam<double>("min_area", &Params::min_area,
                                     "Boxes of fewer pixels are dropped, with their labels; those "
                                     "of none always are.",
                                     Range(0, 1e9));
  }
  OpSchema&& Randomness(server::Randomness kind) && {
    return entry_.randomness = kind, std::move(*this);
  }
  // What it costs beside the other ops of a pipeline, and how to pay less.
  OpSchema&& Cost(std::string text) && { return entry_.cost = std::move(text), std::move(*this); }
  OpSchema&& Example(std::string yaml) && {
    return entry_.example = std::move(yaml), std::move(*this);
  }
  // For people who come from another library, and for what they bring along.
  OpSchema&& AlsoKnownAs(const char* library, std::vector<std::string> names) && {
    for (std::string& name : names) entry_.other_names.push_back({library, std::move(name), false});
    return std::move(*this);
  }
  // Names of what does something else, without a counterpart.
  OpSchema&& NearestTo(const char* library, std::vector<std::string> names) && {
    for (std::string& name : names) entry_.other_names.push_back({library, std::move(name), true});
    return std::move(*this);
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

  // A file that the op is made from: op_file.h.
  OpSchema&& File(std::string name, OpFile Params::*field, std::string doc) && {
    entry_.files.push_back(name);
    // Opaque, since GCC 12 warns of members beyond the end where an op has no file.
    files_.emplace_back(name,
                        [field](const OpFile& file, Params* params) { params->*field = file; });
    return std::move(*this).Required(std::move(name), field, std::move(doc));
  }

  // C is an Op or a BatchOp made from Params. Where parameters depend on each other, C has
  // `static absl::Status Check(const Params&)`, whose message is given the op's place. A combinator
  // has `static absl::StatusOr<std::unique_ptr<Op>> Make(Params, absl::Span<const std::string>)`.
  template <typename C>
  OpEntry Create() && {
    const std::string what = absl::StrCat("op '", entry_.name, "'");
    entry_.params = schema_.params();
    constexpr bool kIsCombinator = requires(Params params) { C::Make(params, {}); };
    entry_.fusion = std::is_base_of_v<DecodeOp, C>     ? Fusion::kDecode
                    : std::is_base_of_v<GeometryOp, C> ? Fusion::kGeometry
                    : std::is_base_of_v<PointOp, C>    ? Fusion::kPoint
                    : std::is_base_of_v<PixelOp, C>    ? Fusion::kPixel
                    : kIsCombinator                    ? Fusion::kCombinator
                                                       : Fusion::kNone;
    auto read = [schema = std::move(schema_), what, members = std::move(files_)](
                    const YamlNode& node, const OpFiles& files) -> absl::StatusOr<Params> {
      FW_ASSIGN_OR_RETURN(Params params, schema.Read(node, what));
      for (const auto& [name, set] : members) {
        if (const auto file = files.find(name); file != files.end()) set(file->second, &params);
      }
      if constexpr (requires { C::Check(params); }) {
        const absl::Status checked = C::Check(params);
        if (!checked.ok()) return node.Error(absl::StrCat(what, ": ", checked.message()));
      }
      return params;
    };
    entry_.canonical = [read, texts = std::move(texts_)](
                           const YamlNode& node,
                           const OpFiles& files) -> absl::StatusOr<std::string> {
      FW_ASSIGN_OR_RETURN(const Params params, read(node, files));
      std::string text;
      for (const auto& print : texts) absl::StrAppend(&text, print(params));
      return text;
    };
    if constexpr (std::is_base_of_v<BatchOp, C>) {
      entry_.is_batch_op = true;
      entry_.create_batch = [read](
                                const YamlNode& node,
                                const OpFiles& files) -> absl::StatusOr<std::unique_ptr<BatchOp>> {
        FW_ASSIGN_OR_RETURN(Params params, read(node, files));
        return std::unique_ptr<BatchOp>(new C(std::move(params)));
      };
    } else if constexpr (kIsCombinator) {
      entry_.create_over =
          [read](const YamlNode& node,
                 absl::Span<const std::string> in) -> absl::StatusOr<std::unique_ptr<Op>> {
        FW_ASSIGN_OR_RETURN(Params params, read(node, {}));
        return C::Make(std::move(params), in);
      };
      entry_.create = [over = entry_.create_over, field = entry_.inputs[0].field](
                          const YamlNode& node, const OpFiles&) { return over(node, {field}); };
    } else {
      entry_.create = [read](const YamlNode& node,
                             const OpFiles& files) -> absl::StatusOr<std::unique_ptr<Op>> {
        FW_ASSIGN_OR_RETURN(Params params, read(node, files));
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
  std::vector<std::pair<std::string, std::function<void(const OpFile&, Params*)>>> files_;
};

}  // namespace feedwater::server
