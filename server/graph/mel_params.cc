#include "server/graph/mel_params.h"

#include <algorithm>

namespace feedwater::server {

absl::StatusOr<SpectrogramSettings> SettingsOf(const MelParams& params) {
  const int64_t win_length = params.win_length.value_or(params.n_fft);
  if (win_length > params.n_fft) {
    return absl::InvalidArgumentError(
        absl::StrCat("win_length ", win_length, " is over n_fft ", params.n_fft));
  }
  // torchaudio's bins end at the whole number below half of the rate.
  const double half = static_cast<double>(params.sample_rate / 2);
  const double f_max = params.f_max.value_or(half);
  if (f_max > static_cast<double>(params.sample_rate) / 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "f_max ", f_max, " is over half of sample_rate, ",
        static_cast<double>(params.sample_rate) / 2, ": the audio holds nothing above that"));
  }
  if (!(params.f_min < f_max))
    return absl::InvalidArgumentError(
        absl::StrCat("f_min ", params.f_min, " is not below f_max ", f_max));
  if (params.power != 1 && params.power != 2)
    return absl::InvalidArgumentError(absl::StrCat("power is 1 or 2, not ", params.power));
  if (params.n_mels > params.n_fft / 2 + 1) {
    return absl::InvalidArgumentError(absl::StrCat("n_mels ", params.n_mels, " is over the ",
                                                   params.n_fft / 2 + 1, " frequencies that n_fft ",
                                                   params.n_fft, " gives"));
  }
  SpectrogramSettings settings;
  settings.n_fft = static_cast<int>(params.n_fft);
  settings.win_length = static_cast<int>(win_length);
  // torchaudio's default is win_length // 2.
  settings.hop_length =
      static_cast<int>(params.hop_length.value_or(std::max<int64_t>(1, win_length / 2)));
  settings.center = params.center;
  settings.padding = params.pad_mode == "reflect"    ? EdgePadding::kReflect
                     : params.pad_mode == "constant" ? EdgePadding::kZeros
                                                     : EdgePadding::kReplicate;
  settings.squared = params.power == 2;
  settings.mel = {.sample_rate = params.sample_rate,
                  .bins = 0,
                  .n_mels = static_cast<int>(params.n_mels),
                  .f_min = params.f_min,
                  .f_max = f_max,
                  .scale = params.mel_scale == "htk" ? MelScale::kHtk : MelScale::kSlaney,
                  .is_area_one = params.norm == "slaney"};
  return settings;
}

absl::Status CheckMel(const MelParams& params) {
  FW_ASSIGN_OR_RETURN(const SpectrogramSettings settings, SettingsOf(params));
  return MelSpectrogram::Make(settings).status();
}

}  // namespace feedwater::server
