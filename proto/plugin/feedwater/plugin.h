/* The interface of Feedwater's plug-ins: shared libraries of an operator's that offer ops beside
 * the built-in ones. Plain C, so that compiler and standard library are the plug-in's own business.
 *
 *   static const char* Invert(const feedwater_value* params, feedwater_sample* sample) {
 *     uint8_t* out = sample->output(sample, 0, &sample->inputs[0].spec);
 *     if (out == NULL) return NULL;                       // refused, and Feedwater knows why
 *     const uint8_t* in = sample->inputs[0].data;
 *     for (uint64_t i = 0; i < sample->inputs[0].bytes; ++i) out[i] = 255 - in[i];
 *     return NULL;
 *   }
 *   static const feedwater_port kImage = {.field = "image", .doc = "The image.",
 *                                         .dtypes = FEEDWATER_BIT(FEEDWATER_UINT8)};
 *   static const feedwater_op kOps[] = {{.name = "invert", .version = "1",
 *                                        .summary = "Turns an image into its negative.",
 *                                        .inputs = &kImage, .input_count = 1,
 *                                        .outputs = &kImage, .output_count = 1, .run = Invert}};
 *   static const feedwater_plugin_info kPlugin = {FEEDWATER_PLUGIN_SIZES, kOps, 1, NULL};
 *   FEEDWATER_PLUGIN_EXPORT const feedwater_plugin_info* feedwater_plugin(void) { return &kPlugin;
 * }
 *
 * Threads: `plan` and `run` are called by many threads at the same time, also of one op. They keep
 * nothing between calls and change nothing that they do not own; what they are given belongs to the
 * calling thread until they return, and is used by no other thread.
 *
 * Purity: what `run` writes depends on its inputs, its parameters and the draws alone, never on
 * time, addresses, threads or earlier samples. Feedwater keeps results for later epochs and gives
 * the same batch again after a restart; an op that is not pure breaks both. When an op begins to
 * write other bytes, its `version` changes.
 *
 * Memory: whatever is declared is copied when the plug-in is loaded. Texts are UTF-8, end with a
 * zero and have at most 4 KiB. Nobody frees anything of the other side. No exception may leave a
 * function; one that does is an error of the sample at best.
 *
 * Versions: FEEDWATER_PLUGIN_ABI_VERSION changes when something here changes its meaning, and
 * plug-ins of another one are refused. What is added stands at the end of a struct: each side is
 * told the other's sizes. Members that are left out are zero, and zero means "none". */
/* NOLINTBEGIN(readability-identifier-naming): names of C */
#ifndef FEEDWATER_PLUGIN_H_
#define FEEDWATER_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#define FEEDWATER_PLUGIN_ABI_VERSION 1u
#define FEEDWATER_MAX_AXES 8

#ifdef __cplusplus
#define FEEDWATER_PLUGIN_EXPORT extern "C" __attribute__((visibility("default")))
extern "C" {
#else
#define FEEDWATER_PLUGIN_EXPORT __attribute__((visibility("default")))
#endif

/* Element types. float16 and bfloat16 come as their 16 bits. */
enum {
  FEEDWATER_UINT8 = 1,
  FEEDWATER_INT8 = 2,
  FEEDWATER_BOOL = 3,
  FEEDWATER_INT16 = 4,
  FEEDWATER_UINT16 = 5,
  FEEDWATER_INT32 = 6,
  FEEDWATER_INT64 = 7,
  FEEDWATER_FLOAT16 = 8,
  FEEDWATER_BFLOAT16 = 9,
  FEEDWATER_FLOAT32 = 10,
  FEEDWATER_FLOAT64 = 11
};

/* How the axes are to be read. Images (HWC, CHW) have 1 or 3 channels. ENCODED: the bytes of a
 * compressed image file, uint8 with one axis. */
enum { FEEDWATER_PLAIN = 0, FEEDWATER_HWC = 1, FEEDWATER_CHW = 2, FEEDWATER_ENCODED = 3 };

/* Of a port's sets of dtypes and layouts. */
#define FEEDWATER_BIT(number) (1u << (number))

/* What a field looks like. Values lie one after the other, the last axis fastest. */
typedef struct feedwater_spec {
  int32_t dtype, layout;
  uint32_t axes;
  uint32_t reserved;
  int64_t shape[FEEDWATER_MAX_AXES]; /* -1: only the sample knows (in `plan` alone) */
} feedwater_spec;

/* --- what a plug-in declares --- */

/* A field that an op reads or writes. */
typedef struct feedwater_port {
  const char* field; /* the name that is taken where the pipeline gives none; of an output: NULL is
                        the name of the input at the same place */
  const char* doc;   /* for people; ends with a full stop */
  uint32_t dtypes;   /* a set, FEEDWATER_BIT(FEEDWATER_UINT8) | ...; 0: any */
  uint32_t layouts;  /* a set; 0: any */
} feedwater_port;

enum {
  FEEDWATER_NUMBER = 1,  /* value.number */
  FEEDWATER_INTEGER = 2, /* value.integer */
  FEEDWATER_TEXT = 3,    /* value.text */
  FEEDWATER_LIST = 4,    /* of numbers: value.list, value.length */
  FEEDWATER_TRUTH = 5    /* value.integer, 0 or 1 */
};

/* A parameter. Values that the declaration does not allow never reach the op. */
typedef struct feedwater_param {
  const char* name; /* lower case letters, digits and '_'; not in, out or draws_as */
  const char* doc;  /* for people; ends with a full stop */
  uint32_t kind;
  uint32_t choice_count;
  const char* const* choices; /* of a TEXT: the words that it may be */
  const char* default_text; /* as a pipeline file has it: "0.5", "[1, 2]", "\"\"", "true"; NULL: the
                               parameter is required */
  double low, high;         /* bounds of a NUMBER, an INTEGER, or of every number of a LIST, both
                               included; HUGE_VAL is none. 0 and 0: no bounds */
} feedwater_param;

/* A parameter's value for one entry of a pipeline; valid as long as the call. */
typedef struct feedwater_value {
  double number;
  int64_t integer;
  const char* text; /* never NULL */
  const double* list;
  uint64_t length; /* of `list`, or of `text` in bytes */
} feedwater_value;

/* What an op says before the first sample. `plan` is also asked for single samples, with sizes all
 * known, so that their memory is counted before it is taken: then it says what `run` will do. */
typedef struct feedwater_output {
  feedwater_spec spec; /* comes as a copy of the input at the same place, or of the last one */
  uint64_t most_bytes; /* of an output that is no image and has an axis of -1: as many bytes as
                          `run` ever writes; 0: 1 MiB */
} feedwater_output;

typedef struct feedwater_plan {
  uint32_t struct_size;
  uint32_t input_count, output_count;
  uint32_t reserved;
  const feedwater_spec* inputs; /* of the dtypes and layouts that the ports declare */
  feedwater_output* outputs;    /* to be filled in */
  uint64_t scratch_bytes;       /* to be filled in: as many as `run` asks for at once, for inputs of
                                   these sizes; not looked at where one is -1 */
  char* message;                /* room of message_bytes for a text that is returned */
  uint64_t message_bytes;
} feedwater_plan;

typedef struct feedwater_input {
  feedwater_spec spec;
  const void* data; /* aligned to its elements; not to be written */
  uint64_t bytes;
} feedwater_input;

/* One sample. When a function refuses (NULL, or 0 of `go_on`), `run` returns NULL at once:
 * Feedwater knows the reason. */
typedef struct feedwater_sample feedwater_sample;
struct feedwater_sample {
  uint32_t struct_size;
  uint32_t input_count, output_count;
  uint32_t reserved;
  const feedwater_input* inputs;

  /* Memory for output `i`, which will look like `spec`: as `plan` said, each -1 settled. Once for
   * each output; all of it has to be written. Aligned to its elements. */
  void* (*output)(feedwater_sample* sample, uint32_t i, const feedwater_spec* spec);
  /* Memory until `run` returns or asks again, aligned to 64; at most plan's scratch_bytes. */
  void* (*scratch)(feedwater_sample* sample, uint64_t bytes);

  /* Draws, for ops with FEEDWATER_RANDOM: the same for the same seed, epoch, record and op. */
  uint32_t (*next)(feedwater_sample* sample); /* all 32-bit words alike likely */
  double (*uniform)(feedwater_sample* sample, double low, double high); /* low <= x < high */
  int64_t (*below)(feedwater_sample* sample, int64_t n);                /* 0 <= x < n; n >= 1 */
  double (*normal)(feedwater_sample* sample);                           /* mean 0, deviation 1 */

  /* To be asked a few times a second by ops that take long; 0: the sample has taken too long, or
   * nobody wants it any more. */
  int (*go_on)(feedwater_sample* sample);

  char* message; /* room of message_bytes for a text that is returned */
  uint64_t message_bytes;
};

enum {
  FEEDWATER_RANDOM = 1u,  /* draws for each sample */
  FEEDWATER_REPEATED = 2u /* takes several fields like inputs[0] and writes as many, in one call:
                             input_count and output_count are 1 */
};

/* An op on single samples. `params` are the values in the order of the declaration. */
typedef struct feedwater_op {
  const char* name;    /* lower case letters, digits and '_' */
  const char* version; /* another one whenever `run` writes other bytes for the same sample: states
                          and caches of the old one are then refused */
  const char* summary; /* for people; ends with a full stop */
  const char* cost;    /* what it costs beside other ops, for people; may be NULL */
  const char* example; /* an entry of `graph:`, "- invert: {in: image}"; may be NULL */
  uint32_t flags;      /* FEEDWATER_RANDOM | FEEDWATER_REPEATED */
  uint32_t input_count, output_count; /* from 1 to 16 */
  uint32_t param_count;               /* up to 64 */
  const feedwater_port* inputs;
  const feedwater_port* outputs;
  const feedwater_param* params;
  /* NULL: good; or what does not fit, to be read behind the op's name ("takes squares alone").
   * A `plan` of NULL: each output looks like the input at the same place. */
  const char* (*plan)(const feedwater_value* params, feedwater_plan* plan);
  /* NULL: good; or what is wrong with this sample. The text is copied at once. */
  const char* (*run)(const feedwater_value* params, feedwater_sample* sample);
} feedwater_op;

/* All that a plug-in offers. */
typedef struct feedwater_plugin_info {
  uint32_t abi_version; /* always first */
  uint32_t info_size, op_size, port_size, param_size;
  const feedwater_op* ops;
  uint32_t op_count; /* from 1 to 256 */
  /* Called once when the plug-in is loaded, in the daemon and in each of its decoder processes,
   * where `run` can reach no file any more: tables, look-ups of the CPU. NULL: nothing to do. The
   * result as `plan`'s. */
  const char* (*start)(void);
} feedwater_plugin_info;

#define FEEDWATER_PLUGIN_SIZES                                           \
  FEEDWATER_PLUGIN_ABI_VERSION, (uint32_t)sizeof(feedwater_plugin_info), \
      (uint32_t)sizeof(feedwater_op), (uint32_t)sizeof(feedwater_port),  \
      (uint32_t)sizeof(feedwater_param)

/* The one symbol that a plug-in exports. */
FEEDWATER_PLUGIN_EXPORT const feedwater_plugin_info* feedwater_plugin(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FEEDWATER_PLUGIN_H_ */
/* NOLINTEND(readability-identifier-naming) */
