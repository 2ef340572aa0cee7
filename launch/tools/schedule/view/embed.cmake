# Writes OUTPUT, a source that has the texts of the page (page.h).
#   cmake -DHERE=folder -DOUTPUT=page_texts.cpp -P embed.cmake
set(text "#include <peal/launch/tools/schedule/view/page.h>\n\nnamespace peal::launch {\n\n")
foreach(file page.html page.css loom.js lanes.js pipeline.js step.js breaker.js compare.js
    sampler.js memory.js failure.js bits.js lines.js
    page.js)
  file(READ "${HERE}/${file}" content)
  string(REPLACE "." "_" name "${file}")
  string(APPEND text "extern const std::string_view ${name} = R\"peal_text(${content})peal_text\";\n\n")
endforeach()
file(WRITE "${OUTPUT}" "${text}}  // namespace peal::launch\n")
