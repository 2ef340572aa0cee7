// SPDX-License-Identifier: Apache-2.0
// A build without sentencepiece: nobody gets a processor, so only its makers are ever called.
#include <peal/autograd/core/error.h>
#include <peal/data/text/sentence_piece.h>

namespace peal::data {
namespace {

[[noreturn]] void no_library() {
  fail(
      "[data] SentencePieceProcessor: this build has no sentencepiece; install it (Debian: "
      "apt-get install libsentencepiece-dev), and configure and build again");
}

}  // namespace

SentencePieceProcessor SentencePieceProcessor::load(const std::filesystem::path&) { no_library(); }
SentencePieceProcessor SentencePieceProcessor::parse(std::string_view, std::string_view) {
  no_library();
}
SentencePieceProcessor SentencePieceProcessor::train(const std::vector<std::string>&, std::int64_t,
                                                     const SentencePieceOptions&) {
  no_library();
}
std::int64_t SentencePieceProcessor::size() const { no_library(); }
std::int64_t SentencePieceProcessor::unk_id() const { no_library(); }
std::int64_t SentencePieceProcessor::bos_id() const { no_library(); }
std::int64_t SentencePieceProcessor::eos_id() const { no_library(); }
std::int64_t SentencePieceProcessor::pad_id() const { no_library(); }
std::string SentencePieceProcessor::piece(std::int64_t) const { no_library(); }
std::int64_t SentencePieceProcessor::id(std::string_view) const { no_library(); }
TokenIds SentencePieceProcessor::encode(std::string_view) const { no_library(); }
Tokens SentencePieceProcessor::encode_as_pieces(std::string_view) const { no_library(); }
std::vector<TokenIds> SentencePieceProcessor::encode_all(const std::vector<std::string>&,
                                                         int) const {
  no_library();
}
std::string SentencePieceProcessor::decode(const TokenIds&) const { no_library(); }
void SentencePieceProcessor::save(const std::filesystem::path&) const { no_library(); }

}  // namespace peal::data
