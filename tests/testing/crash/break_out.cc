// An op that tries to reach the world on one value: what code that has taken a decoder over would
// try. Linked into tools/crashing_feedwaterd and its decoder only, never into the product.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  int64_t value = -1;
  std::string how = "open";
};

// True when it got through.
bool Try(const std::string& how) {
  if (how == "open") return open("/etc/passwd", O_RDONLY) >= 0;
  if (how == "socket") return socket(AF_INET, SOCK_STREAM, 0) >= 0;
  if (how == "fork") return fork() >= 0;
  if (how == "ptrace") return ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0;
  if (how == "kill") return kill(getppid(), 0) == 0;
  if (how == "code") {
    return mmap(nullptr, 4096, PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
           MAP_FAILED;
  }
  char* const none[] = {nullptr};
  return execve("/bin/true", none, none) == 0;
}

class BreakOut : public Op {
 public:
  explicit BreakOut(const Params& params) : params_(params) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    return Specs{inputs[0]};
  }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, input.spec));
    *output.as<int64_t>() = *input.as<int64_t>();
    if (*output.as<int64_t>() == params_.value)
      *output.as<int64_t>() = Try(params_.how) ? 1'000'001 : 1'000'000;
    return absl::OkStatus();
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(OpSchema<Params>("break_out")
                                 .Summary("Makes a system call when the field has this value.")
                                 .Input({.field = "label",
                                         .layouts = {Layout::kPlain},
                                         .dtypes = {DType::kInt64},
                                         .doc = "A number."})
                                 .OutputLikeInput()
                                 .Param("value", &Params::value, "The value.")
                                 .Param("how", &Params::how,
                                        "open, socket, fork, ptrace, kill, code or execve.")
                                 .Cost("Nothing, or everything.")
                                 .Example("- break_out: {in: label, value: 3}")
                                 .Create<BreakOut>());

}  // namespace
}  // namespace feedwater::server
