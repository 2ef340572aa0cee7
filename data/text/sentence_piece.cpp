// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/in_parallel.h>
#include <peal/data/text/sentence_piece.h>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <array>
#include <cstddef>
#include <limits>
#include <unordered_map>
#include <utility>

namespace peal::data {

struct SentencePieceProcessor::Model {
  sentencepiece::SentencePieceProcessor library;
  std::string bytes;
};

namespace {

void check_done(const sentencepiece::util::Status& status, std::string_view what) {
  PEAL_CHECK(status.ok(), "[data] ", what, ": sentencepiece: ", status.error_message());
}

// A varint of protobuf (its "Encoding", "Base 128 varints"), taken off the front; false where the
// bytes end within it.
bool take_varint(std::string_view& bytes, std::uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// A model is a protobuf message (sentencepiece_model.proto) of pieces, then how it was trained,
// then how texts are normalised. The library takes what is cut off between two of these for a
// smaller model, so look whether all are there.
void check_model(std::string_view bytes, std::string_view name) {
  constexpr std::uint64_t with_length = 2;
  std::array<bool, 4> found{};
  const std::size_t size = bytes.size();
  while (!bytes.empty()) {
    const std::size_t at = size - bytes.size();
    std::uint64_t tag = 0, length = 0;
    const bool whole = take_varint(bytes, tag);
    PEAL_CHECK(!whole || (tag % 8 == with_length && tag / 8 > 0), "[data] ", name,
               ": no model of sentencepiece, at byte ", at);
    const bool cut_off = !whole || !take_varint(bytes, length) || length > bytes.size();
    PEAL_CHECK(!cut_off, "[data] ", name,
               ": a model of sentencepiece that is cut off, or none: ", "what begins at byte ", at,
               " goes beyond the end, at ", size);
    bytes.remove_prefix(static_cast<std::size_t>(length));
    if (tag / 8 < found.size()) found[static_cast<std::size_t>(tag / 8)] = true;
  }
  constexpr std::array<const char*, 4> parts{"", "pieces", "settings of its training",
                                             "rules of its texts"};
  for (std::size_t part = 1; part < found.size(); ++part) {
    PEAL_CHECK(found[part], "[data] ", name,
               ": a model of sentencepiece that is cut off, or none: ", "it has no ", parts[part]);
  }
}

class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& texts) : text_(texts.begin()), end_(texts.end()) {
    Next();
  }
  bool done() const override { return done_; }
  // The next line with something in it.
  void Next() override {
    for (; text_ != end_; ++text_, at_ = 0) {
      while (at_ < text_->size()) {
        const std::size_t end = std::min(text_->find('\n', at_), text_->size());
        line_ = text_->substr(at_, end - at_);
        at_ = end + 1;
        if (!line_.empty()) return;
      }
    }
    done_ = true;
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string>::const_iterator text_, end_;
  std::size_t at_ = 0;
  std::string line_;
  bool done_ = false;
};

}  // namespace

SentencePieceProcessor::SentencePieceProcessor(std::shared_ptr<const Model> model)
    : model_(std::move(model)) {}

SentencePieceProcessor SentencePieceProcessor::parse(std::string_view bytes,
                                                     std::string_view name) {
  check_model(bytes, name);
  const auto model = std::make_shared<Model>();
  model->bytes = bytes;
  check_done(model->library.LoadFromSerializedProto(bytes), name);
  return SentencePieceProcessor(model);
}

SentencePieceProcessor SentencePieceProcessor::load(const std::filesystem::path& path) {
  const std::vector<std::uint8_t> content = read_file(path);
  return parse({reinterpret_cast<const char*>(content.data()), content.size()}, path.string());
}

SentencePieceProcessor SentencePieceProcessor::train(const std::vector<std::string>& texts,
                                                     std::int64_t pieces,
                                                     const SentencePieceOptions& options) {
  constexpr const char* name = "SentencePieceProcessor::train";
  Lines lines(texts);
  PEAL_CHECK(!lines.done(), "[data] ", name, ": the texts are empty");
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  std::string bytes;
  check_done(sentencepiece::SentencePieceTrainer::Train(
                 {{"vocab_size", std::to_string(pieces)},
                  {"model_type", options.model_type},
                  {"character_coverage", concat(options.character_coverage)},
                  {"normalization_rule_name", options.normalization_rule_name},
                  {"remove_extra_whitespaces", flag(options.remove_extra_whitespaces)},
                  {"byte_fallback", flag(options.byte_fallback)},
                  {"minloglevel", "2"}},  // not how far it is
                 &lines, &bytes),
             name);
  return parse(bytes, name);
}

std::int64_t SentencePieceProcessor::size() const { return model_->library.GetPieceSize(); }
std::int64_t SentencePieceProcessor::unk_id() const { return model_->library.unk_id(); }
std::int64_t SentencePieceProcessor::bos_id() const { return model_->library.bos_id(); }
std::int64_t SentencePieceProcessor::eos_id() const { return model_->library.eos_id(); }
std::int64_t SentencePieceProcessor::pad_id() const { return model_->library.pad_id(); }

std::string SentencePieceProcessor::piece(std::int64_t id) const {
  PEAL_CHECK(id >= 0 && id < size(), "[data] sentencepiece: expected the number of a piece, 0 to ",
             size() - 1, ", got ", id);
  return model_->library.IdToPiece(static_cast<int>(id));
}

std::int64_t SentencePieceProcessor::id(std::string_view piece) const {
  return model_->library.PieceToId(piece);
}

TokenIds SentencePieceProcessor::encode(std::string_view text) const {
  std::vector<int> ids;
  check_done(model_->library.Encode(text, &ids), "encode");
  return {ids.begin(), ids.end()};
}

Tokens SentencePieceProcessor::encode_as_pieces(std::string_view text) const {
  Tokens pieces;
  check_done(model_->library.Encode(text, &pieces), "encode_as_pieces");
  return pieces;
}

std::vector<TokenIds> SentencePieceProcessor::encode_all(const std::vector<std::string>& texts,
                                                         int threads) const {
  std::vector<TokenIds> all(texts.size());
  in_parallel(std::ssize(texts), threads, [&](std::int64_t i) {
    all[static_cast<std::size_t>(i)] = encode(texts[static_cast<std::size_t>(i)]);
  });
  return all;
}

std::string SentencePieceProcessor::decode(const TokenIds& ids) const {
  std::vector<int> numbers;
  for (const std::int64_t id : ids) {
    PEAL_CHECK(id >= 0 && id < size(),
               "[data] sentencepiece: expected the number of a piece, 0 to ", size() - 1, ", got ",
               id);
    numbers.push_back(static_cast<int>(id));
  }
  std::string text;
  check_done(model_->library.Decode(numbers, &text), "decode");
  return text;
}

void SentencePieceProcessor::save(const std::filesystem::path& path) const {
  AtomicFile file(path);
  file.write(model_->bytes.data(), model_->bytes.size());
  file.commit();
}

}  // namespace peal::data
