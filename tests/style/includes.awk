# SPDX-License-Identifier: Apache-2.0
# The rules of check_style.sh that are read off single source files: the licence, and how an include is spelled.
function violation(rule) { print FILENAME ":" FNR ": " rule }

function exists(path,   line, got) {
  got = (getline line < path)
  close(path)
  return got >= 0
}

FNR == 1 && $0 != "// SPDX-License-Identifier: Apache-2.0" {
  violation("the first line is the licence: // SPDX-License-Identifier: Apache-2.0")
}
FNR == 1 {
  test = FILENAME ~ /^tests\//
}
!/^[ \t]*#[ \t]*include/ { next }
{ name = $0; sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name) }
name ~ /^"/ {
  if (!test) violation("an include is spelled <peal/folder/file.h>, not " name)
  else if (name ~ /^"\.\.?\//) violation("a test includes its neighbours by name, others as <peal/...>: " name)
  next
}
name !~ /^<[^>]+>/ { next }
{ sub(/^</, "", name); sub(/>.*$/, "", name) }
name ~ /^peal\// {
  path = name
  sub(/^peal\//, "", path)
  if (!exists(path)) violation("no such file: <" name ">")
  next
}
name ~ /^(autograd|comm|nn|data|launch)\// { violation("an include is spelled <peal/" name ">, not <" name ">") }
