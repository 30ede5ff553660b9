// Files of every kind to samples: as they were written, whole or refused, at every rate and number
// of channels; what a file says that is no good never reaches a library.
#include "server/audio/audio_stream.h"

#include <FLAC/stream_encoder.h>
#include <gmock/gmock.h>

#include <limits>

#include "tests/audio/audio_testing.h"

namespace feedwater::server {
namespace {

using namespace audio_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::HasSubstr;

WorkClock never;  // says that it is enough

absl::Span<const std::byte> Span(const Bytes& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

// What the op does: `channels` planes, one behind the other.
absl::StatusOr<Floats> Decode(const Bytes& bytes, int64_t rate = 0, bool mono = true) {
  const auto file = ReadAudioFile(Span(bytes));
  if (!file.ok()) return file.status();
  const auto ratio = ResampleRatio::Make(file->rate, rate > 0 ? rate : file->rate);
  if (!ratio.ok()) return ratio.status();
  AudioDecoder decoder;
  if (const absl::Status opened = decoder.Open(*file); !opened.ok()) return opened;
  Floats weights(static_cast<size_t>(ratio->weights()));
  if (!ratio->is_same()) ratio->MakeWeights(weights.data());
  const int channels = mono ? 1 : file->channels;
  Floats out(static_cast<size_t>(ratio->OutputFrames(decoder.frames()) * channels), 99);
  Floats scratch(static_cast<size_t>(StreamScratchFloats(channels)));
  const AudioStream stream{&*file, &decoder, &*ratio, weights.data(), channels};
  const absl::Status run = RunStream(stream, scratch.data(), never, out.data());
  if (!run.ok()) return run;
  return out;
}

std::string Refusal(const Bytes& bytes) {
  const auto decoded = Decode(bytes);
  EXPECT_FALSE(decoded.ok());
  if (decoded.ok()) return "";
  EXPECT_TRUE(absl::IsInvalidArgument(decoded.status())) << decoded.status();
  return std::string(decoded.status().message());
}

void PutLittle(uint32_t value, size_t bytes, size_t at, Bytes* file) {
  for (size_t i = 0; i < bytes; ++i) (*file)[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

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
  Bytes flac = EncodedAudio(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, TestWaveform());
  flac[21] &= 0xf0;
  for (size_t i = 22; i < 26; ++i) flac[i] = 0;
  EXPECT_THAT(Refusal(flac), HasSubstr("FLAC holds no samples, or does not say how many"));
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
  tagged.push_back('?');
  EXPECT_THAT(Refusal(tagged), HasSubstr("MP3"));
}

// A page from `at` on gets its checksum anew.
void MakeChecksumGood(size_t at, size_t bytes, Bytes* file) {
  PutLittle(0, 4, at + 22, file);
  uint32_t sum = 0;
  for (size_t i = at; i < at + bytes; ++i) {
    sum ^= uint32_t{(*file)[i]} << 24;
    for (int bit = 0; bit < 8; ++bit) sum = sum << 1 ^ ((sum >> 31) != 0 ? 0x04c11db7u : 0);
  }
  PutLittle(sum, 4, at + 22, file);
}

TEST(AudioStream, TagsOfMegabytesAreRefused) {
  const Bytes whole = EncodedAudio(SF_FORMAT_OGG | SF_FORMAT_OPUS, 16000, Sine(440, 16000, 1500));
  const std::string text(whole.begin(), whole.end());
  const size_t first = text.find("OggS", 4);
  Bytes file(whole.begin(), whole.begin() + static_cast<long>(first));
  for (int page = 0; page < 70; ++page) {  // of 255 segments of 255 bytes, and no samples
    const size_t at = file.size(), bytes = 27 + 255 + 255 * 255;
    file.insert(file.end(), whole.begin(), whole.begin() + 27);
    file.resize(at + bytes, 0);
    file[at + 5] = page > 0 ? 1 : 0;
    PutLittle(static_cast<uint32_t>(page) + 1, 4, at + 18, &file);
    file[at + 26] = 255;
    std::fill_n(file.begin() + static_cast<long>(at) + 27, 255, 255);
    MakeChecksumGood(at, bytes, &file);
  }
  file.insert(file.end(), whole.begin() + static_cast<long>(first), whole.end());
  EXPECT_THAT(Refusal(file), HasSubstr("more than 4 MiB of tags"));
}

TEST(AudioStream, CodeBooksOfGigabytesAreRefusedBeforeTheyAreMade) {
  // The first book's entries made 2^15, 24 bits in front of the setup header's books; the page's
  // checksum is made good again.
  Bytes file = EncodedAudio(SF_FORMAT_OGG | SF_FORMAT_VORBIS, 16000, Sine(440, 16000, 1500));
  const std::string text(file.begin(), file.end());
  const size_t setup = text.find("\x05vorbis");
  ASSERT_NE(setup, std::string::npos);
  file[setup + 14] = 0x80;  // behind 7 bytes of name, the count, 3 of mark and 2 of dimensions
  const size_t page = text.rfind("OggS", setup), next = text.find("OggS", setup);
  MakeChecksumGood(page, next - page, &file);
  EXPECT_THAT(Refusal(file), HasSubstr("asks for a code book of"));
}

// Streams of Ogg Vorbis that no encoder makes.
class Bits {
 public:
  Bits& Put(uint64_t value, int bits) {
    for (int i = 0; i < bits; ++i, ++count_) {
      if (count_ % 8 == 0) bytes_.push_back(0);
      bytes_.back() |= static_cast<uint8_t>((value >> i & 1) << (count_ % 8));
    }
    return *this;
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
  int64_t count_ = 0;
};

struct SmallBook {
  uint32_t dimensions = 1, entries = 2;
  int length = 1;  // of every entry's code, in bits
};

// `residues` of 64 kinds of partitions (or of one), all with the first book for their group.
Bytes SetupHeader(const std::vector<SmallBook>& books, int residues, int kinds) {
  Bits bits;
  for (const char c : std::string("\x05vorbis")) bits.Put(static_cast<uint8_t>(c), 8);
  bits.Put(books.size() - 1, 8);
  for (const SmallBook& book : books) {
    bits.Put(0x564342, 24).Put(book.dimensions, 16).Put(book.entries, 24);
    int entry_bits = 0;
    while (book.entries >> entry_bits > 0) ++entry_bits;
    bits.Put(1, 1).Put(static_cast<uint64_t>(book.length - 1), 5).Put(book.entries, entry_bits);
    bits.Put(0, 4);
  }
  bits.Put(0, 6).Put(0, 16);                                // times
  bits.Put(0, 6).Put(1, 16).Put(0, 5).Put(0, 2).Put(4, 4);  // a floor without partitions
  bits.Put(static_cast<uint64_t>(residues - 1), 6);
  for (int i = 0; i < residues; ++i) {
    bits.Put(0, 16).Put(0, 24).Put(16, 24).Put(0, 24);
    bits.Put(static_cast<uint64_t>(kinds - 1), 6).Put(0, 8);
    for (int kind = 0; kind < kinds; ++kind) bits.Put(0, 4);
  }
  bits.Put(0, 6).Put(0, 16).Put(0, 4).Put(0, 24);            // a mapping
  bits.Put(0, 6).Put(0, 1).Put(0, 16).Put(0, 16).Put(0, 8);  // a mode
  bits.Put(1, 1);
  return bits.bytes();
}

Bytes VorbisIdentification() {
  Bits bits;
  for (const char c : std::string("\x01vorbis")) bits.Put(static_cast<uint8_t>(c), 8);
  return bits.Put(0, 32)
      .Put(1, 8)
      .Put(16000, 32)
      .Put(0, 64)
      .Put(0, 32)
      .Put(0x86, 8)
      .Put(1, 8)
      .bytes();
}
Bytes VorbisComments() {
  Bits bits;
  for (const char c : std::string("\x03vorbis")) bits.Put(static_cast<uint8_t>(c), 8);
  return bits.Put(0, 64).Put(1, 8).bytes();
}

// A page of segments as they are given; the packets' bytes are one behind the other in `body`.
void AddPage(uint8_t flags, int64_t granule, uint32_t number, const Bytes& segments,
             const Bytes& body, Bytes* file) {
  const size_t at = file->size();
  const Bits head = Bits()
                        .Put(0x5367674f, 32)
                        .Put(0, 8)
                        .Put(flags, 8)
                        .Put(static_cast<uint64_t>(granule), 64)
                        .Put(1, 32)
                        .Put(number, 32)
                        .Put(0, 32)
                        .Put(segments.size(), 8);
  file->insert(file->end(), head.bytes().begin(), head.bytes().end());
  file->insert(file->end(), segments.begin(), segments.end());
  file->insert(file->end(), body.begin(), body.end());
  MakeChecksumGood(at, file->size() - at, file);
}
// The same, of whole packets.
void AddPackets(uint8_t flags, int64_t granule, uint32_t number, const std::vector<Bytes>& packets,
                Bytes* file) {
  Bytes segments, body;
  for (const Bytes& packet : packets) {
    segments.insert(segments.end(), packet.size() / 255, 255);
    segments.push_back(static_cast<uint8_t>(packet.size() % 255));
    body.insert(body.end(), packet.begin(), packet.end());
  }
  AddPage(flags, granule, number, segments, body, file);
}

const std::vector<Bytes> kTwentyBlocks(20, Bytes(2, 0));  // of 32 frames each

Bytes VorbisFile(const Bytes& setup) {
  Bytes file;
  AddPackets(2, 0, 0, {VorbisIdentification()}, &file);
  AddPackets(0, 0, 1, {VorbisComments(), setup}, &file);
  AddPackets(4, 20 * 32, 2, kTwentyBlocks, &file);
  return file;
}

TEST(AudioStream, ACodeBookThatTakesTheStackIsRefused) {
  EXPECT_TRUE(Decode(VorbisFile(SetupHeader({{1, 2, 1}}, 1, 1))).ok());
  EXPECT_TRUE(Decode(VorbisFile(SetupHeader({{1, 1 << 14, 14}}, 1, 1))).ok());
  // libvorbis takes 8 bytes of the stack for each entry.
  EXPECT_THAT(Refusal(VorbisFile(SetupHeader({{1, 1 << 19, 19}}, 1, 1))),
              HasSubstr("a code book of 524288 entries, over 16384"));
}

TEST(AudioStream, ResiduesOfManyMegabytesAreRefused) {
  EXPECT_TRUE(Decode(VorbisFile(SetupHeader({{2, 1 << 12, 12}}, 1, 64))).ok());
  // 64 tables of 4,096 rows.
  EXPECT_THAT(Refusal(VorbisFile(SetupHeader({{2, 1 << 12, 12}}, 64, 64))),
              AllOf(HasSubstr("asks for residues of"), HasSubstr("over 2097152")));
  // More rows than the group's book has entries: libvorbis would refuse it, too.
  EXPECT_THAT(Refusal(VorbisFile(SetupHeader({{3, 1 << 12, 12}}, 1, 64))),
              HasSubstr("damaged setup header"));
}

TEST(AudioStream, HeadersThatLibraryAndLookCouldSeeOtherwiseAreRefused) {
  const Bytes good = SetupHeader({{1, 2, 1}}, 1, 1), bad = SetupHeader({{1, 1 << 19, 19}}, 1, 1);
  // All three headers on the first page, and others behind it.
  Bytes first;
  AddPackets(2, 0, 0, {VorbisIdentification(), VorbisComments(), bad}, &first);
  AddPackets(0, 0, 1, {VorbisComments(), good}, &first);
  AddPackets(4, 20 * 32, 2, kTwentyBlocks, &first);
  EXPECT_THAT(Refusal(first), HasSubstr("a first page with more than its identification"));
  // A setup that goes on behind a hole, where libogg drops it and takes the next packet.
  Bytes padded = good;
  padded.resize(265, 0);
  Bytes segments = {static_cast<uint8_t>(VorbisComments().size()), 255}, body = VorbisComments();
  body.insert(body.end(), padded.begin(), padded.begin() + 255);
  for (const uint32_t number : {2u, 9u}) {
    for (const uint8_t flags : {0, 1}) {
      Bytes hole;
      AddPackets(2, 0, 0, {VorbisIdentification()}, &hole);
      AddPage(0, 0, 1, segments, body, &hole);
      AddPackets(flags, 0, number, {Bytes(padded.begin() + 255, padded.end())}, &hole);
      AddPackets(4, 20 * 32, number + 1, kTwentyBlocks, &hole);
      if (number == 2 && flags == 1) {
        EXPECT_TRUE(Decode(hole).ok());
      } else {
        EXPECT_THAT(Refusal(hole), HasSubstr(number == 9 ? "lacks a page" : "does not go on"));
      }
    }
  }
}

TEST(AudioStream, AnOggPageThatIsMissingIsAnError) {
  const Bytes setup = SetupHeader({{1, 2, 1}}, 1, 1);
  for (const uint32_t last : {3u, 4u}) {
    Bytes file;
    AddPackets(2, 0, 0, {VorbisIdentification()}, &file);
    AddPackets(0, 0, 1, {VorbisComments(), setup}, &file);
    AddPackets(0, 20 * 32, 2, kTwentyBlocks, &file);
    AddPackets(4, 40 * 32, last, kTwentyBlocks, &file);
    if (last == 3) {
      EXPECT_TRUE(Decode(file).ok());
    } else {
      EXPECT_THAT(Refusal(file), HasSubstr("Ogg lacks a page"));
    }
  }
}

TEST(AudioStream, AnOggPacketOfManyPagesIsRefused) {
  Bytes file;
  AddPackets(2, 0, 0, {VorbisIdentification()}, &file);
  AddPackets(0, 0, 1, {VorbisComments(), SetupHeader({{1, 2, 1}}, 1, 1)}, &file);
  AddPackets(0, 20 * 32, 2, kTwentyBlocks, &file);
  for (uint32_t page = 0; page < 20; ++page)
    AddPage(page > 0 ? 1 : 0, -1, 3 + page, Bytes(255, 255), Bytes(255 * 255, 0), &file);
  AddPage(5, 40 * 32, 23, {5}, Bytes(5, 0), &file);
  EXPECT_THAT(Refusal(file), HasSubstr("a packet of more than 1 MiB"));
}

// Where each page begins.
std::vector<size_t> PagesOf(const Bytes& file) {
  std::vector<size_t> pages;
  for (size_t at = 0; at < file.size();) {
    pages.push_back(at);
    size_t bytes = 27u + file[at + 26];
    for (size_t i = 0; i < file[at + 26]; ++i) bytes += file[at + 27 + i];
    at += bytes;
  }
  return pages;
}
void MakeChecksumsGood(Bytes* file) {
  std::vector<size_t> pages = PagesOf(*file);
  pages.push_back(file->size());
  for (size_t i = 0; i + 1 < pages.size(); ++i)
    MakeChecksumGood(pages[i], pages[i + 1] - pages[i], file);
}
// Every page from `first` on says so many frames more, or less.
Bytes WithGranulesMoved(Bytes file, size_t first, int32_t by) {
  const std::vector<size_t> pages = PagesOf(file);
  for (size_t i = first; i < pages.size(); ++i) {
    const auto now = static_cast<uint32_t>(file[pages[i] + 6]) | uint32_t{file[pages[i] + 7]} << 8 |
                     uint32_t{file[pages[i] + 8]} << 16 | uint32_t{file[pages[i] + 9]} << 24;
    PutLittle(now + static_cast<uint32_t>(by), 4, pages[i] + 6, &file);
  }
  MakeChecksumsGood(&file);
  return file;
}

TEST(AudioStream, AnOggMayBeginAtAnyGranule) {
  for (const int codec : {SF_FORMAT_VORBIS, SF_FORMAT_OPUS}) {
    const Bytes file = EncodedAudio(SF_FORMAT_OGG | codec, 48000, TestWaveform(200000));
    ASSERT_GE(PagesOf(file).size(), 5u);
    const auto right = Decode(file), late = Decode(WithGranulesMoved(file, 2, 100000));
    ASSERT_TRUE(right.ok() && late.ok()) << right.status() << late.status();
    EXPECT_EQ(*late, *right);
  }
}

TEST(AudioStream, TheBeginningThatAVorbisWasCutByIsLeftOut) {
  const Bytes file = EncodedAudio(SF_FORMAT_OGG | SF_FORMAT_VORBIS, 48000, TestWaveform(200000));
  const auto right = Decode(file), cut = Decode(WithGranulesMoved(file, 2, -700));
  ASSERT_TRUE(right.ok() && cut.ok()) << right.status() << cut.status();
  EXPECT_EQ(*cut, Floats(right->begin() + 700, right->end()));
  // Opus has frames before the sound for that.
  EXPECT_THAT(
      Refusal(WithGranulesMoved(
          EncodedAudio(SF_FORMAT_OGG | SF_FORMAT_OPUS, 48000, TestWaveform(200000)), 2, -700)),
      HasSubstr("its first page does not hold the samples that it says"));
}

TEST(AudioStream, AnOggWhosePagesDoNotHoldWhatTheySayIsRefused) {
  for (const int codec : {SF_FORMAT_VORBIS, SF_FORMAT_OPUS}) {
    const Bytes file = EncodedAudio(SF_FORMAT_OGG | codec, 48000, TestWaveform(200000));
    EXPECT_THAT(Refusal(WithGranulesMoved(file, 3, 5000)), HasSubstr("is cut off or damaged: of "));
  }
  EXPECT_THAT(
      Refusal(WithGranulesMoved(
          EncodedAudio(SF_FORMAT_OGG | SF_FORMAT_OPUS, 48000, TestWaveform(200000)), 3, -10)),
      HasSubstr("a page holds more samples than it says"));
}

Bytes OpusHead(int channels, uint32_t rate, int version = 1, int family = 0,
               const Bytes& mapping = {}) {
  Bytes head = {'O', 'p', 'u', 's', 'H', 'e', 'a', 'd'};
  const Bits rest = Bits()
                        .Put(static_cast<uint64_t>(version), 8)
                        .Put(static_cast<uint64_t>(channels), 8)
                        .Put(312, 16)
                        .Put(rate, 32)
                        .Put(0, 16)
                        .Put(static_cast<uint64_t>(family), 8);
  head.insert(head.end(), rest.bytes().begin(), rest.bytes().end());
  head.insert(head.end(), mapping.begin(), mapping.end());
  return head;
}
// Ten packets of 20 ms of silence.
Bytes OpusFile(const Bytes& head, const Bytes& packet = {0xf8, 0xff, 0xfe},
               const std::string& tags = "OpusTags") {
  Bytes file;
  AddPackets(2, 0, 0, {head}, &file);
  Bytes comments(tags.begin(), tags.end());
  comments.resize(comments.size() + 8);
  AddPackets(0, 0, 1, {comments}, &file);
  AddPackets(4, 10 * 960, 2, std::vector<Bytes>(10, packet), &file);
  return file;
}

TEST(AudioStream, OpusIsDecodedAt48kHzWhereItHasNotTheRateThatWasEncoded) {
  for (const uint32_t rate : {0u, 11025u, 22050u, 44100u, 48000u, 96000u}) {
    const auto decoded = Decode(OpusFile(OpusHead(1, rate)));
    ASSERT_TRUE(decoded.ok()) << rate << decoded.status();
    EXPECT_EQ(decoded->size(), 10u * 960 - 312) << rate;
  }
  for (const uint32_t rate : {8000u, 12000u, 16000u, 24000u})
    EXPECT_EQ(Decode(OpusFile(OpusHead(1, rate)))->size(), (10u * 960 - 312) / (48000 / rate));
}

TEST(AudioStream, AnOpusWhoseHeaderOrPacketsAreDamagedIsRefused) {
  EXPECT_TRUE(Decode(OpusFile(OpusHead(2, 48000))).ok());
  EXPECT_TRUE(Decode(OpusFile(OpusHead(1, 48000, 1, 1, {1, 0, 0}))).ok());
  EXPECT_TRUE(Decode(OpusFile(OpusHead(3, 48000, 1, 255, {1, 1, 0, 1, 255}))).ok());
  const Bytes heads[] = {OpusHead(1, 48000, 2),                       // a version that is not known
                         OpusHead(3, 48000),                          // one stream has two channels
                         OpusHead(1, 48000, 0, 0, {0}),               // a byte too many
                         OpusHead(2, 48000, 1, 1, {1, 1, 0}),         // a byte too few
                         OpusHead(9, 48000, 1, 1, Bytes(11, 0)),      // more than 7.1
                         OpusHead(2, 48000, 1, 1, {1, 1, 0, 9}),      // a stream that is not there
                         OpusHead(2, 48000, 1, 1, {1, 2, 0, 1}),      // more pairs than streams
                         OpusHead(2, 48000, 1, 1, {0, 0, 255, 255}),  // no stream
                         OpusHead(2, 48000, 1, 1, {200, 100, 0, 1})};
  for (const Bytes& head : heads)
    EXPECT_THAT(Refusal(OpusFile(head)), HasSubstr("Ogg Opus cannot be decoded"));
  EXPECT_THAT(Refusal(OpusFile(OpusHead(1, 48000), {0xf8, 0xff, 0xfe}, "OpusTogs")),
              HasSubstr("it lacks the header of its tags"));
  // Two frames, but of one no half; none at all.
  EXPECT_THAT(Refusal(OpusFile(OpusHead(1, 48000), {0xf9, 0xff, 0xfe, 0})),
              HasSubstr("is damaged"));
  EXPECT_THAT(Refusal(OpusFile(OpusHead(1, 48000), {})), HasSubstr("is damaged"));
}

TEST(AudioStream, AnOggWithSamplesAmongItsHeadersOrWithAnOpenEndIsRefused) {
  const Bytes setup = SetupHeader({{1, 2, 1}}, 1, 1);
  Bytes file;
  AddPackets(2, 0, 0, {VorbisIdentification()}, &file);
  AddPackets(0, 0, 1, {VorbisComments(), setup, Bytes(2, 0)}, &file);
  AddPackets(4, 20 * 32, 2, kTwentyBlocks, &file);
  EXPECT_THAT(Refusal(file), HasSubstr("has samples on a page of its headers"));
  Bytes open;
  AddPackets(2, 0, 0, {VorbisIdentification()}, &open);
  AddPackets(0, 0, 1, {VorbisComments(), setup}, &open);
  AddPackets(0, 20 * 32, 2, kTwentyBlocks, &open);
  AddPage(4, -1, 3, {255}, Bytes(255, 0), &open);
  EXPECT_THAT(Refusal(open), HasSubstr("is cut off within a packet"));
}

TEST(AudioStream, AnOggOfMoreFramesThanThereCanBeIsRefused) {
  Bytes file = EncodedAudio(SF_FORMAT_OGG | SF_FORMAT_OPUS, 16000, Sine(440, 16000, 1500));
  const size_t page = std::string(file.begin(), file.end()).rfind("OggS");
  PutLittle(0x7fffffff, 4, page + 10, &file);
  MakeChecksumGood(page, file.size() - page, &file);
  EXPECT_THAT(Refusal(file), HasSubstr("more than 2^40 frames"));
}

}  // namespace
}  // namespace feedwater::server
