# Compilers for systems with glibc 2.28 and newer: zig's clang, which carries the C library's old headers and symbol versions and a C++
# library that is linked in. setup/wheel.sh makes HEADROOM_PORTABLE (wrappers of the compilers, libraries, headers).
set(HEADROOM_PORTABLE "$ENV{HEADROOM_PORTABLE}" CACHE PATH "What setup/wheel.sh has prepared")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HEADROOM_PORTABLE)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER ${HEADROOM_PORTABLE}/bin/cc)
set(CMAKE_CXX_COMPILER ${HEADROOM_PORTABLE}/bin/c++)
set(CMAKE_ASM_COMPILER ${HEADROOM_PORTABLE}/bin/cc)
# What the linker optimises lies in archives for a moment, when CMake asks whether it can.
foreach(language C CXX)
  set(CMAKE_${language}_COMPILER_AR ${HEADROOM_PORTABLE}/bin/ar)
  set(CMAKE_${language}_COMPILER_RANLIB ${HEADROOM_PORTABLE}/bin/ranlib)
endforeach()
# GCC's attributes that clang does not know are advice.
set(CMAKE_CXX_FLAGS_INIT "-Wno-unknown-attributes -Wno-unknown-warning-option")
# zig links the C++ library in by itself, and would link an unwinder of its own in, too: the stub of libgcc_s keeps that out.
set(HEADROOM_STATIC_CXX "" CACHE STRING "")
set(HEADROOM_STATIC_UNWINDER "" CACHE STRING "")
set(HEADROOM_SHARED_UNWINDER -Wl,--no-as-needed ${HEADROOM_PORTABLE}/lib/libgcc_s.so.1 CACHE STRING "")
# Its linker does not know --exclude-libs.
set(HEADROOM_HIDE_ARCHIVES -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/hidden.map CACHE STRING "")
# As GNU ld, unasked: the indirect function of src/mpi/before_relocation.cc is called by the loader alone.
set(CMAKE_SHARED_LINKER_FLAGS_INIT -Wl,--no-gc-sections)
# Nothing of the system that compiles is looked at.
set(CMAKE_FIND_ROOT_PATH ${HEADROOM_PORTABLE})
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
