# Where an installation has its parts, as the gateway finds them: from the folder above the one with its
# binary. So an installation can be moved, and a build folder has the same layout, with links to what
# is not built.
include(GNUInstallDirs)

function(kg_place variable folder)
  cmake_path(SET prefix NORMALIZE "${CMAKE_INSTALL_FULL_BINDIR}/..")
  file(RELATIVE_PATH place ${prefix} ${folder}/kernelgate)
  if(place MATCHES "^\\.\\.")
    message(FATAL_ERROR "${folder} is not below ${prefix}, where the gateway looks for it")
  endif()
  set(${variable} ${place} PARENT_SCOPE)
endfunction()
kg_place(KG_LIBEXEC ${CMAKE_INSTALL_FULL_LIBEXECDIR})
kg_place(KG_SHARE ${CMAKE_INSTALL_FULL_DATADIR})

file(REAL_PATH ${CMAKE_BINARY_DIR}/${KG_SHARE} shared)
file(REAL_PATH ${CMAKE_SOURCE_DIR} project)
file(MAKE_DIRECTORY ${shared})
foreach(part kernelspec build/kernels build/console)
  file(RELATIVE_PATH target ${shared} ${project}/${part})
  get_filename_component(name ${part} NAME)
  file(CREATE_LINK ${target} ${shared}/${name} SYMBOLIC)
endforeach()
