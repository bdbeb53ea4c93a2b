# What `cmake --install` puts where: the program, its manual pages, completion for shells, documents and
# example configs. (The example that trains on built-in data runs from anywhere.)
include(GNUInstallDirs)
option(DPT_DEBIAN "Install as Debian's packages have it: compressed pages, a copyright file, a changelog" OFF)
if(DPT_DEBIAN AND DPT_WITH_CUDA)
  set(CMAKE_INSTALL_DOCDIR ${CMAKE_INSTALL_DATADIR}/doc/dpt-cuda)
endif()
install(TARGETS dpt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)

# Manual pages and completion are written by the program, from its own commands. One for another kind of
# machine cannot run here, and one with sanitizers not in every environment: these have neither.
if(NOT CMAKE_CROSSCOMPILING AND NOT DPT_SANITIZE)
  set(pages ${CMAKE_BINARY_DIR}/man)
  set(completion ${CMAKE_BINARY_DIR}/completion)
  set(compress "")
  if(DPT_DEBIAN)
    set(compress COMMAND find ${pages} -name "*.1" -exec gzip -9n {} +)
  endif()
  file(GLOB prose CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/docs/man/*.roff)
  # The folder is made anew, so that no page of a command that is gone remains.
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/man.made
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}
    COMMAND dpt man ${pages} --prose ${CMAKE_SOURCE_DIR}/docs/man
    ${compress}
    COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/man.made
    DEPENDS dpt ${prose} VERBATIM)
  add_custom_command(OUTPUT ${completion}/dpt ${completion}/_dpt ${completion}/dpt.fish
    COMMAND ${CMAKE_COMMAND} -E make_directory ${completion}
    COMMAND dpt completion bash > ${completion}/dpt
    COMMAND dpt completion zsh > ${completion}/_dpt
    COMMAND dpt completion fish > ${completion}/dpt.fish
    DEPENDS dpt VERBATIM)
  add_custom_target(dpt_extras ALL DEPENDS ${CMAKE_BINARY_DIR}/man.made ${completion}/dpt)

  install(DIRECTORY ${pages}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  if(DEFINED SKBUILD_DATA_DIR)
    # A wheel's data goes into the environment, where man looks for the pages of what PATH finds.
    install(DIRECTORY ${pages}/ DESTINATION ${SKBUILD_DATA_DIR}/share/man/man1 COMPONENT program)
  endif()
  install(FILES ${completion}/dpt DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${completion}/_dpt DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  install(FILES ${completion}/dpt.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# The schema of configs is next to the folder of the examples, which name it for editors.
install(FILES ${CMAKE_SOURCE_DIR}/docs/reference/config.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/dpt
        COMPONENT program)
file(GLOB examples CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/configs/*.yaml)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${examples})
foreach(example IN LISTS examples)
  file(READ ${example} text)
  string(REPLACE "../docs/reference/config.schema.json" "../config.schema.json" text "${text}")
  get_filename_component(name ${example} NAME)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/configs/${name} CONTENT "${text}" @ONLY)
endforeach()
install(DIRECTORY ${CMAKE_BINARY_DIR}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/dpt COMPONENT program)
install(FILES ${CMAKE_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(NOT DPT_DEBIAN)
  # Not in Debian's packages: they would depend on Python for it.
  install(PROGRAMS ${CMAKE_SOURCE_DIR}/scripts/track DESTINATION ${CMAKE_INSTALL_DATADIR}/dpt COMPONENT program)
  install(FILES ${CMAKE_SOURCE_DIR}/CHANGELOG.md ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR}
        FILES_MATCHING PATTERN "*.md" PATTERN "*.png" PATTERN man EXCLUDE)
