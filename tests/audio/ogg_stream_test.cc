// Ogg files to samples: pages, Vorbis' headers and Opus', of encoders and such as none makes. What
// they ask for that is no good never reaches a library.
#include <gmock/gmock.h>

#include "tests/audio/audio_testing.h"
#include "tests/audio/decoded_audio.h"

namespace feedwater::server {
namespace {

using namespace audio_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::HasSubstr;

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

TEST(OggStream, TagsOfMegabytesAreRefused) {
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

TEST(OggStream, CodeBooksOfGigabytesAreRefusedBeforeTheyAreMade) {
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

TEST(OggStream, ACodeBookThatTakesTheStackIsRefused) {
  EXPECT_TRUE(Decode(VorbisFile(SetupHeader({{1, 2, 1}}, 1, 1))).ok());
  EXPECT_TRUE(Decode(VorbisFile(SetupHeader({{1, 1 << 14, 14}}, 1, 1))).ok());
  // libvorbis takes 8 bytes of the stack for each entry.
  EXPECT_THAT(Refusal(VorbisFile(SetupHeader({{1, 1 << 19, 19}}, 1, 1))),
              HasSubstr("a code book of 524288 entries, over 16384"));
}

TEST(OggStream, ResiduesOfManyMegabytesAreRefused) {
  EXPECT_TRUE(Decode(VorbisFile(SetupHeader({{2, 1 << 12, 12}}, 1, 64))).ok());
  // 64 tables of 4,096 rows.
  EXPECT_THAT(Refusal(VorbisFile(SetupHeader({{2, 1 << 12, 12}}, 64, 64))),
              AllOf(HasSubstr("asks for residues of"), HasSubstr("over 2097152")));
  // More rows than the group's book has entries: libvorbis would refuse it, too.
  EXPECT_THAT(Refusal(VorbisFile(SetupHeader({{3, 1 << 12, 12}}, 1, 64))),
              HasSubstr("damaged setup header"));
}

TEST(OggStream, HeadersThatLibraryAndLookCouldSeeOtherwiseAreRefused) {
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

TEST(OggStream, AnOggPageThatIsMissingIsAnError) {
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

TEST(OggStream, AnOggPacketOfManyPagesIsRefused) {
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

TEST(OggStream, AnOggMayBeginAtAnyGranule) {
  for (const int codec : {SF_FORMAT_VORBIS, SF_FORMAT_OPUS}) {
    const Bytes file = EncodedAudio(SF_FORMAT_OGG | codec, 48000, TestWaveform(200000));
    ASSERT_GE(PagesOf(file).size(), 5u);
    const auto right = Decode(file), late = Decode(WithGranulesMoved(file, 2, 100000));
    ASSERT_TRUE(right.ok() && late.ok()) << right.status() << late.status();
    EXPECT_EQ(*late, *right);
  }
}

TEST(OggStream, TheBeginningThatAVorbisWasCutByIsLeftOut) {
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

TEST(OggStream, AnOggWhosePagesDoNotHoldWhatTheySayIsRefused) {
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

TEST(OggStream, OpusIsDecodedAt48kHzWhereItHasNotTheRateThatWasEncoded) {
  for (const uint32_t rate : {0u, 11025u, 22050u, 44100u, 48000u, 96000u}) {
    const auto decoded = Decode(OpusFile(OpusHead(1, rate)));
    ASSERT_TRUE(decoded.ok()) << rate << decoded.status();
    EXPECT_EQ(decoded->size(), 10u * 960 - 312) << rate;
  }
  for (const uint32_t rate : {8000u, 12000u, 16000u, 24000u})
    EXPECT_EQ(Decode(OpusFile(OpusHead(1, rate)))->size(), (10u * 960 - 312) / (48000 / rate));
}

TEST(OggStream, AnOpusWhoseHeaderOrPacketsAreDamagedIsRefused) {
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

TEST(OggStream, AnOggWithSamplesAmongItsHeadersOrWithAnOpenEndIsRefused) {
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

TEST(OggStream, AnOggOfMoreFramesThanThereCanBeIsRefused) {
  Bytes file = EncodedAudio(SF_FORMAT_OGG | SF_FORMAT_OPUS, 16000, Sine(440, 16000, 1500));
  const size_t page = std::string(file.begin(), file.end()).rfind("OggS");
  PutLittle(0x7fffffff, 4, page + 10, &file);
  MakeChecksumGood(page, file.size() - page, &file);
  EXPECT_THAT(Refusal(file), HasSubstr("more than 2^40 frames"));
}

}  // namespace
}  // namespace feedwater::server
