// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/pipeline/orders.h>

#include <algorithm>

namespace peal::comm::pipeline {
namespace {

using Order = std::vector<Action>;

Order gpipe(int m, int rank) {
  Order order;
  for (int i = 0; i < m; ++i) order.push_back({Pass::forward, rank, i});
  for (int i = 0; i < m; ++i) order.push_back({Pass::backward, rank, i});
  return order;
}

// `ahead` forwards, then one of each in turn, then the backwards that are left.
Order one_f_one_b(const Order& forwards, const Order& backwards, int ahead) {
  Order order;
  std::size_t f = 0;
  const auto forward = [&] {
    if (f < forwards.size()) order.push_back(forwards[f++]);
  };
  for (int i = 0; i < ahead; ++i) forward();
  for (const Action& backward : backwards) {
    forward();
    order.push_back(backward);
  }
  return order;
}

Order one_f_one_b(int p, int m, int rank) {
  Order forwards, backwards;
  for (int i = 0; i < m; ++i) {
    forwards.push_back({Pass::forward, rank, i});
    backwards.push_back({Pass::backward, rank, i});
  }
  return one_f_one_b(forwards, backwards, p - rank - 1);
}

// With whole groups.
Order interleaved(int p, int m, int v, int rank) {
  Order forwards, backwards;
  for (int group = 0; group < m; group += p) {
    for (int chunk = 0; chunk < v; ++chunk) {
      for (int i = group; i < group + p; ++i) {
        forwards.push_back({Pass::forward, chunk * p + rank, i});
        backwards.push_back({Pass::backward, (v - 1 - chunk) * p + rank, i});
      }
    }
  }
  return one_f_one_b(forwards, backwards, 2 * (p - rank - 1) + (v - 1) * p);
}

Order zb_h1(int p, int m, int rank) {
  Order order;
  int weights = 0;
  for (const Action& action : one_f_one_b(p, m, rank)) {
    if (action.pass == Pass::forward) {
      order.push_back(action);
      continue;
    }
    const int i = action.micro_batch;
    order.push_back({Pass::input, rank, i});
    // In the end, when no forward is left to be kept waiting, each I is followed by a W.
    const bool ends = i + std::min(m, p - rank - 1) >= m;
    if (i + 1 - weights > rank || ends) order.push_back({Pass::weight, rank, weights++});
  }
  for (; weights < m; ++weights) order.push_back({Pass::weight, rank, weights});
  return order;
}

// For at least 2p - 1 micro-batches.
Order zb_v(int p, int m, int rank) {
  Order order;
  const int down = rank, up = 2 * p - 1 - rank;  // the two parts
  int down_f = 0, up_f = 0, down_b = 0, up_b = 0;
  const auto run = [&](Pass pass, int part, int i) { order.push_back({pass, part, i}); };
  const auto backward = [&](int part, int& i) {
    run(Pass::input, part, i);
    run(Pass::weight, part, i++);
  };
  for (int i = 0; i < 2 * (p - rank) - 1; ++i) run(Pass::forward, down, down_f++);
  for (int i = 0; i < rank; ++i) {
    run(Pass::forward, up, up_f++);
    run(Pass::forward, down, down_f++);
  }
  for (int i = 0; i < p - rank; ++i) {
    run(Pass::forward, up, up_f++);
    backward(up, up_b);
  }
  while (up_f < m) {
    if (down_f < m) run(Pass::forward, down, down_f++);
    backward(down, down_b);
    run(Pass::forward, up, up_f++);
    backward(up, up_b);
  }
  int down_w = down_b, up_w = up_b;
  for (int i = 0; i < rank; ++i) {
    run(Pass::input, down, down_b++);
    run(Pass::input, up, up_b++);
  }
  for (int i = 0; i < p - rank; ++i) {
    run(Pass::input, down, down_b++);
    run(Pass::weight, down, down_w++);
  }
  while (up_w < m) run(Pass::weight, up, up_w++);
  while (down_w < m) run(Pass::weight, down, down_w++);
  return order;
}

}  // namespace

std::vector<Action> order(const Problem& problem, int rank) {
  const int p = problem.stages, m = problem.micro_batches;
  const auto in_problem = [m](Order whole) {
    std::erase_if(whole, [m](const Action& action) { return action.micro_batch >= m; });
    return whole;
  };
  switch (problem.kind) {
    case Kind::gpipe:
      return gpipe(m, rank);
    case Kind::one_f_one_b:
      return one_f_one_b(p, m, rank);
    case Kind::interleaved:
      return in_problem(interleaved(p, m, problem.chunks, rank));
    case Kind::zb_h1:
      return zb_h1(p, m, rank);
    case Kind::zb_v:
      return in_problem(zb_v(p, std::max(m, 2 * p - 1), rank));
  }
  return {};
}

}  // namespace peal::comm::pipeline
