// SPDX-License-Identifier: Apache-2.0
// Sentence pieces: what Python's sentencepiece (0.2.3) makes of the same models, which are trained
// here; files that are cut off or others'.
#include <doctest/doctest.h>
#include <peal/data/text/sentence_piece.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <string>
#include <vector>

using peal::data::SentencePieceOptions;
using peal::data::SentencePieceProcessor;
using peal::data::TokenIds;
using peal::data::Tokens;
using peal::testing::check_has;
using peal::testing::content_of;
using peal::testing::error_of;
using peal::testing::Folder;

namespace {

const std::vector<std::string> texts{
    "the cat sat on the mat\nthe cat's hat is not on the mat",
    "a dog and a cat ran to the house of the dog",
    "houses, cats, dogs: the owl saw them all\n\nthe owl hid; the café was near the house"};
const std::vector<std::string> others{"the cats ran to the café", "Über  den\tHut: 12",
                                      " a dog, \n", ""};

SentencePieceProcessor unigram() { return SentencePieceProcessor::train(texts, 36); }
SentencePieceProcessor lossless() {
  return SentencePieceProcessor::train(texts, 320,
                                       {.model_type = "bpe",
                                        .normalization_rule_name = "identity",
                                        .remove_extra_whitespaces = false,
                                        .byte_fallback = true});
}

std::string bytes_of(const SentencePieceProcessor& processor) {
  const Folder folder;
  processor.save(folder.path / "m.model");
  return content_of(folder.path / "m.model");
}

}  // namespace

TEST_CASE("pieces and numbers are those of Python's sentencepiece") {
  const SentencePieceProcessor pieces = unigram();
  CHECK(pieces.size() == 36);
  CHECK(pieces.unk_id() == 0);
  CHECK(pieces.bos_id() == 1);
  CHECK(pieces.eos_id() == 2);
  CHECK(pieces.pad_id() == -1);
  CHECK(pieces.piece(7) == "w");
  CHECK(pieces.id("▁the") == 3);
  CHECK(pieces.id("zz") == pieces.unk_id());
  const std::vector<TokenIds> numbers{{3, 9, 5, 4, 18, 26, 4, 24, 17, 3, 4, 34, 16, 21, 30},
                                      {4, 0, 31, 18, 4, 20, 31, 15, 4, 0, 32, 24, 28, 4, 0},
                                      {11, 14, 19},
                                      {}};
  for (std::size_t i = 0; i < others.size(); ++i) CHECK(pieces.encode(others[i]) == numbers[i]);
  CHECK(pieces.encode_as_pieces(others[0]) == Tokens{"▁the", "▁cat", "s", "▁", "r", "an", "▁", "t",
                                                     "o", "▁the", "▁", "c", "a", "f", "é"});
  CHECK(pieces.decode(numbers[0]) == others[0]);
  CHECK(pieces.decode(numbers[1]) == " \u2047 er den  \u2047 ut:  \u2047 ");
  CHECK(pieces.decode(numbers[2]) == "a dog,");
}

TEST_CASE("so are those of byte pairs that fall back to bytes") {
  const SentencePieceProcessor pieces = lossless();
  CHECK(pieces.piece(7) == "<0x04>");
  const std::vector<TokenIds> numbers{
      {261, 267, 303, 292, 283, 259, 302, 261, 263, 294},
      {297, 198, 159, 101, 301, 315, 297, 297, 306, 301, 304, 12, 75, 311, 298, 317, 297, 52, 53},
      {297, 266, 273, 312, 297, 13},
      {}};
  for (std::size_t i = 0; i < others.size(); ++i) CHECK(pieces.encode(others[i]) == numbers[i]);
}

TEST_CASE("a text of UTF-8 comes back whole, by several threads too") {
  const SentencePieceProcessor pieces = lossless();
  const std::vector<TokenIds> all = pieces.encode_all(others, 3);
  for (std::size_t i = 0; i < others.size(); ++i) {
    CHECK(all[i] == pieces.encode(others[i]));
    CHECK(pieces.decode(all[i]) == others[i]);
  }
  CHECK(bytes_of(lossless()) == bytes_of(pieces));  // the same texts, the same model
}

TEST_CASE("a model is saved and loaded as it is") {
  const Folder folder;
  const SentencePieceProcessor pieces = unigram();
  pieces.save(folder.path / "m.model");
  const auto loaded = SentencePieceProcessor::load(folder.path / "m.model");
  CHECK(loaded.size() == pieces.size());
  CHECK(loaded.encode(texts[0]) == pieces.encode(texts[0]));
  CHECK(bytes_of(loaded) == bytes_of(pieces));
}

TEST_CASE("a file that is cut off, or no model, is refused with its name") {
  const std::string model = bytes_of(unigram());
  const Folder folder;
  for (std::size_t size = 0; size < model.size(); size += size < 2000 ? 1 : 997) {
    CAPTURE(size);
    check_has(error_of([&] { SentencePieceProcessor::parse(model.substr(0, size), "M"); }),
              "[data] M: a model of sentencepiece that is cut off, or none: ");
  }
  const auto refused = [](const std::string& bytes, const std::string& words) {
    check_has(error_of([&] { SentencePieceProcessor::parse(bytes, "M"); }), words);
  };
  refused("", "it has no pieces");
  refused(model.substr(0, model.size() - 1),
          "goes beyond the end, at " + std::to_string(model.size() - 1));
  refused("#version: 0.2\nt h\n", "[data] M: no model of sentencepiece, at byte 0");
  refused(model + "PK", "no model of sentencepiece, at byte " + std::to_string(model.size()));
  refused(std::string("\x0a\x00\x12\x00\x1a\x00", 6), "[data] M: sentencepiece: ");
  check_has(error_of([&] { SentencePieceProcessor::load(folder.path / "nowhere"); }), "nowhere");
}

TEST_CASE("what cannot be learnt, encoded or decoded is said") {
  const auto refused = [](const auto& f, const std::string& words) {
    check_has(error_of(f), words);
  };
  refused([] { SentencePieceProcessor::train({}, 36); }, "train: the texts are empty");
  refused([] { SentencePieceProcessor::train({"\n", ""}, 36); }, "train: the texts are empty");
  refused([] { SentencePieceProcessor::train(texts, 4000); }, "Vocabulary size too high");
  refused([] { SentencePieceProcessor::train(texts, 5); }, "train: sentencepiece: ");
  refused([] { SentencePieceProcessor::train(texts, 36, {.model_type = "words"}); },
          "train: sentencepiece: ");
  const SentencePieceProcessor pieces = unigram();
  refused([&] { pieces.decode({3, 36}); }, "expected the number of a piece, 0 to 35, got 36");
  refused([&] { pieces.piece(-1); }, "expected the number of a piece, 0 to 35, got -1");
}
