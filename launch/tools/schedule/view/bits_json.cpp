// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/half.h>
#include <peal/autograd/core/rng.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/draw/rows.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/tools/schedule/view/bits_json.h>
#include <peal/launch/tools/schedule/world.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/ddp.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

namespace peal::launch {

using nlohmann::json;

namespace {

constexpr int most_ranks = 8;
constexpr std::int64_t cache_line = 64;
constexpr std::int64_t most_elements = 32, most_steps = 500;

// A type as the page shows it.
struct Format {
  DType dtype;
  int bits, exponent;
  std::uint32_t (*round)(long double exact);  // to the nearest number of the type, as bits
  float (*value)(std::uint32_t bits);
};

template <class T>
std::uint32_t bits_of(T value) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<std::uint32_t>(value);
  } else {
    return value.bits;
  }
}

// Rounded to odd, so that rounding it once more, to 16 bits, is as rounding once.
float sticky(long double exact) {
  const auto near = static_cast<float>(exact);
  if (near == exact || (std::bit_cast<std::uint32_t>(near) & 1) != 0) return near;
  return std::nextafter(near, near < exact ? INFINITY : -INFINITY);
}

Format format_named(const std::string& name) {
  if (name == "f32") {
    return {DType::f32, 32, 8, [](long double exact) { return bits_of(static_cast<float>(exact)); },
            [](std::uint32_t bits) { return std::bit_cast<float>(bits); }};
  }
  if (name == "f16") {
    return {DType::f16, 16, 5, [](long double exact) { return bits_of(Half(sticky(exact))); },
            [](std::uint32_t bits) {
              Half value;
              value.bits = static_cast<std::uint16_t>(bits);
              return static_cast<float>(value);
            }};
  }
  PEAL_CHECK(name == "bf16", "view bits: --type: expected f32, f16 or bf16, got '", name, "'");
  return {DType::bf16, 16, 8, [](long double exact) { return bits_of(BFloat16(sticky(exact))); },
          [](std::uint32_t bits) {
            BFloat16 value;
            value.bits = static_cast<std::uint16_t>(bits);
            return static_cast<float>(value);
          }};
}

// Where a number stands among all of its type, so that neighbours differ by one.
std::int64_t place(std::uint32_t bits, const Format& format) {
  const std::int64_t sign = std::int64_t{1} << (format.bits - 1);
  const auto all = static_cast<std::int64_t>(bits);
  return all >= sign ? sign - all : all;
}

// An order of additions, and what comes of it where each result is rounded to the type, or the last
// one alone: a leaf is a rank's number.
struct Sum {
  std::string text;
  std::uint32_t bits = 0;
  float wide = 0;
};

using Memory = std::vector<std::vector<std::vector<Sum>>>;  // by rank, buffer, element

Sum& at(Memory& memory, int rank, const comm::Span& span, std::int64_t i) {
  auto& cells = memory[static_cast<std::size_t>(rank)][static_cast<std::size_t>(span.buffer)];
  const auto place = static_cast<std::size_t>(span.at + i);
  if (cells.size() <= place) cells.resize(place + 1);
  return cells[place];
}

// The plan of all ranks, followed row by row.
std::vector<Sum> followed(const comm::Entry& entry, const std::vector<std::vector<Sum>>& inputs,
                          const comm::Topology& nodes, const Format& format) {
  const auto ranks = static_cast<int>(inputs.size());
  const auto count = std::ssize(inputs[0]);
  World world = make_world(comm::Collective::all_reduce, ranks, count);
  // As the group has it.
  world.nodes = nodes;
  if (entry.one_sided) {
    world.align = cache_line / static_cast<std::int64_t>(size_of(format.dtype));
  }
  const auto programs = world.programs(entry);
  Memory memory(inputs.size(), std::vector<std::vector<Sum>>(comm::buffer_kinds));
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    memory[r][static_cast<std::size_t>(comm::Buffer::in)] = inputs[r];
  }
  const comm::Rows all = rows(programs, comm::Stuck::show);
  Memory before = memory;
  int row = 0;
  for (const comm::RowEvent& event : all.events) {
    if (event.time != row) before = memory;
    row = event.time;
    const auto kind = event.receives->kind;
    const bool adds = kind == comm::Kind::recv_reduce || kind == comm::Kind::reduce;
    for (std::int64_t i = 0; i < event.receives->dst.count; ++i) {
      const Sum got = at(before, event.from, event.sends->src, i);
      Sum& here = at(memory, event.to, event.receives->dst, i);
      if (!adds) here = got;
      if (adds) {
        const float sum = format.value(here.bits) + format.value(got.bits);
        here = {fmt::format("({} + {})", here.text, got.text), format.round(sum),
                here.wide + got.wide};
      }
    }
  }
  return memory[0][static_cast<std::size_t>(comm::Buffer::out)];
}

struct Way {
  std::string name;
  const comm::Entry* entry;  // null: not followed
  comm::ProcessGroup::Options options;
};

std::vector<std::uint32_t> sum_of(const Way& way, const comm::ProcessGroup& group,
                                  const std::vector<Sum>& inputs, const Format& format) {
  std::vector<float> mine;
  for (const Sum& one : inputs) mine.push_back(format.value(one.bits));
  const Tensor data = Tensor::from(mine, {std::ssize(mine)}).to(format.dtype);
  const View view = data;
  // Who names an algorithm for all calls gets its best form, and here it is to be this one.
  (way.entry == nullptr
       ? group.all_reduce(data)
       : group.run(comm::Collective::all_reduce, way.entry->name, view, view, {view.count}))
      .wait();
  std::vector<std::uint32_t> bits;
  for (const float value : data.to(DType::f32).to_vector<float>()) {
    bits.push_back(format.round(value));
  }
  return bits;
}

struct Summed {
  std::vector<std::vector<std::uint32_t>> by_way;
  comm::Topology nodes;  // which ranks are on one
};

// What groups make of it, the same bits on all ranks.
Summed summed(const std::vector<Way>& ways, const std::vector<std::vector<Sum>>& inputs,
              const Format& format) {
  std::vector<Summed> ranks(inputs.size());
  for (Summed& one : ranks) one.by_way.resize(ways.size());
  for (const bool deterministic : {false, true}) {
    comm::ProcessGroup::Options options;
    options.deterministic = deterministic;
    run_ranks(static_cast<int>(inputs.size()), options, [&](const comm::ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      ranks[rank].nodes = group.nodes();
      for (std::size_t w = 0; w < ways.size(); ++w) {
        if (ways[w].options.deterministic != deterministic) continue;
        ranks[rank].by_way[w] = sum_of(ways[w], group, inputs[rank], format);
      }
    });
  }
  for (const Summed& one : ranks) {
    PEAL_CHECK(one.by_way == ranks[0].by_way, "view bits: ranks have other bits");
  }
  return ranks[0];
}

// By chance, of sizes that differ; the first element is the one of all books.
std::vector<std::vector<Sum>> inputs_of(const BitsViewOptions& options, const Format& format) {
  std::vector<std::vector<Sum>> inputs(static_cast<std::size_t>(options.ranks));
  const float large = format.dtype == DType::f16 ? 4096 : 1e8F;
  for (std::int64_t r = 0; r < options.ranks; ++r) {
    for (std::int64_t e = 0; e < options.elements; ++e) {
      const auto word = [&](std::int64_t k) {
        return uniform_from(philox_word(
            options.seed, static_cast<std::uint64_t>((r * options.elements + e) * 2 + k)));
      };
      float value = (2 * word(0) - 1) * std::exp2(std::floor(8 * word(1)) - 4);
      if (e == 0) value = r == 0 ? large : r == 1 ? -large : 1;
      const std::uint32_t bits = format.round(value);
      inputs[static_cast<std::size_t>(r)].push_back(
          {fmt::format("{}", r), bits, format.value(bits)});
    }
  }
  return inputs;
}

json shown(std::uint32_t bits, const Format& format) {
  return {fmt::format("{:.9g}", format.value(bits)), bits};
}

// A rank's share of a batch that never changes, so that only the sums can differ.
std::vector<float> trained(const comm::ProcessGroup::Options& options, int ranks,
                           std::int64_t steps, std::uint64_t seed) {
  std::vector<float> losses;
  run_ranks(ranks, options, [&](const comm::ProcessGroup& group) {
    manual_seed(seed);
    nn::Sequential net{nn::Linear(8, 32), nn::Tanh(), nn::Linear(32, 32), nn::Tanh(),
                       nn::Linear(32, 4)};
    nn::DistributedDataParallel ddp(net, group);
    nn::SGD optimizer(net.named_parameters(), {.lr = 0.6});
    manual_seed(seed + 1 + static_cast<std::uint64_t>(group.rank()));
    const Tensor x = randn({16, 8}), wanted = randn({16, 4});
    for (std::int64_t step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      const Tensor missed = ddp(x) - wanted, loss = mean(missed * missed);
      if (group.rank() == 0) losses.push_back(loss.detach().to_vector<float>()[0]);
      loss.backward();
      optimizer.step();
    }
  });
  return losses;
}

std::int64_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  const auto [at, other] = std::ranges::mismatch(a, b);
  return at == a.end() ? -1 : at - a.begin();
}

std::vector<Way> ways(const std::vector<comm::Entry>& entries, int ranks) {
  std::vector<Way> all;
  for (const comm::Entry& entry : entries) {
    if (entry.what != comm::Collective::all_reduce || !entry.supports(ranks)) continue;
    Way way{std::string(entry.name), &entry, {}};
    way.options.algorithms = concat("all_reduce=", entry.name);
    all.push_back(std::move(way));
  }
  Way again = all[0];
  again.name += ", again";
  all.insert(all.begin() + 1, std::move(again));
  Way deterministic{"deterministic mode", nullptr, {}};
  deterministic.options.deterministic = true;
  all.push_back(std::move(deterministic));
  return all;
}

// Which of the two roundings the group's is; what is added at once, or in a wider type, is rounded
// once.
bool rounds_each(const Way& way, const std::vector<Sum>& orders,
                 const std::vector<std::uint32_t>& bits, const Format& format) {
  if (std::ranges::equal(orders, bits, {}, &Sum::bits)) return true;
  for (std::size_t e = 0; e < bits.size(); ++e) {
    PEAL_CHECK(format.round(orders[e].wide) == bits[e], "view bits: ", way.name, ": element ", e,
               ": the plan's order gives other bits than the group");
  }
  return false;
}

json sums_of(const Way& way, const std::vector<std::uint32_t>& bits, const comm::Topology& nodes,
             const std::vector<std::vector<Sum>>& inputs, const std::vector<std::uint32_t>& exact,
             const Format& format) {
  std::vector<Sum> orders(bits.size());
  std::string suffix;
  if (way.entry != nullptr) {
    orders = followed(*way.entry, inputs, nodes, format);
    if (!rounds_each(way, orders, bits, format)) suffix = ", rounded once";
  }
  json sums = json::array();
  for (std::size_t e = 0; e < bits.size(); ++e) {
    json one = shown(bits[e], format);
    one.push_back(std::abs(place(bits[e], format) - place(exact[e], format)));
    one.push_back(orders[e].text + suffix);
    sums.push_back(std::move(one));
  }
  return sums;
}

void check(const BitsViewOptions& options) {
  PEAL_CHECK(options.ranks >= 2 && options.ranks <= most_ranks,
             "view bits: --ranks: expected 2 to ", most_ranks, ", got ", options.ranks);
  PEAL_CHECK(options.elements >= 1 && options.elements <= most_elements,
             "view bits: --elements: expected 1 to ", most_elements, ", got ", options.elements);
  PEAL_CHECK(options.steps >= 0 && options.steps <= most_steps,
             "view bits: --steps: expected 0 to ", most_steps, ", got ", options.steps);
}

}  // namespace

json bits_json(const BitsViewOptions& options) {
  check(options);
  const Format format = format_named(options.type);
  const auto inputs = inputs_of(options, format);
  std::vector<std::uint32_t> exact;
  json parts = json::array();
  for (std::size_t e = 0; e < inputs[0].size(); ++e) {
    long double sum = 0;  // of 64 bits, which hold all of these
    json ranks = json::array();
    for (const auto& mine : inputs) {
      sum += format.value(mine[e].bits);
      ranks.push_back(shown(mine[e].bits, format));
    }
    exact.push_back(format.round(sum));
    parts.push_back({{"inputs", std::move(ranks)}, {"exact", shown(exact[e], format)}});
  }
  const std::vector<comm::Entry> entries = comm::all_algorithms();
  json algorithms = json::array();
  std::vector<float> first;
  const std::vector<Way> all = ways(entries, options.ranks);
  const Summed sums = summed(all, inputs, format);
  for (std::size_t w = 0; w < all.size(); ++w) {
    std::vector<float> losses;
    if (options.steps > 0) {
      losses = trained(all[w].options, options.ranks, options.steps, options.seed);
    }
    if (w == 0) first = losses;
    algorithms.push_back(
        {{"name", all[w].name},
         {"sums", sums_of(all[w], sums.by_way[w], sums.nodes, inputs, exact, format)},
         {"losses", losses},
         {"differs", first_difference(first, losses)}});
  }
  return {
      {"kind", "bits"},
      {"title", fmt::format("Bits: sums of {} ranks in {}, by every all_reduce", options.ranks,
                            options.type)},
      {"intro",
       "Addition of floating-point numbers rounds, so its order shows in the result. The slider "
       "is the element of the buffer; each row is an algorithm, with the order in which it adds "
       "the ranks' numbers and every bit of what comes out."},
      {"bits", format.bits},
      {"exponent", format.exponent},
      {"elements", std::move(parts)},
      {"algorithms", std::move(algorithms)}};
}

}  // namespace peal::launch
