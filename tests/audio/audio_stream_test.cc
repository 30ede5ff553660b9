// Files of every kind to samples: as they were written, whole or refused, at every rate and number
// of channels; what a file says that is no good never reaches a library.
#include <FLAC/stream_encoder.h>
#include <gmock/gmock.h>

#include <limits>

#include "tests/audio/audio_testing.h"
#include "tests/audio/decoded_audio.h"

namespace feedwater::server {
namespace {

using namespace audio_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(AudioStream, EveryKindGivesWhatWasWritten) {
  for (const Kind& kind : kKinds) {
    for (const int rate : {16000, 44100, 48000}) {
      if (kind.name == std::string("ogg_opus") && rate == 44100) continue;  // Opus has no such rate
      const Floats sine = Sine(440, rate, 9000);
      const auto decoded = Decode(EncodedAudio(kind.format, rate, sine));
      ASSERT_TRUE(decoded.ok()) << kind.name << " " << rate << " " << decoded.status();
      ASSERT_EQ(decoded->size(), sine.size()) << kind.name << " " << rate;
      // Codecs are not exact where the sound begins and ends.
      const size_t edge = kind.tolerance > 0.03 ? 1500 : 0;
      double worst = 0;
      for (size_t i = edge; i < sine.size() - edge; ++i)
        worst = std::max(worst, std::abs(static_cast<double>((*decoded)[i]) - sine[i]));
      EXPECT_LE(worst, kind.tolerance) << kind.name << " " << rate;
    }
  }
}

TEST(AudioStream, EveryKindIsDecodedToTheBitAsLibsndfileDoes) {
  for (const Kind& kind : kKinds) {
    if (kind.name == std::string("mp3")) continue;  // where libsndfile's sums depend on the CPU
    for (const int rate : {16000, 24000, 48000}) {
      for (const int channels : {1, 2, 4}) {
        SCOPED_TRACE(absl::StrCat(kind.name, " ", rate, " ", channels));
        const Bytes file = EncodedAudio(kind.format, rate, TestWaveform(20000), channels);
        const auto planes = Decode(file, 0, false);
        ASSERT_TRUE(planes.ok()) << planes.status();
        const Floats expected = DecodedByLibsndfile(file);
        ASSERT_EQ(planes->size(), expected.size());
        const size_t frames = expected.size() / static_cast<size_t>(channels);
        for (size_t i = 0; i < expected.size(); ++i) {
          const size_t c = i % static_cast<size_t>(channels), t = i / static_cast<size_t>(channels);
          ASSERT_EQ((*planes)[c * frames + t], expected[i]) << "frame " << t;
        }
      }
    }
  }
}

TEST(AudioStream, EveryCodeOfALawAndMuLawIsDecodedAsLibsndfileDoes) {
  for (const int law : {SF_FORMAT_ALAW, SF_FORMAT_ULAW}) {
    Bytes file = EncodedAudio(SF_FORMAT_WAV | law, 8000, Floats(256, 0));
    for (size_t code = 0; code < 256; ++code)
      file[file.size() - 256 + code] = static_cast<uint8_t>(code);
    EXPECT_EQ(*Decode(file), DecodedByLibsndfile(file));
  }
}

// By libFLAC itself: libsndfile writes 8, 16 and 24 bits alone, and reads no others.
Bytes FlacOf(const std::vector<int32_t>& samples, int bits) {
  Bytes file;
  FLAC__StreamEncoder* const encoder = FLAC__stream_encoder_new();
  FLAC__stream_encoder_set_streamable_subset(encoder, false);
  FLAC__stream_encoder_set_channels(encoder, 1);
  FLAC__stream_encoder_set_sample_rate(encoder, 16000);
  FLAC__stream_encoder_set_bits_per_sample(encoder, static_cast<uint32_t>(bits));
  FLAC__stream_encoder_set_total_samples_estimate(encoder, samples.size());
  const auto begun = FLAC__stream_encoder_init_stream(
      encoder,
      [](const FLAC__StreamEncoder*, const FLAC__byte* from, size_t count, uint32_t, uint32_t,
         void* data) {
        auto& to = *static_cast<Bytes*>(data);
        to.insert(to.end(), from, from + count);
        return FLAC__STREAM_ENCODER_WRITE_STATUS_OK;
      },
      nullptr, nullptr, nullptr, &file);
  EXPECT_EQ(begun, FLAC__STREAM_ENCODER_INIT_STATUS_OK);
  EXPECT_TRUE(FLAC__stream_encoder_process_interleaved(encoder, samples.data(),
                                                       static_cast<uint32_t>(samples.size())));
  FLAC__stream_encoder_finish(encoder);
  FLAC__stream_encoder_delete(encoder);
  return file;
}

TEST(AudioStream, FlacOfAnyNumberOfBitsIsDecoded) {
  for (const int bits : {4, 8, 12, 20, 24, 32}) {
    const auto largest = static_cast<int32_t>((uint32_t{1} << (bits - 1)) - 1);
    std::vector<int32_t> samples = {-largest - 1, largest, 0, 1, -1};
    for (int i = 0; i < 6000; ++i) samples.push_back(largest / (i % 50 + 1) - largest / 3);
    const auto decoded = Decode(FlacOf(samples, bits));
    ASSERT_TRUE(decoded.ok()) << bits << " " << decoded.status();
    ASSERT_EQ(decoded->size(), samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      ASSERT_EQ((*decoded)[i],
                static_cast<float>(samples[i]) / static_cast<float>(uint32_t{1} << (bits - 1)))
          << bits << " " << i;
    }
  }
}

TEST(AudioStream, WholeNumbersBecomeSharesOfTheLargest) {
  Bytes file = EncodedAudio(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, Floats(3, 0));
  PutLittle(0x8000, 2, file.size() - 6, &file);
  PutLittle(0x4000, 2, file.size() - 4, &file);
  PutLittle(0x7fff, 2, file.size() - 2, &file);
  EXPECT_EQ(*Decode(file), (Floats{-1, 0.5f, 32767.0f / 32768}));
}

TEST(AudioStream, ChannelsAreKeptOrAveraged) {
  for (const int channels : {1, 2, 6, 64}) {
    const Floats wave = TestWaveform(3000);
    const Bytes file = EncodedAudio(SF_FORMAT_WAV | SF_FORMAT_FLOAT, 16000, wave, channels);
    const auto planes = Decode(file, 0, false), mean = Decode(file);
    ASSERT_TRUE(planes.ok() && mean.ok()) << planes.status() << mean.status();
    ASSERT_EQ(planes->size(), wave.size() * static_cast<size_t>(channels));
    for (size_t i = 0; i < wave.size(); i += 371) {
      double sum = 0;
      for (int c = 0; c < channels; ++c) {
        EXPECT_EQ((*planes)[static_cast<size_t>(c) * wave.size() + i],
                  wave[i] / static_cast<float>(c + 1));
        sum += static_cast<double>(wave[i]) / (c + 1);
      }
      EXPECT_NEAR((*mean)[i], sum / channels, 1e-6);
    }
  }
}

TEST(AudioStream, MoreThan64ChannelsAreRefusedBeforeALibrarySeesThem) {
  const Bytes file = EncodedAudio(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, Floats(10, 0), 65);
  EXPECT_THAT(Refusal(file), AllOf(HasSubstr("65 channels"), HasSubstr("from 1 to 64")));
}

TEST(AudioStream, AHighRateIsResampledInBlocksAsInOne) {
  // 192 kHz, several blocks long: as the whole waveform resampled at once.
  const Floats wave = TestWaveform(70000);
  const Bytes file = EncodedAudio(SF_FORMAT_WAV | SF_FORMAT_FLOAT, 192000, wave);
  for (const int64_t rate : {8000, 16000, 44100, 192000, 384000}) {
    const auto decoded = Decode(file, rate);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    const auto ratio = ResampleRatio::Make(192000, rate);
    Floats weights(static_cast<size_t>(ratio->weights()));
    if (!ratio->is_same()) ratio->MakeWeights(weights.data());
    const int64_t before = -ratio->FirstInput(0);
    Floats padded(static_cast<size_t>(before), 0.0f);
    padded.insert(padded.end(), wave.begin(), wave.end());
    padded.resize(padded.size() + static_cast<size_t>(ratio->taps()));
    Floats expected(static_cast<size_t>(ratio->OutputFrames(70000)));
    ratio->Run(weights.data(), padded.data(), -before, 0, ratio->OutputFrames(70000),
               expected.data());
    EXPECT_EQ(*decoded, expected) << rate;
  }
}

TEST(AudioStream, AFileThatIsCutAnywhereIsRefused) {
  for (const Kind& kind : kKinds) {
    const Bytes whole = EncodedAudio(kind.format, 16000, Sine(440, 16000, 1500));
    ASSERT_TRUE(Decode(whole).ok()) << kind.name;
    for (size_t size = 0; size < whole.size(); size += size < 400 ? 1 : 13) {
      const auto decoded = Decode(Bytes(whole.begin(), whole.begin() + static_cast<long>(size)));
      EXPECT_FALSE(decoded.ok()) << kind.name << " cut at " << size << " of " << whole.size();
    }
  }
}

TEST(AudioStream, FlippedBitsDoNoHarmAndAreSeenWhereThereAreChecksums) {
  for (const Kind& kind : kKinds) {
    const Floats sine = Sine(440, 16000, 1500);
    const Bytes whole = EncodedAudio(kind.format, 16000, sine);
    const auto right = Decode(whole);
    const bool has_checksums = (kind.format & SF_FORMAT_TYPEMASK) == SF_FORMAT_OGG;
    for (size_t at = 0; at < whole.size(); at += 7) {
      Bytes damaged = whole;
      damaged[at] ^= static_cast<uint8_t>(1u << at % 8);
      const auto decoded = Decode(damaged);
      if (has_checksums) {
        EXPECT_FALSE(decoded.ok()) << kind.name << " flipped at " << at;
      }
    }
  }
}

TEST(AudioStream, AFlacFrameThatIsDamagedIsRefused) {
  const Bytes whole = EncodedAudio(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, TestWaveform(3000));
  const auto right = Decode(whole);
  const auto file = ReadAudioFile(Span(whole));
  const size_t first = whole.size() - file->body.size();
  for (size_t at = first; at < whole.size(); at += 3) {
    Bytes damaged = whole;
    damaged[at] ^= 0x10;
    const auto decoded = Decode(damaged);
    EXPECT_TRUE(!decoded.ok() || *decoded == *right) << "wrong samples, byte " << at;
  }
}

TEST(AudioStream, AFlacWhoseStreamInfoIsWrongIsRefused) {
  // Of 3 frames. The total, in the lowest 36 bits, smaller and larger; the rate's 20 bits, the
  // channels' 3 and the bits' 5 before it.
  const Bytes whole = EncodedAudio(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, TestWaveform(10000));
  ASSERT_TRUE(Decode(whole).ok());
  for (int bit = 0; bit < 64; ++bit) {
    Bytes wrong = whole;
    wrong[static_cast<size_t>(18 + bit / 8)] ^= static_cast<uint8_t>(0x80 >> bit % 8);
    const auto decoded = Decode(wrong);
    EXPECT_FALSE(decoded.ok()) << "bit " << bit;
  }
  Bytes more = whole;  // one frame again behind the last
  const auto file = ReadAudioFile(Span(whole));
  more.insert(more.end(), file->body.begin(), file->body.end());
  EXPECT_FALSE(Decode(more).ok());
  Bytes tagged = whole;
  tagged.resize(tagged.size() + 128, ' ');
  std::memcpy(&tagged[whole.size()], "TAG", 3);
  EXPECT_EQ(*Decode(tagged), *Decode(whole));
}

TEST(AudioStream, NoSamplesAreRefused) {
  EXPECT_THAT(Refusal(EncodedAudio(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, {})),
              HasSubstr("WAV holds no samples"));
  EXPECT_THAT(Refusal({}), HasSubstr("empty"));
}

TEST(AudioStream, NumbersThatAreNoneAreRefused) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    Floats wave = TestWaveform(40000);
    wave[30000] = bad;
    const Bytes file = EncodedAudio(SF_FORMAT_WAV | SF_FORMAT_FLOAT, 16000, wave);
    EXPECT_THAT(Refusal(file), HasSubstr("infinite or no number, in frames 16384 to 32767"));
  }
  Floats loud = {3, -7, 0.5f};  // more than 1 is a number
  EXPECT_EQ(*Decode(EncodedAudio(SF_FORMAT_WAV | SF_FORMAT_FLOAT, 16000, loud)), loud);
}

TEST(AudioStream, SumsThatAreInfiniteAreRefused) {
  const Bytes file = EncodedAudio(SF_FORMAT_WAV | SF_FORMAT_FLOAT, 16000, {3e38f, 3e38f}, 4);
  EXPECT_TRUE(Decode(file, 0, false).ok());
  EXPECT_THAT(Refusal(file), HasSubstr("so large that their sum is infinite"));
}

TEST(AudioStream, AHeaderThatPromisesWhatIsNotThereTakesNoMemory) {
  // FLAC: 2^36 - 1 frames.
  Bytes flac = EncodedAudio(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, TestWaveform());
  flac[21] |= 0x0f;
  for (size_t i = 22; i < 26; ++i) flac[i] = 0xff;
  const auto file = ReadAudioFile(Span(flac));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->most_frames, (int64_t{1} << 36) - 1);  // the op compares this with its limit
  Bytes wav = EncodedAudio(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, TestWaveform());
  PutLittle(0x70000000, 4, 40, &wav);
  EXPECT_THAT(Refusal(wav), HasSubstr("is cut off: of 1879048192 bytes of samples 1800 are there"));
}

TEST(AudioStream, ALengthThatAStreamCouldNotKnowIsThatOfTheFile) {
  const Floats wave = TestWaveform();
  for (const uint32_t length : {0xffffffffu, 0x7ffff000u, 0x80000000u}) {
    Bytes wav = EncodedAudio(SF_FORMAT_WAV | SF_FORMAT_PCM_24, 16000, wave);
    PutLittle(length, 4, 40, &wav);
    const auto decoded = Decode(wav);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->size(), wave.size());
  }
}

TEST(AudioStream, WhatIsNotReadIsNamed) {
  const auto text = [](const std::string& begin) {
    Bytes bytes(begin.begin(), begin.end());
    bytes.resize(64);
    return bytes;
  };
  EXPECT_THAT(Refusal(text("FORM....AIFF")), HasSubstr("is an AIFF file; WAV, FLAC, Ogg"));
  EXPECT_THAT(Refusal(text("....ftypM4A ")), HasSubstr("is an MP4 file"));
  EXPECT_THAT(Refusal(text("\x89PNG")), HasSubstr("a PNG image, for op decode"));
  EXPECT_THAT(Refusal(text("\xff\xf1\x50\x80")), HasSubstr("AAC"));
  EXPECT_THAT(Refusal(text("hello")), HasSubstr("no audio file that is known"));
  EXPECT_THAT(Refusal(EncodedAudio(SF_FORMAT_AIFF | SF_FORMAT_PCM_16, 8000, TestWaveform())),
              HasSubstr("AIFF"));
  EXPECT_THAT(Refusal(EncodedAudio(SF_FORMAT_WAV | SF_FORMAT_IMA_ADPCM, 8000, TestWaveform())),
              AllOf(HasSubstr("0x0011"), HasSubstr("convert it")));
  EXPECT_THAT(Refusal(EncodedAudio(SF_FORMAT_RF64 | SF_FORMAT_PCM_16, 8000, TestWaveform())),
              HasSubstr("RF64"));
  EXPECT_THAT(
      Refusal(EncodedAudio(SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 16000, Sine(440, 16000, 4000))
                          .size() > 0
                  ? text("\xff\xfd\x90\x00")
                  : Bytes()),
      HasSubstr("layer I or II"));
}

TEST(AudioStream, TagsOfMp3AreLeftOut) {
  const Floats sine = Sine(440, 16000, 9000);
  const Bytes plain = EncodedAudio(SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 16000, sine);
  Bytes tagged = {'I', 'D', '3', 4, 0, 0, 0, 0, 1, 0};  // 128 bytes
  tagged.resize(138, 'x');
  tagged.insert(tagged.end(), plain.begin(), plain.end());
  Bytes last(128, ' ');
  std::memcpy(last.data(), "TAG", 3);
  tagged.insert(tagged.end(), last.begin(), last.end());
  const auto with = Decode(tagged), without = Decode(plain);
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(*with, *without);
  Bytes enhanced(227, ' ');
  std::memcpy(enhanced.data(), "TAG+", 4);
  tagged.insert(tagged.end() - 128, enhanced.begin(), enhanced.end());
  const auto with_both = Decode(tagged);
  ASSERT_TRUE(with_both.ok()) << with_both.status();
  EXPECT_EQ(*with_both, *without);
}

// As encoders write it that know no table of frames, and as pieces of a stream are.
TEST(AudioStream, AnMp3NeedsNoTableInItsFirstFrame) {
  const Bytes file =
      EncodedAudio(SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 16000, Sine(440, 16000, 16000));
  const auto next = std::search(file.begin() + 4, file.end(), file.begin(), file.begin() + 2);
  ASSERT_NE(next, file.end());
  const std::string table(file.begin(), next);
  ASSERT_THAT(table, AnyOf(HasSubstr("Xing"), HasSubstr("Info")));
  const auto whole = Decode(file), sound = Decode(Bytes(next, file.end()));
  ASSERT_TRUE(whole.ok() && sound.ok()) << whole.status() << sound.status();
  // The table says which samples at the ends the encoder has added: without it they are there.
  EXPECT_GE(sound->size(), whole->size());
  EXPECT_LE(sound->size(), whole->size() + 3 * 1152);
  EXPECT_THAT(Refusal(Bytes(next, file.end() - 10)), HasSubstr("cut off"));
}

}  // namespace
}  // namespace feedwater::server
