# SPDX-License-Identifier: Apache-2.0
# docs/from-pytorch.md as C++: a function for each line of its tables, which from_pytorch_test.cpp calls.
#   awk -f from_pytorch.awk docs/from-pytorch.md
function fault(what) {
  printf "%s:%d: %s\n", FILENAME, FNR, what > "/dev/stderr"
  failed = 1
  exit 1
}
/^\|/ && !/^\| PyTorch \|/ && !/^\|-/ {
  line = $0
  gsub(/\\\|/, "\001", line)  # a | within code
  if (split(line, cell, "|") != 5) fault("a line of a table has three columns")
  kind = cell[4]
  gsub(/ /, "", kind)
  if (kind !~ /^[=~x-]$/) fault("a line ends in =, ~, - or x")
  code = cell[3]
  gsub("\001", "|", code)
  sub(/^ *`?/, "", code)
  sub(/`? *$/, "", code)
  if ((code == "") != (kind ~ /[x-]/)) fault("a line has code where it has = or ~")
  lines[++rows] = FNR
  kinds[rows] = kind
  if (code == "") next
  printf "void line_%d([[maybe_unused]] Given given) {\n  UNPACK_GIVEN\n#line %d \"%s\"\n  %s;\n}\n", FNR, FNR, FILENAME, code
}
END {
  if (failed) exit 1
  print "const Line lines[] = {"
  for (i = 1; i <= rows; ++i) {
    printf "  {%d, '%s', %s},\n", lines[i], kinds[i], kinds[i] ~ /[x-]/ ? "nullptr" : "&line_" lines[i]
  }
  print "};"
}
