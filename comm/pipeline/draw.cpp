// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/draw/axis.h>
#include <peal/comm/draw/escaped.h>
#include <peal/comm/pipeline/draw.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

namespace peal::comm::pipeline {
namespace {

std::string short_number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// Times a part may be a share that no binary fraction has: equal ones may differ in the last bits.
bool before(double a, double b) { return a < b - 1e-9 * std::max(1.0, std::abs(b)); }

class RunPicture {
 public:
  RunPicture(const Problem& problem, const Run& run) : problem_(problem), run_(run) {}

  std::string drawn(std::string_view title, std::string_view note) const {
    const int bottom = top + lane * static_cast<int>(run_.ranks.size());
    std::string all = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 " +
                      std::to_string(left + across + right) + " " + std::to_string(bottom + 56) +
                      "' font-family='sans-serif' font-size='12' fill='#222'>\n"
                      "<rect width='100%' height='100%' fill='white'/>\n" +
                      text(20, 24, escaped(title), "font-size='14'") + axis(bottom);
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) all += drawn(r);
    return all + legend(bottom + 8) + text(left, bottom + 46, escaped(note), "fill='#555'") +
           "</svg>\n";
  }

 private:
  static constexpr int left = 70, across = 1000, right = 150, top = 64;
  static constexpr int bar = 26, stash = 14, lane = bar + stash + 12;

  double x(double time) const { return left + time / run_.makespan * across; }
  static std::string text(double at, int y, const std::string& said, const std::string& look = "") {
    return "<text x='" + number(at, 1) + "' y='" + std::to_string(y) + "' " + look + ">" + said +
           "</text>\n";
  }
  static std::string rectangle(double x0, double x1, int y, int height, const std::string& look) {
    return "<rect x='" + number(x0, 2) + "' y='" + std::to_string(y) + "' width='" +
           number(x1 - x0, 2) + "' height='" + std::to_string(height) + "' " + look;
  }

  // Parts of a rank from light to dark.
  std::string colour(Pass pass, int chunk) const {
    constexpr std::pair<const char*, int> inks[] = {
        {"213,55%", 78}, {"140,40%", 66}, {"166,45%", 62}, {"42,85%", 70}};
    const auto [ink, light] = inks[static_cast<std::size_t>(pass)];
    return "hsl(" + std::string(ink) + "," + std::to_string(light - 26 * chunk / problem_.chunks) +
           "%)";
  }

  std::string axis(int bottom) const {
    const double step = tick(run_.makespan);
    std::string all;
    for (int i = 0; i * step <= run_.makespan; ++i) {
      all +=
          "<path d='M" + number(x(i * step), 2) + " " + std::to_string(top - 8) + "V" +
          std::to_string(bottom - 6) + "' stroke='#ddd'/>\n" +
          text(x(i * step), top - 14, short_number(i * step), "text-anchor='middle' fill='#666'");
    }
    return all;
  }

  std::string drawn(std::size_t rank) const {
    const int y = top + lane * static_cast<int>(rank);
    std::string all =
        text(left - 10, y + bar / 2 + 4, "rank " + std::to_string(rank), "text-anchor='end'");
    double work = 0;
    for (const Activity& activity : run_.ranks[rank]) {
      const Action& a = activity.action;
      const double x0 = x(activity.begin), x1 = x(activity.end);
      work += activity.end - activity.begin;
      all += rectangle(x0, x1, y, bar,
                       "fill='" + colour(a.pass, a.part / problem_.stages) +
                           "' stroke='white' stroke-width='0.8'><title>" +
                           pipeline::text(a, problem_) + "</title></rect>\n");
      const std::string micro_batch = std::to_string(a.micro_batch);
      if (x1 - x0 > 6.5 * static_cast<double>(micro_batch.size()) + 3) {
        all += text((x0 + x1) / 2, y + bar / 2 + 4, micro_batch,
                    "text-anchor='middle' font-size='11'");
      }
    }
    return all + kept(rank, y + bar + 2) +
           text(left + across + 12, y + 12,
                "busy " + number(100 * work / run_.makespan, 1) + " %") +
           text(left + across + 12, y + 30,
                "stash " + std::to_string(run_.stash[rank]) + " at most", "fill='#555'");
  }

  // What is in the stash, as steps up and down.
  std::string kept(std::size_t rank, int y) const {
    const int most = std::max(1, *std::ranges::max_element(run_.stash));
    int live = 0;
    const auto at = [&](double time) {
      return number(x(time), 2) + " " + number(y + stash * (1 - double(live) / most), 2);
    };
    std::string path = "M" + at(0);
    for (const Activity& activity : run_.ranks[rank]) {
      const Pass pass = activity.action.pass;
      if (pass == Pass::input) continue;
      const bool grows = pass == Pass::forward;
      const double time = grows ? activity.begin : activity.end;
      path += "L" + at(time);
      live += grows ? 1 : -1;
      path += "L" + at(time);
    }
    return "<path d='" + path + "z' fill='#d8c4d8'/>\n";
  }

  std::string legend(int y) const {
    std::vector<std::pair<std::string, std::string>> entries{
        {colour(Pass::forward, 0), "F: forward"}};
    if (splits_backward(problem_.kind)) {
      entries.emplace_back(colour(Pass::input, 0), "I: backward, gradient of the input");
      entries.emplace_back(colour(Pass::weight, 0), "W: backward, gradients of the weights");
    } else {
      entries.emplace_back(colour(Pass::backward, 0), "B: backward");
    }
    entries.emplace_back("#d8c4d8", "stash");
    std::string all;
    int at = left;
    for (const auto& [fill, said] : entries) {
      all += rectangle(at, at + 12, y, 12, "fill='" + fill + "'/>\n") + text(at + 18, y + 11, said);
      at += 44 + 7 * static_cast<int>(said.size());
    }
    if (problem_.chunks > 1) all += text(at, y + 11, "darker: a later part of the rank");
    return all;
  }

  const Problem& problem_;
  const Run& run_;
};

}  // namespace

std::string draw(const Problem& problem, const Run& run) {
  std::vector<double> times;
  for (const auto& rank : run.ranks) {
    for (const Activity& activity : rank) times.push_back(activity.begin);
  }
  std::ranges::sort(times);
  times.push_back(run.makespan);
  std::vector<std::vector<std::string>> rows{{"time"}};
  for (std::size_t r = 0; r < run.ranks.size(); ++r) rows[0].push_back("rank " + std::to_string(r));
  std::vector<std::size_t> next(run.ranks.size());
  for (std::size_t t = 0; t < times.size(); ++t) {
    if (t > 0 && !before(times[t - 1], times[t])) continue;
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(short_number(times[t]));
    for (std::size_t r = 0; r < run.ranks.size(); ++r) {
      const auto& activities = run.ranks[r];
      std::string begun;
      while (next[r] < activities.size() && !before(times[t], activities[next[r]].begin)) {
        begun += (begun.empty() ? "" : " ") + text(activities[next[r]++].action, problem);
      }
      const bool runs = next[r] > 0 && before(times[t], activities[next[r] - 1].end);
      row.push_back(begun.empty() && runs ? "|" : begun);
    }
  }
  std::vector<std::size_t> width(rows[0].size());
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  std::string all;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += row[c] + std::string(width[c] + 3 - row[c].size(), ' ');
    }
    all += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return all;
}

std::string svg(const Problem& problem, const Run& run, std::string_view title,
                std::string_view note) {
  return RunPicture(problem, run).drawn(title, note);
}

}  // namespace peal::comm::pipeline
