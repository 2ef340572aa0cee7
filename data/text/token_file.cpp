// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/rows.h>
#include <peal/data/text/letters.h>
#include <peal/data/text/token_file.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

namespace peal::data {
namespace {

constexpr std::string_view magic_of_tokens = "PEALTOK1";
constexpr std::int64_t header_bytes = 24;

void put_number(std::string& to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
}

std::int64_t number_at(const unsigned char* from, std::int64_t bytes) {
  std::uint64_t value = 0;
  for (std::int64_t i = 0; i < bytes; ++i) value |= std::uint64_t{from[i]} << (8 * i);
  return static_cast<std::int64_t>(value);
}

// The whole file, read only; `size` gets its bytes.
std::shared_ptr<const void> map_file(const std::string& path, std::int64_t& size) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  PEAL_CHECK(file >= 0, "[data] ", path, ": cannot open: ", std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  size = known ? static_cast<std::int64_t>(status.st_size) : 0;
  void* const at = size >= header_bytes ? ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ,
                                                 MAP_PRIVATE, file, 0)
                                        : MAP_FAILED;
  const int problem = errno;
  ::close(file);  // the mapping stays
  PEAL_CHECK(known && size >= header_bytes, "[data] ", path,
             ": expected a file of tokens, of at least ", header_bytes, " bytes, got ",
             known ? concat(size, " bytes") : std::string("no file"));
  PEAL_CHECK(at != MAP_FAILED, "[data] ", path, ": cannot be mapped: ", std::strerror(problem));
  return {at, [bytes = static_cast<std::size_t>(size)](const void* mapped) {
            ::munmap(const_cast<void*>(mapped), bytes);
          }};
}

std::int64_t bytes_of_token(const std::string& name, std::int64_t vocabulary) {
  PEAL_CHECK(vocabulary >= 1 && vocabulary <= std::int64_t{1} << 32, "[data] ", name,
             ": expected a vocabulary of 1 to 2^32 tokens, got ", vocabulary);
  return vocabulary <= std::int64_t{1} << 16 ? 2 : 4;
}

// Tokens at, at + 1, ... as they are in a file, `part` of them or what there is.
std::string packed_tokens(const std::string& name, std::span<const std::int64_t> tokens,
                          std::size_t at, std::size_t part, std::int64_t vocabulary) {
  const int bytes = static_cast<int>(bytes_of_token(name, vocabulary));
  std::string text;
  for (std::size_t i = at; i < std::min(tokens.size(), at + part); ++i) {
    PEAL_CHECK(tokens[i] >= 0 && tokens[i] < vocabulary, "[data] ", name, ": token ", i, " is ",
               tokens[i], ", expected one below ", vocabulary);
    put_number(text, static_cast<std::uint64_t>(tokens[i]), bytes);
  }
  return text;
}

}  // namespace

void save_tokens(const std::filesystem::path& path, std::span<const std::int64_t> tokens,
                 std::int64_t vocabulary) {
  const std::int64_t bytes = bytes_of_token(path.string(), vocabulary);
  std::string header(magic_of_tokens);
  put_number(header, static_cast<std::uint64_t>(bytes), 4);
  put_number(header, static_cast<std::uint64_t>(vocabulary - 1), 4);
  put_number(header, tokens.size(), 8);
  AtomicFile file(path);
  file.write(header.data(), header.size());
  constexpr std::size_t part = std::size_t{1} << 18;
  for (std::size_t at = 0; at < tokens.size(); at += part) {
    const std::string packed = packed_tokens(path.string(), tokens, at, part, vocabulary);
    file.write(packed.data(), packed.size());
  }
  file.commit();
}

TokenFile TokenFile::in_memory(std::span<const std::int64_t> tokens, std::int64_t vocabulary) {
  TokenFile made;
  made.name_ = "tokens in memory";
  made.bytes_ = bytes_of_token(made.name_, vocabulary);
  made.count_ = std::ssize(tokens);
  made.vocabulary_ = vocabulary;
  const auto packed = std::make_shared<const std::string>(
      packed_tokens(made.name_, tokens, 0, tokens.size(), vocabulary));
  made.tokens_ = reinterpret_cast<const unsigned char*>(packed->data());
  made.mapped_ = packed;
  return made;
}

TokenFile::TokenFile(const std::filesystem::path& path) : name_(path.string()) {
  std::int64_t size = 0;
  mapped_ = map_file(name_, size);
  const auto* const start = static_cast<const unsigned char*>(mapped_.get());
  PEAL_CHECK(std::memcmp(start, magic_of_tokens.data(), magic_of_tokens.size()) == 0, "[data] ",
             name_, ": not a file of tokens: it does not begin with ", magic_of_tokens);
  bytes_ = number_at(start + 8, 4);
  vocabulary_ = number_at(start + 12, 4) + 1;
  count_ = number_at(start + 16, 8);
  tokens_ = start + header_bytes;
  PEAL_CHECK(bytes_ == 2 || bytes_ == 4, "[data] ", name_,
             ": expected tokens of 2 or 4 bytes, got ", bytes_);
  const std::int64_t there = (size - header_bytes) / bytes_;
  PEAL_CHECK(count_ == there && (size - header_bytes) % bytes_ == 0, "[data] ", name_,
             ": expected ", count_, " tokens of ", bytes_, " bytes, got ", size - header_bytes,
             " bytes; the file is truncated, or longer than it says");
}

void TokenFile::read(std::int64_t begin, std::span<std::int64_t> to) const {
  PEAL_CHECK(begin >= 0 && begin <= count_ && std::ssize(to) <= count_ - begin, "[data] ", name_,
             ": expected tokens from 0 to ", count_ - 1, ", asked for ", to.size(), " from ",
             begin);
  const unsigned char* from = tokens_ + begin * bytes_;
  for (std::int64_t& token : to) {
    token = bytes_ == 2 ? number_at(from, 2) : number_at(from, 4);
    PEAL_CHECK(token < vocabulary_, "[data] ", name_, ": token ", begin + (&token - to.data()),
               " is ", token, ", expected one below ", vocabulary_, "; the file is damaged");
    from += bytes_;
  }
}

TokenWindows::TokenWindows(std::shared_ptr<const TokenFile> file, std::int64_t length,
                           std::int64_t stride, bool to_end)
    : file_(std::move(file)), length_(length), stride_(stride == 0 ? length : stride) {
  PEAL_CHECK(file_, "[data] windows of tokens: expected a file, got none");
  PEAL_CHECK(
      length_ >= 1 && stride_ >= 1,
      "[data] windows of tokens: expected a length of at least 1 and a stride of at least 0, "
      "got ",
      length, " and ", stride);
  PEAL_CHECK(file_->size() > length_, "[data] windows of tokens: ", file_->size(),
             " tokens are too few for one window of ", length_, " and the token behind it");
  whole_ = (file_->size() - 1 - length_) / stride_ + 1;
  told_ = (whole_ - 1) * stride_ + length_;
  to_end_ = to_end && told_ < file_->size() - 1;
}

std::int64_t TokenWindows::size() const { return whole_ + (to_end_ ? 1 : 0); }

Batch TokenWindows::get(std::span<const std::int64_t> indices) const {
  const std::int64_t count = std::ssize(indices);
  Batch batch{Tensor::empty({count, length_}, DType::i64, Device{}),
              Tensor::empty({count, length_}, DType::i64, Device{})};
  std::int64_t* x = batch.x.data<std::int64_t>();
  std::int64_t* y = batch.y.data<std::int64_t>();
  std::vector<std::int64_t> window(static_cast<std::size_t>(length_) + 1);
  for (const std::int64_t index : indices) {
    check_index("windows of tokens", index, size());
    const std::int64_t begin = index < whole_ ? index * stride_ : file_->size() - 1 - length_;
    file_->read(begin, window);
    x = std::copy(window.begin(), window.end() - 1, x);
    std::int64_t* const end = std::copy(window.begin() + 1, window.end(), y);
    if (index == whole_) std::fill_n(y, std::max<std::int64_t>(0, told_ - begin), -100);
    y = end;
  }
  return batch;
}

CharacterVocabulary::CharacterVocabulary(std::string_view text) : characters_(characters_of(text)) {
  std::sort(characters_.begin(), characters_.end());
  characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
}

TokenIds CharacterVocabulary::encode(std::string_view text) const {
  TokenIds numbers;
  std::int64_t line = 1;
  for (const char32_t c : characters_of(text)) {
    const auto found = std::lower_bound(characters_.begin(), characters_.end(), c);
    PEAL_CHECK(found != characters_.end() && *found == c, "[data] characters, line ", line, ": '",
               utf8_of({&c, 1}), "' is none of the ", size(), " that the vocabulary has");
    numbers.push_back(found - characters_.begin());
    line += c == '\n';
  }
  return numbers;
}

std::string CharacterVocabulary::decode(const TokenIds& numbers) const {
  Characters text;
  for (const std::int64_t number : numbers) {
    check_index("characters", number, size());
    text += characters_[static_cast<std::size_t>(number)];
  }
  return utf8_of(text);
}

void CharacterVocabulary::save(const std::filesystem::path& path) const {
  const std::string text = utf8_of(characters_);
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

CharacterVocabulary CharacterVocabulary::load(const std::filesystem::path& path) {
  const auto text = read_file(path);
  PEAL_CHECK(!text.empty(), "[data] ", path.string(),
             ": expected the characters of a vocabulary, got an empty file");
  return CharacterVocabulary({reinterpret_cast<const char*>(text.data()), text.size()});
}

}  // namespace peal::data
