// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/affinity.h>
#include <peal/launch/run/part.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>

namespace peal::launch {
namespace {

// Its length, a colon, and the word: it may hold anything.
std::string framed(std::string_view word) {
  std::string text = std::to_string(word.size()) + ":";
  return text += word;
}

std::string framed(const std::vector<std::string>& words) {
  std::string text = framed(std::to_string(words.size()));
  for (const std::string& word : words) text += framed(word);
  return text;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  std::string word() {
    std::size_t length = 0;
    const char* const end = text_.data() + text_.size();
    const auto [stop, problem] = std::from_chars(text_.data(), end, length);
    const bool good = problem == std::errc{} && stop != end && *stop == ':' &&
                      static_cast<std::size_t>(end - stop) > length;
    PEAL_CHECK(good, "what came is no plan of a job: is peal-run the same on all hosts?");
    std::string word(stop + 1, length);
    text_.remove_prefix(static_cast<std::size_t>(stop + 1 - text_.data()) + length);
    return word;
  }
  int number() { return std::atoi(word().c_str()); }
  std::vector<std::string> words() {
    std::vector<std::string> all;
    for (int left = number(); left > 0; --left) all.push_back(word());
    return all;
  }

 private:
  std::string_view text_;
};

}  // namespace

std::string encode(const Part& part) {
  const Attempt& attempt = part.attempt;
  std::string text = framed({attempt.host, attempt.run, attempt.secret, attempt.gpus, part.host,
                             part.folder, concat(part.grace), concat(part.term_grace)});
  for (const int number : {attempt.world, attempt.port, attempt.restart, attempt.max_restarts,
                           part.first, part.count, int{part.tag}, int{part.bind}}) {
    text += framed(std::to_string(number));
  }
  return text + framed(part.program) + framed(part.exported);
}

Part decode(std::string_view text) {
  Reader reader(text);
  const auto words = reader.words();
  PEAL_CHECK(words.size() == 8, "a plan of another peal-run's");
  Part part;
  part.attempt = {.host = words[0], .run = words[1], .secret = words[2], .gpus = words[3]};
  part.host = words[4];
  part.folder = words[5];
  part.grace = std::atof(words[6].c_str());
  part.term_grace = std::atof(words[7].c_str());
  for (int* const number : {&part.attempt.world, &part.attempt.port, &part.attempt.restart,
                            &part.attempt.max_restarts, &part.first, &part.count}) {
    *number = reader.number();
  }
  part.tag = reader.number() != 0;
  part.bind = reader.number() != 0;
  part.program = reader.words();
  part.exported = reader.words();
  return part;
}

Patience patience_of(double grace, double term_grace) {
  const auto of = [](double seconds) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(std::min(1e8, seconds)));  // nanoseconds end at 9e9
  };
  return {.grace = of(grace), .term = of(term_grace)};
}

Outcome run_part(const Part& part, Supervisor& supervisor, bool reads) {
  const OpenFile nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto cores = cpus_by_core(allowed_cpus()), numa_nodes = cpus_by_numa_node();
  const auto inherited = own_environment();
  for (int local = 0; local < part.count; ++local) {
    const int rank = part.first + local;
    Command command{
        .words = part.program,
        .environment =
            rank_environment(inherited, part.attempt, rank, local, part.count, part.bind),
        .cpus = part.bind ? even_share(cores, numa_nodes, local, part.count) : std::vector<int>{},
        .in = rank == 0 && reads ? -1 : nothing.fd()};
    const std::string tag = part.tag ? concat("[", rank, "] ") : "";
    supervisor.start(concat("rank ", rank), std::move(command), tag);
  }
  return supervisor.run();
}

}  // namespace peal::launch
