# How a module is built: one folder, one static library, one public header folder. A module names
# every module that it uses; links are PRIVATE, so an include or a call that goes upwards, or to a
# module that was not named, does not build.

set(KG_WARNINGS
    -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wformat=2 -Wundef -Wvla
    -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wcast-qual -Wwrite-strings
    -Wswitch-enum -Wimplicit-fallthrough)
# Of every optimised build but Debug ones, whatever its type is called: distributions have their own.
# And the same sources give the same files, wherever they are.
set(KG_HARDENING -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong
    -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
set(KG_HARDENED OFF)
string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
string(REGEX MATCHALL "-O[^ ]*" levels "${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${type}}")
list(POP_BACK levels level)
if(NOT type STREQUAL "DEBUG" AND level MATCHES "^-O([1-9sz]|fast|)$")
  set(KG_HARDENED ON)
endif()
include(CheckCCompilerFlag)
# The first of these is for x86 only; others warn about it, so it is tested as an error.
foreach(flag -fcf-protection=full -fstack-clash-protection -ftrivial-auto-var-init=zero)
  string(MAKE_C_IDENTIFIER "KG_HAS${flag}" has)
  check_c_compiler_flag("-Werror ${flag}" ${has})
  if(${has})
    list(APPEND KG_HARDENING ${flag})
  endif()
endforeach()
set(KG_SANITIZERS -fno-omit-frame-pointer)
if(KG_SANITIZE)
  list(APPEND KG_SANITIZERS -fsanitize=address,undefined -fno-sanitize-recover=undefined)
elseif(KG_SANITIZE_THREADS)
  list(APPEND KG_SANITIZERS -fsanitize=thread)
endif()

# The flags of all our targets. The static agent cannot be sanitized: it passes PLAIN. Asserts are
# enabled in every build.
function(kg_flags target)
  cmake_parse_arguments(arg "PLAIN" "" "" ${ARGN})
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE KG_VERSION="${PROJECT_VERSION}")
  target_compile_options(${target} PRIVATE ${KG_WARNINGS} $<$<BOOL:${KG_WERROR}>:-Werror> -UNDEBUG)
  if(KG_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if((KG_SANITIZE OR KG_SANITIZE_THREADS) AND NOT arg_PLAIN)
    target_compile_options(${target} PRIVATE ${KG_SANITIZERS})
    target_link_options(${target} PRIVATE ${KG_SANITIZERS})
  elseif(KG_HARDENED)
    target_compile_options(${target} PRIVATE ${KG_HARDENING})
    target_link_options(${target} PRIVATE -Wl,-z,relro,-z,now)
    get_target_property(kind ${target} TYPE)
    if(kind STREQUAL "EXECUTABLE" AND NOT arg_PLAIN)
      target_link_options(${target} PRIVATE -pie)
    endif()
  endif()
endfunction()

# kg_module(name SOURCES a.c … [USES base loop …] [LIBRARIES PkgConfig::libevent …] [PLAIN_TWIN])
# makes the library kg_<name>. PLAIN_TWIN adds kg_<name>_plain, never sanitized, for the agent.
function(kg_module name)
  cmake_parse_arguments(arg "PLAIN_TWIN" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  kg_module_library(kg_${name} "" "${arg_SOURCES}" "${arg_USES}" "${arg_LIBRARIES}")
  if(arg_PLAIN_TWIN)
    if(KG_SANITIZE OR KG_SANITIZE_THREADS)
      kg_module_library(kg_${name}_plain _plain "${arg_SOURCES}" "${arg_USES}" "${arg_LIBRARIES}"
                        PLAIN)
    else()
      add_library(kg_${name}_plain ALIAS kg_${name})
    endif()
  endif()
endfunction()

function(kg_module_library target suffix sources uses libraries)
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  list(TRANSFORM uses REPLACE "(.+)" "kg_\\1${suffix}")
  target_link_libraries(${target} PRIVATE ${uses} ${libraries})
  kg_flags(${target} ${ARGN})
endfunction()
