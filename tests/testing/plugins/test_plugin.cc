// Plug-ins for tests: `crash_on` and `throw_on`, which do so on one label, and `leave_on`, which
// asks the kernel for a file. With one of the PLUGIN_... definitions a plug-in that cannot be
// loaded, and why is in its name.
#include <fcntl.h>
#include <feedwater/plugin.h>

#include <cstring>
#include <stdexcept>

namespace {

template <void (*kDo)()>
const char* CopyUnless(const feedwater_value* params, feedwater_sample* sample) {
  void* const out = sample->output(sample, 0, &sample->inputs[0].spec);
  if (out == nullptr) return nullptr;
  int64_t label = 0;
  std::memcpy(&label, sample->inputs[0].data, sizeof(label));
  if (label == params[0].integer) kDo();
  std::memcpy(out, &label, sizeof(label));
  return nullptr;
}

[[maybe_unused]] void Crash() {
  volatile uintptr_t nowhere = 8;
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}
[[maybe_unused]] void Throw() { throw std::runtime_error("it is the one"); }
[[maybe_unused]] void Leave() { (void)open("/etc/passwd", O_RDONLY); }

const feedwater_port kLabel = {"label", "A number.", FEEDWATER_BIT(FEEDWATER_INT64),
                               FEEDWATER_BIT(FEEDWATER_PLAIN)};
const feedwater_port kSame = {nullptr, "The same.", FEEDWATER_BIT(FEEDWATER_INT64),
                              FEEDWATER_BIT(FEEDWATER_PLAIN)};
#ifdef PLUGIN_BAD_DEFAULT
#define FW_DEFAULT "three"
#else
#define FW_DEFAULT "-1"
#endif
const feedwater_param kValue = {"value", "The label.", FEEDWATER_INTEGER, 0, nullptr, FW_DEFAULT, 0,
                                0};

#define FW_OP(name, text, example, run) \
  { name, "1", text, nullptr, example, 0, 1, 1, 1, &kLabel, &kSame, &kValue, nullptr, run }

#ifdef PLUGIN_BAD_EXAMPLE
#define FW_EXAMPLE "- crash_on: {label: 3}"
#else
#define FW_EXAMPLE "- crash_on: {value: 3}"
#endif

const feedwater_op kOps[] = {
#ifdef PLUGIN_TAKEN
    FW_OP("resize", "Has a name that is taken.", nullptr, CopyUnless<Throw>),
#else
    FW_OP("crash_on", "Dies of SIGSEGV on a label.", FW_EXAMPLE, CopyUnless<Crash>),
    FW_OP("throw_on", "Throws an exception on a label.", nullptr, CopyUnless<Throw>),
    FW_OP("leave_on", "Opens a file on a label.", nullptr, CopyUnless<Leave>),
#endif
};

#ifdef PLUGIN_START_FAILS
const char* Start() { return "there is no table"; }
#else
const char* Start() { return nullptr; }
#endif

#ifdef PLUGIN_OTHER_ABI
constexpr uint32_t kAbi = FEEDWATER_PLUGIN_ABI_VERSION + 6;
#else
constexpr uint32_t kAbi = FEEDWATER_PLUGIN_ABI_VERSION;
#endif

const feedwater_plugin_info kInfo = {kAbi,
                                     sizeof(feedwater_plugin_info),
                                     sizeof(feedwater_op),
                                     sizeof(feedwater_port),
                                     sizeof(feedwater_param),
                                     kOps,
                                     sizeof(kOps) / sizeof(kOps[0]),
                                     Start};

}  // namespace

#ifdef PLUGIN_NO_SYMBOL
FEEDWATER_PLUGIN_EXPORT const feedwater_plugin_info* another_plugin(void) { return &kInfo; }
#else
const feedwater_plugin_info* feedwater_plugin(void) { return &kInfo; }
#endif
