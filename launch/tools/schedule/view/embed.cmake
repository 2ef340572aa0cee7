# Writes OUTPUT, a source that has the texts of the page (page.h): page.html and page.css, which stand in HERE, and SCRIPTS, one
# behind the other, as page_js.
#   cmake -DHERE=folder "-DSCRIPTS=files" -DOUTPUT=page_texts.cpp -P embed.cmake
set(text "#include <peal/launch/tools/schedule/view/page.h>\n\nnamespace peal::launch {\n\n")
function(embed name)
  string(APPEND text "extern const std::string_view ${name} =")
  foreach(file ${ARGN})
    file(READ "${file}" content)
    string(APPEND text " R\"peal_text(${content})peal_text\"")
  endforeach()
  set(text "${text};\n\n" PARENT_SCOPE)
endfunction()
embed(page_html "${HERE}/page.html")
embed(page_css "${HERE}/page.css")
embed(page_js ${SCRIPTS})
file(WRITE "${OUTPUT}" "${text}}  // namespace peal::launch\n")
