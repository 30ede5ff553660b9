/* A plug-in with two ops on uint8 HWC images: `vignette` darkens towards the corners, as an old lens
 * does; `random_vignette` does so around a middle and with a strength that it draws. */
#include <feedwater/plugin.h>
#include <math.h>

enum { kStrength = 0, kRadius = 1 }; /* places in kParams */

/* A squared distance for each column, which all rows share. */
static const char* Plan(const feedwater_value* params, feedwater_plan* plan) {
  (void)params;
  /* The output comes as a copy of the input: the same image, darker. */
  plan->scratch_bytes = (uint64_t)plan->inputs[0].shape[1] * sizeof(float);
  return NULL;
}

/* Each value times 1 - strength * max(0, d - radius)^2, where d is the distance from the middle in
 * halves of the diagonal. Rounds to the nearest, halves up. */
static const char* Darken(feedwater_sample* sample, float strength, float radius, float middle_y,
                          float middle_x) {
  const feedwater_input* image = &sample->inputs[0];
  const int64_t height = image->spec.shape[0], width = image->spec.shape[1],
                channels = image->spec.shape[2];
  uint8_t* out = sample->output(sample, 0, &image->spec);
  if (out == NULL) return NULL;
  float* squared_x = sample->scratch(sample, (uint64_t)width * sizeof(float));
  if (squared_x == NULL) return NULL;

  const float half = 0.5f * sqrtf((float)(height * height + width * width));
  for (int64_t x = 0; x < width; ++x) {
    const float dx = ((float)x + 0.5f - middle_x * (float)width) / half;
    squared_x[x] = dx * dx;
  }
  const uint8_t* in = image->data;
  for (int64_t y = 0; y < height; ++y) {
    if (y % 256 == 0 && !sample->go_on(sample)) return NULL;
    const float dy = ((float)y + 0.5f - middle_y * (float)height) / half;
    for (int64_t x = 0; x < width; ++x) {
      const float beyond = fmaxf(0.0f, sqrtf(dy * dy + squared_x[x]) - radius);
      const float factor = fmaxf(0.0f, 1.0f - strength * beyond * beyond);
      for (int64_t c = 0; c < channels; ++c) {
        *out++ = (uint8_t)(factor * (float)*in++ + 0.5f);
      }
    }
  }
  return NULL;
}

static const char* Run(const feedwater_value* params, feedwater_sample* sample) {
  return Darken(sample, (float)params[kStrength].number, (float)params[kRadius].number, 0.5f, 0.5f);
}

static const char* RunRandom(const feedwater_value* params, feedwater_sample* sample) {
  /* In an order of their own statements: C leaves that of arguments open. */
  const float strength = (float)sample->uniform(sample, 0.0, params[kStrength].number);
  const float middle_y = (float)sample->uniform(sample, 0.25, 0.75);
  const float middle_x = (float)sample->uniform(sample, 0.25, 0.75);
  return Darken(sample, strength, (float)params[kRadius].number, middle_y, middle_x);
}

static const feedwater_port kIn = {
    .field = "image",
    .doc = "The image.",
    .dtypes = FEEDWATER_BIT(FEEDWATER_UINT8),
    .layouts = FEEDWATER_BIT(FEEDWATER_HWC),
};
static const feedwater_port kOut = {
    .doc = "The image, darker at its edge.",
    .dtypes = FEEDWATER_BIT(FEEDWATER_UINT8),
    .layouts = FEEDWATER_BIT(FEEDWATER_HWC),
};

static const feedwater_param kParams[] = {
    {.name = "strength",
     .doc = "How dark it gets: 0 is not at all. random_vignette draws from 0 up to it.",
     .kind = FEEDWATER_NUMBER,
     .default_text = "0.8",
     .low = 0,
     .high = 4},
    {.name = "radius",
     .doc = "Up to this distance from the middle nothing changes; 1 is a corner's.",
     .kind = FEEDWATER_NUMBER,
     .default_text = "0.2",
     .low = 0,
     .high = 1},
};

static const feedwater_op kOps[] = {
    {.name = "vignette",
     .version = "1",
     .summary = "Darkens an image towards its corners.",
     .cost = "About 5 ns a pixel, most of it a square root.",
     .example = "- vignette: {strength: 0.8}",
     .inputs = &kIn,
     .input_count = 1,
     .outputs = &kOut,
     .output_count = 1,
     .params = kParams,
     .param_count = 2,
     .plan = Plan,
     .run = Run},
    {.name = "random_vignette",
     .version = "1",
     .summary = "Darkens an image towards its edge, around a middle and with a strength drawn.",
     .cost = "As vignette.",
     .example = "- random_vignette: {strength: 1.5}",
     .flags = FEEDWATER_RANDOM,
     .inputs = &kIn,
     .input_count = 1,
     .outputs = &kOut,
     .output_count = 1,
     .params = kParams,
     .param_count = 2,
     .plan = Plan,
     .run = RunRandom},
};

static const feedwater_plugin_info kPlugin = {
    FEEDWATER_PLUGIN_SIZES,
    .ops = kOps,
    .op_count = sizeof(kOps) / sizeof(kOps[0]),
};

const feedwater_plugin_info* feedwater_plugin(void) { return &kPlugin; }
