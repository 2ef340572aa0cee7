# SPDX-License-Identifier: Apache-2.0
# Who may include whom: the table of rooms (the first file, tests/style/rooms.txt) against the includes of all others.
# Prints `file:line: rule` for each violation, and each circle of files and of rooms. With -v figures=1: the figures of
# the graph instead.
function violation(where, rule) { if (!figures) print where ": " rule }

# The room of a path: the longest that it is, is in, or begins with.
function room_of(path,   end) {
  for (end = length(path); end > 0; --end) {
    if (substr(path, end + 1, 1) ~ /^([\/._]|$)/ && substr(path, 1, end) in at) return substr(path, 1, end)
  }
  return ""
}

function may(from, to,   i, n, word) {
  n = split(sees[from], word, " ")
  for (i = 1; i <= n; ++i) {
    if (word[i] == to) return 1
    if (word[i] ~ /\/$/ && index(to "/", word[i]) == 1 && at[to] < at[from]) return 1
  }
  return 0
}

function arrow(kind, from, to) {
  if (from == to) return
  if (!((kind, from, to) in known)) {
    known[kind, from, to] = 1
    ends[kind, from] = ends[kind, from] " " to
    ++arrows[kind]
  }
  node[kind, from] = node[kind, to] = 1
}

# Goes along the arrows; a node met again while it is still open closes a circle, which the open ones spell out.
function visit(kind, name, path,   i, n, next_ones, rest) {
  open[kind, name] = 1
  n = split(ends[kind, name], next_ones, " ")
  for (i = 1; i <= n; ++i) {
    if (!((kind, next_ones[i]) in open)) {
      visit(kind, next_ones[i], path " " name)
    } else if (open[kind, next_ones[i]] == 1) {
      ++circles[kind]
      rest = path " " name
      rest = substr(rest, index(rest " ", " " next_ones[i] " ") + 1)
      gsub(/ /, " -> ", rest)
      violation(next_ones[i] (kind == "file" ? ":1" : ""), "a circle of " kind "s: " rest " -> " next_ones[i])
    }
  }
  open[kind, name] = 2
}

# The table. A line that begins with a blank goes on with the one before.
NR == FNR {
  table = FILENAME
  if (/^[ \t]*(#|$)/) next
  if ($0 !~ /^[ \t]/) {
    room = $1
    if (room !~ /:$/) { violation(table ":" FNR, "expected `room: rooms it sees`"); next }
    sub(/:$/, "", room)
    at[room] = FNR
    first = 2
  } else {
    first = 1
  }
  for (i = first; i <= NF; ++i) {
    if ($i ~ /^(STD|CUDA|MPI)$/) { flag[room, $i] = 1; continue }
    name = $i
    sub(/\/$/, "", name)
    above = name in at
    for (other in at) if ($i ~ /\/$/ && index(other "/", $i) == 1 && other != room) above = 1
    if (!above) violation(table ":" FNR, room " sees " $i ", which does not stand above it")
    sees[room] = sees[room] " " $i
  }
  next
}

FNR == 1 {
  here = room_of(FILENAME)
  if (here == "") violation(FILENAME ":1", "no room of " table " has this file")
  else ++size[here]
}
!/^[ \t]*#[ \t]*include[ \t]*</ || here == "" { next }
{
  name = $0
  sub(/^[^<]*</, "", name)
  sub(/>.*$/, "", name)
}
name !~ /^peal\// {
  if (flag[here, "STD"] && name !~ /^[a-z_]+$/)
    violation(FILENAME ":" FNR, "a plan sees the standard library alone: <" name ">")
  if (name ~ /^(cuda|cublas|cudnn|nccl|curand|nvml|nvtx|cub\/|thrust\/|cooperative_groups|driver_types|vector_types)/ &&
      !flag[here, "CUDA"]) violation(FILENAME ":" FNR, "this file may not see CUDA: <" name ">")
  if (name ~ /^(mpi|mpi-ext)\.h$/ && !flag[here, "MPI"]) violation(FILENAME ":" FNR, "this file may not see MPI: <" name ">")
  next
}
{
  path = name
  sub(/^peal\//, "", path)
  there = room_of(path)
  arrow("file", FILENAME, path)
  if (there == "" || there == here) next
  arrow("room", here, there)
  if (at[there] > at[here]) {
    ++back
    violation(FILENAME ":" FNR, "this file may not include <" name ">: " there " stands over " here)
  } else if (!may(here, there)) {
    violation(FILENAME ":" FNR, "this file may not include <" name ">: " here " does not see " there)
  }
}

END {
  for (key in node) {
    split(key, part, SUBSEP)
    if (!((part[1], part[2]) in open)) visit(part[1], part[2], "")
  }
  if (!figures) exit
  for (room in size) {
    ++rooms
    files += size[room]
    if (size[room] > size[largest]) largest = room
  }
  printf "%d rooms, %d arrows between them, %d includes that run back up, %d circles of rooms, %d of files; ", rooms,
    arrows["room"], back, circles["room"], circles["file"]
  printf "the largest room is %s with %d of %d files\n", largest, size[largest], files
}
