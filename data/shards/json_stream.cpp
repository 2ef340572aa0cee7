// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/shards/json_stream.h>
#include <peal/data/shards/windowed.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace peal::data {
namespace {

struct NumberedLine {
  std::string text;
  std::int64_t number = 0;  // from 1
};

// The lines of a file that are not blank, one after the other.
class LineReader {
 public:
  explicit LineReader(const std::string& name) : name_(name), reader_(open_bytes(name), name) {}

  std::optional<NumberedLine> next() {
    NumberedLine line;
    while (true) {
      const auto stop = std::find(at_, end_, '\n');
      line.text.append(at_, stop);
      PEAL_CHECK(line.text.size() <= longest_line, "[data] ", name_, ":", number_ + 1,
                 ": expected a line of at most ", longest_line, " bytes");
      const bool whole = stop != end_;
      at_ = whole ? stop + 1 : stop;
      if (!whole && fill()) continue;
      if (!whole && line.text.empty()) return std::nullopt;
      line.number = ++number_;
      if (number_ == 1 && line.text.starts_with("\xef\xbb\xbf")) line.text.erase(0, 3);
      if (line.text.find_first_not_of(" \t\r") != std::string::npos) return line;
      line.text.clear();
    }
  }

 private:
  bool fill() {
    step_.resize(std::size_t{1} << 16);
    step_.resize(reader_.read(step_));
    PEAL_CHECK(!reader_.cut_short(), "[data] ", name_,
               ": its gzip stream is cut short; copy or download the file again");
    at_ = reinterpret_cast<const char*>(step_.data());
    end_ = at_ + step_.size();
    return !step_.empty();
  }

  std::string name_;
  GzipReader reader_;
  std::vector<std::uint8_t> step_;
  const char *at_ = nullptr, *end_ = nullptr;  // what is left of it
  std::int64_t number_ = 0;                    // of the last line
};

}  // namespace

JsonStream::JsonStream(std::vector<std::string> files, FromRecord make, JsonStreamOptions options)
    : files_(std::move(files)), make_(std::move(make)), options_(std::move(options)) {
  PEAL_CHECK(!files_.empty(), "[data] JSON stream: expected files, got none");
  PEAL_CHECK(make_, "[data] JSON stream: expected a function that makes a sample of a line");
  PEAL_CHECK(options_.window >= 1, "[data] JSON stream: expected a window of at least 1, got ",
             options_.window);
}

StreamDataset::Reader JsonStream::read(std::int64_t part, std::int64_t from,
                                       const Draws& draws) const {
  const std::string name = files_.at(static_cast<std::size_t>(part));
  const auto reader = std::make_shared<LineReader>(name);
  return [=, this,
          next = windowed<NumberedLine>([reader](bool) { return reader->next(); }, part, from,
                                        options_.window, draws)]() mutable -> std::optional<Batch> {
    const auto found = next();
    if (!found) return std::nullopt;
    Draw draw = draws.of(number_in_stream(part, found->second));
    try {
      const auto& [text, number] = found->first;
      const Sample sample = made_of(make_, JsonRecord(text, concat(name, ":", number)), draw);
      return data::collate(std::span(&sample, 1));
    } catch (const std::exception& failure) {
      if (ran_out_of_memory()) throw;
      std::throw_with_nested(BadStreamSample(failure.what()));
    }
  };
}

Batch JsonStream::collate(std::span<const Batch> samples) const {
  return joined(samples, options_.together);
}

}  // namespace peal::data
