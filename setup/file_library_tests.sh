#!/bin/bash
# Builds the tests that come with HDF5's and PnetCDF's sources against the libraries of the system's packages:
# build/apps/file-libraries/{hdf5-mpich,hdf5-openmpi,pnetcdf}. Debian and Ubuntu have PnetCDF for Open MPI.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$PWD/build/apps/file-libraries
if [ -e "$place/.built" ]; then exit 0; fi
for needed in hdf5/mpich hdf5/openmpi pnetcdf.h; do
  [ -e "/usr/include/$needed" ] || { echo "/usr/include/$needed is missing (make suites installs it)"; exit 0; }
done
echo "building HDF5's and PnetCDF's own tests"
for package in hdf5 pnetcdf; do
  if ! ls "$place/$package"/*.orig.tar.* >/dev/null 2>&1; then
    setup/source_package.sh "$package" "$place/$package" || {
      echo "the source of $package cannot be had; its tests will be skipped"
      exit 0
    }
  fi
  rm -rf "$place/$package/source" && mkdir "$place/$package/source"
  tar xf "$place/$package"/*.orig.tar.* -C "$place/$package/source" --strip-components=1
done

cd "$place/hdf5/source"
parts=(testpar/{testphdf5,t_dset,t_file,t_file_image,t_mdset,t_ph5basic,t_coll_chunk,t_span_tree,t_chunk_alloc,t_filter_read,t_prop,t_coll_md_read}.c)
for library in mpich openmpi; do
  folder=$place/hdf5-$library
  mkdir -p "$folder"
  echo "#define config_srcdir \"$PWD/testpar\"" >"$folder/H5srcdir_str.h" # as HDF5's build makes it
  flags=(-w -O1 -I"$folder" -Isrc -Itest -I"/usr/include/hdf5/$library")
  mpicc.$library "${flags[@]}" -o "$folder/testphdf5" "${parts[@]}" test/h5test.c test/testframe.c \
    -L"/usr/lib/$(uname -m)-linux-gnu/hdf5/$library" -lhdf5 -lm
done

cd "$place/pnetcdf/source/test"
mkdir -p "$place/pnetcdf/programs"
for source in testcases/*.c nonblocking/*.c; do
  mpicc.openmpi -w -O1 -include stddef.h -Icommon -I../src/utils -o "$place/pnetcdf/programs/$(basename "$source" .c)" \
    "$source" common/testutils.c -lpnetcdf -lm 2>>"$place/log" || echo "$source could not be built" >>"$place/log"
done
touch "$place/.built"
