# A Spack recipe: put it into a repository of yours as packages/headroom/package.py. It builds from the source archive, with the
# headers of the MPI library that Spack chooses; nothing is downloaded but by Spack.
try:  # since Spack 1.0
    from spack_repo.builtin.build_systems.python import PythonPackage
except ImportError:
    pass
from spack.package import *


class Headroom(PythonPackage):
    """A memory layer for MPI programs: unmodified programs may use more memory than the node has."""

    # No release is published yet: spack install headroom with a file of `git archive --prefix=headroom-0.1.0/ HEAD`, as
    # `spack mirror` or `spack develop --path` take it.
    license("BSD-3-Clause")

    version("0.1.0")

    variant("cards", default=True, description="Network cards with on-demand paging may read messages")
    variant("ofi", default=True, description="Pipes between nodes may go by libfabric")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-scikit-build-core@0.10:", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-click@8.1:", type=("build", "run"))
    depends_on("py-psutil@5.8:", type=("build", "run"))
    depends_on("py-matplotlib@3.8:", type="run")
    depends_on("jemalloc libs=static", type="build")
    depends_on("xxhash", type="build")
    depends_on("rdma-core", type=("build", "run"), when="+cards")
    depends_on("libfabric", type=("build", "run"), when="+ofi")
    depends_on("mpi")
    conflicts("%gcc@:11")

    def setup_build_environment(self, env):
        mpi = self.spec["mpi"]
        relatives_of_openmpi = ("openmpi", "hpcx-mpi", "spectrum-mpi", "fujitsu-mpi")
        interface = "OPENMPI" if mpi.name in relatives_of_openmpi else "MPICH"
        options = [
            f"-DHEADROOM_{interface}_INCLUDE={mpi.headers.directories[0]}",
            f"-DHEADROOM_JEMALLOC={self.spec['jemalloc'].prefix.lib}/libjemalloc_pic.a",
            f"-DHEADROOM_JEMALLOC_INCLUDE={self.spec['jemalloc'].prefix.include}",
            f"-DHEADROOM_XXHASH_INCLUDE={self.spec['xxhash'].prefix.include}",
        ]
        if "+cards" in self.spec:
            options.append(f"-DHEADROOM_VERBS_INCLUDE={self.spec['rdma-core'].prefix.include}")
        if "+ofi" in self.spec:
            options.append(f"-DHEADROOM_OFI_INCLUDE={self.spec['libfabric'].prefix.include}")
        env.set("CMAKE_ARGS", " ".join(options))
