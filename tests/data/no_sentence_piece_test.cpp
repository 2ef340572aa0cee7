// SPDX-License-Identifier: Apache-2.0
// A build without sentencepiece says what to install; linked with what takes the library's place.
#include <doctest/doctest.h>
#include <peal/data/text/sentence_piece.h>
#include <peal/tests/errors.h>

using peal::data::SentencePieceProcessor;
using peal::testing::check_has;
using peal::testing::error_of;

TEST_CASE("without the library, what makes a processor says what to install") {
  const std::string words =
      "this build has no sentencepiece; install it (Debian: apt-get install "
      "libsentencepiece-dev)";
  check_has(error_of([] { SentencePieceProcessor::load("nowhere"); }), words);
  check_has(error_of([] { SentencePieceProcessor::parse("", "M"); }), words);
  check_has(error_of([] { SentencePieceProcessor::train({"a text"}, 9); }), words);
}
