// What programs put around the sound of a file, or do not say in its header: tags and zeros at both
// ends, lengths that were never filled in. Such files give the samples of plain ones; where that
// cannot be known, they are refused.
#include <gmock/gmock.h>

#include "tests/audio/audio_testing.h"
#include "tests/audio/decoded_audio.h"

namespace feedwater::server {
namespace {

using namespace audio_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

Bytes Join(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
Bytes Text(const std::string& text) { return {text.begin(), text.end()}; }
Bytes Zeros(size_t count) { return Bytes(count, 0); }

// With bytes in it that look like the beginning of a frame of FLAC and MP3.
Bytes Id3(size_t content) {
  Bytes tag = {'I', 'D', '3', 3, 0, 0, 0, 0, static_cast<uint8_t>(content >> 7), 0};
  tag[9] = static_cast<uint8_t>(content & 0x7f);
  tag.resize(tag.size() + content, 0xff);
  return tag;
}
Bytes Id3v1() {
  Bytes tag = Text("TAG");
  tag.resize(128, 0);
  return tag;
}
enum class Ape { kFooter, kHeaderAndFooter };
// Its size counts the content and the footer.
Bytes ApeTag(Ape kind, size_t content = 40) {
  const bool has_header = kind == Ape::kHeaderAndFooter;
  const auto end = [&](uint32_t flags) {
    Bytes bytes = Text("APETAGEX");
    bytes.resize(32, 0);
    PutLittle(has_header ? 2000 : 1000, 4, 8, &bytes);
    PutLittle(static_cast<uint32_t>(content) + 32, 4, 12, &bytes);
    PutLittle(has_header ? 0x80000000u | flags : 0, 4, 20, &bytes);
    return bytes;
  };
  return Join({has_header ? end(0x20000000u) : Bytes(), Bytes(content, 0xff), end(0)});
}
Bytes Lyrics() { return Text("LYRICSBEGININD0000200LYRICS and lyrics000031LYRICS200"); }
Bytes OldLyrics() { return Text("LYRICSBEGINla la laLYRICSEND"); }

const int kWav = SF_FORMAT_WAV | SF_FORMAT_PCM_16, kFlac = SF_FORMAT_FLAC | SF_FORMAT_PCM_16,
          kVorbis = SF_FORMAT_OGG | SF_FORMAT_VORBIS, kOpus = SF_FORMAT_OGG | SF_FORMAT_OPUS,
          kMp3 = SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III;

Bytes Encoded(int format) { return EncodedAudio(format, 16000, Sine(440, 16000, 9000)); }
// Without the first frame, which holds the table of them.
Bytes Mp3WithoutTable() {
  const Bytes file = Encoded(kMp3);
  return {std::search(file.begin() + 4, file.end(), file.begin(), file.begin() + 2), file.end()};
}

void ExpectSame(const Bytes& file, const Bytes& plain) {
  const auto decoded = Decode(file), expected = Decode(plain);
  ASSERT_TRUE(decoded.ok() && expected.ok()) << decoded.status() << expected.status();
  EXPECT_EQ(*decoded, *expected);
}

TEST(AudioFile, TagsBeforeAFileOfAnyKindAreLeftOut) {
  for (const int format : {kWav, kFlac, kVorbis, kOpus, kMp3}) {
    SCOPED_TRACE(format);
    const Bytes file = Encoded(format);
    ExpectSame(Join({Id3(300), file}), file);
    ExpectSame(Join({Id3(30), Id3(0), file}), file);
    ExpectSame(Join({Id3(30), Zeros(200), file}), file);
    ExpectSame(Join({ApeTag(Ape::kHeaderAndFooter), file}), file);
    EXPECT_FALSE(Decode(Join({Id3(300), Bytes(file.begin(), file.end() - 20)})).ok());
  }
  ExpectSame(Join({Zeros(200), Mp3WithoutTable()}), Mp3WithoutTable());
}

TEST(AudioFile, WhatStandsBehindATagIsNamed) {
  EXPECT_THAT(Refusal(Join({Id3(30), Text("FORM....AIFF....")})), HasSubstr("is an AIFF file"));
  EXPECT_THAT(Refusal(Join({Id3(30), Text("nothing of this kind")})),
              HasSubstr("MP3 has no frame"));
  EXPECT_THAT(Refusal(Id3(30)), HasSubstr("MP3"));
  Bytes cut = Id3(300);
  cut.resize(200);
  EXPECT_THAT(Refusal(cut), HasSubstr("cut off within the tag that it begins with"));
  EXPECT_THAT(Refusal(Zeros(100)), HasSubstr("no audio file that is known"));
  EXPECT_THAT(Refusal(Join({Zeros(3), Text("\x20"
                                           "ftypM4A ....")})),
              HasSubstr("an MP4 file"));
}

TEST(AudioFile, TagsBehindAFlacAreLeftOut) {
  const Bytes file = Encoded(kFlac);
  for (const Ape kind : {Ape::kFooter, Ape::kHeaderAndFooter}) {
    ExpectSame(Join({file, ApeTag(kind, 0)}), file);
    ExpectSame(Join({file, ApeTag(kind)}), file);
    ExpectSame(Join({file, ApeTag(kind), Id3v1()}), file);
    ExpectSame(Join({file, Zeros(100), ApeTag(kind), Zeros(500)}), file);
  }
  ExpectSame(Join({file, Zeros(1000)}), file);
  EXPECT_THAT(Refusal(Join({file, Text("other data")})), HasSubstr("damaged within the frame"));
  // One that says it begins before the file's first byte, and one within the last frame.
  Bytes lying = Join({file, ApeTag(Ape::kFooter)});
  PutLittle(0x7fffffff, 4, lying.size() - 20, &lying);
  EXPECT_THAT(Refusal(lying), HasSubstr("damaged within the frame"));
  PutLittle(32 + 40 + 7, 4, lying.size() - 20, &lying);
  EXPECT_THAT(Refusal(lying), HasSubstr("damaged within the frame"));
}

// As encoders write it to a pipe, where they cannot go back.
TEST(AudioFile, TheSamplesOfAFlacThatDoesNotSayHowManyAreCounted) {
  const Bytes whole = Encoded(kFlac);
  Bytes file = whole;
  file[21] &= 0xf0;
  for (size_t i = 22; i < 26; ++i) file[i] = 0;
  ExpectSame(file, whole);
  ExpectSame(Join({Id3(30), file, Zeros(30), ApeTag(Ape::kFooter)}), whole);
  const auto seen = ReadAudioFile(Span(file));
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_FALSE(seen->is_exact);
  EXPECT_GE(seen->most_frames, 9000);
  const size_t first = file.size() - seen->body.size();
  for (size_t size = file.size() - 1; size > file.size() - 100; --size)
    EXPECT_THAT(Refusal(Bytes(file.begin(), file.begin() + static_cast<long>(size))),
                HasSubstr("cut off or damaged within the frame"));
  for (size_t at = first; at < file.size(); at += 3) {
    Bytes damaged = file;
    damaged[at] ^= 0x10;
    EXPECT_THAT(Refusal(damaged), HasSubstr("FLAC"));
  }
  file.resize(first);
  EXPECT_THAT(Refusal(file), HasSubstr("FLAC holds no samples"));
}

TEST(AudioFile, TagsAndZerosBehindAnMp3AreLeftOut) {
  for (const Bytes& file : {Encoded(kMp3), Mp3WithoutTable()}) {
    for (const Bytes& tail :
         {Zeros(1), Zeros(500), Id3v1(), Id3(30), ApeTag(Ape::kFooter),
          ApeTag(Ape::kHeaderAndFooter), Lyrics(), OldLyrics(), Text("LYRICSBEGINxxxxxx"),
          Join({Lyrics(), Id3v1()}), Join({Zeros(90), ApeTag(Ape::kFooter), Id3v1(), Zeros(9)})}) {
      ExpectSame(Join({file, tail}), file);
    }
  }
}

TEST(AudioFile, OtherDataBehindAnMp3IsLeftOutWhereItsTableSaysThatItIsWhole) {
  const Bytes file = Encoded(kMp3), plain = Mp3WithoutTable();
  for (const Bytes& tail : {Text("???"), Text("other data"), Bytes(30, 0xff),
                            Text("ID3.......~~~~"), Join({Id3v1(), plain})}) {
    ExpectSame(Join({file, tail}), file);
    EXPECT_THAT(Refusal(Join({plain, tail})), HasSubstr("MP"));
    // The last frame is missing, and other data stands in its place.
    const auto last = std::find_end(file.begin(), file.end(), file.begin(), file.begin() + 2);
    EXPECT_THAT(Refusal(Join({Bytes(file.begin(), last), tail})), HasSubstr("MP"));
    EXPECT_THAT(Refusal(Join({Bytes(file.begin(), last), Zeros(2000)})), HasSubstr("MP3 is cut"));
  }
}

TEST(AudioFile, AWavThatWasNeverFinishedReachesToItsEnd) {
  const Bytes whole = Encoded(kWav);
  for (const uint32_t riff : {0u, 8u, 36u, 0xffffffffu}) {
    Bytes wav = whole;
    PutLittle(riff, 4, 4, &wav);
    PutLittle(0, 4, 40, &wav);
    ExpectSame(wav, whole);
    wav.resize(44);
    EXPECT_THAT(Refusal(wav), HasSubstr("WAV holds no samples"));
  }
  Bytes empty = whole;  // chunks may stand behind no samples
  PutLittle(0, 4, 40, &empty);
  EXPECT_THAT(Refusal(empty), HasSubstr("WAV holds no samples"));
}

TEST(AudioFile, WholeNumbersOfFewerBitsThanTheirBytesHave) {
  const auto file = [](uint32_t bits, uint32_t bytes) {
    Bytes wav = EncodedAudio(kWav, 16000, TestWaveform(6 * 50));
    PutLittle(bytes, 2, 32, &wav);
    PutLittle(bits, 2, 34, &wav);
    return wav;
  };
  for (const auto& [bits, bytes] : {std::pair{20, 3}, {17, 3}, {12, 2}, {9, 2}, {4, 1}, {28, 4}}) {
    const Bytes wav = file(static_cast<uint32_t>(bits), static_cast<uint32_t>(bytes));
    const auto decoded = Decode(wav);
    ASSERT_TRUE(decoded.ok()) << bits << " " << decoded.status();
    EXPECT_EQ(*decoded, DecodedByLibsndfile(wav)) << bits;
  }
  // 24 bits in 4 bytes are whole numbers to some programs and floats to others.
  EXPECT_THAT(Refusal(file(24, 4)), HasSubstr("24 bits and 4 bytes a frame"));
  EXPECT_THAT(Refusal(file(20, 2)), HasSubstr("20 bits and 2 bytes a frame"));
  EXPECT_THAT(Refusal(file(0, 2)), HasSubstr("with 0 bits a sample is not read"));
  EXPECT_THAT(Refusal(file(40, 5)), HasSubstr("with 40 bits a sample is not read"));
}

TEST(AudioFile, TagsAndZerosBehindAnOggAreLeftOut) {
  for (const int format : {kVorbis, kOpus}) {
    const Bytes file = Encoded(format);
    for (const Bytes& tail : {Zeros(1), Zeros(100), Id3v1(), Join({Zeros(9), Id3v1(), Zeros(9)})})
      ExpectSame(Join({file, tail}), file);
    for (const Bytes& tail : {file, Text("?"), Join({Zeros(9), file}), Join({Id3v1(), Text("?")})})
      EXPECT_THAT(Refusal(Join({file, tail})), HasSubstr("behind its end"));
    // Its last page is missing.
    const size_t last = std::string(file.begin(), file.end()).rfind("OggS");
    const Bytes cut(file.begin(), file.begin() + static_cast<long>(last));
    EXPECT_THAT(Refusal(Join({cut, Zeros(100)})), HasSubstr("no page where one must begin"));
  }
}

}  // namespace
}  // namespace feedwater::server
