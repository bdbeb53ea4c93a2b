# The version of the program stands in CHANGELOG.md: as a released section, or "Unreleased" above the
# released section of this version. ROOT is the repository.
cmake_minimum_required(VERSION 3.22)
file(STRINGS ${ROOT}/CMakeLists.txt line REGEX "^project[(]dpt VERSION ")
string(REGEX MATCH "[0-9]+[.][0-9]+[.][0-9]+" version "${line}")
file(STRINGS ${ROOT}/CHANGELOG.md sections REGEX "^## ")
set(released "${sections}")
list(REMOVE_ITEM released "## Unreleased")
list(GET released 0 newest)
string(REPLACE "." "[.]" pattern "${version}")
if(NOT newest MATCHES "^## ${pattern} - [0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]$")
  message(FATAL_ERROR "CMakeLists.txt says version ${version}; CHANGELOG.md has '${newest}' as its newest "
                      "released section, expected '## ${version} - YYYY-MM-DD' (docs/internals/release.md)")
endif()
