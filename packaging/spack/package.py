# Recipe for Spack. In a repository of your own:
#
#   spack repo create my && mkdir -p my/packages/eyrie && cp package.py my/packages/eyrie/
#   spack repo add my && EYRIE_SOURCE=/path/of/a/clone spack install eyrie
#
# EYRIE_SOURCE is a clone, or what git can clone. crates come from where cargo gets them.
import os

from spack.package import *


class Eyrie(Package):
    """MPI library and job runtime for programs that must outlive the machines they run on."""

    git = os.environ.get("EYRIE_SOURCE", "eyrie")

    license("MIT OR Apache-2.0")

    version("main", branch="main")

    variant("fortran", default=True, description="compiles the modules mpi and mpi_f08")

    provides("mpi@:4.1")

    depends_on("c", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("gmake", type="build")
    depends_on("python@3.8:", type="build")
    depends_on("rust@1.95:", type="build")
    depends_on("binutils", type="build")

    conflicts("platform=darwin", msg="Eyrie is for Linux")
    conflicts("target=aarch64:", msg="Eyrie is for x86-64")

    def setup_build_environment(self, env):
        # Nothing is kept outside of the stage.
        env.set("EYRIE_CACHE", join_path(self.stage.path, "cache"))

    def install(self, spec, prefix):
        # Without `make setup`, which would ask apt for what is missing.
        if spec.satisfies("+fortran"):
            make("fortran")
        else:
            make("libraries")
        Executable(join_path("scripts", "install"))("build", prefix)

    def setup_run_environment(self, env):
        for name in "mpicc", "mpicxx", "mpifort", "mpif77", "mpif90":
            env.set(name.upper(), join_path(self.prefix.bin, name))

    def setup_dependent_build_environment(self, env, dependent_spec):
        self.setup_run_environment(env)

    def setup_dependent_package(self, module, dependent_spec):
        self.spec.mpicc = join_path(self.prefix.bin, "mpicc")
        self.spec.mpicxx = join_path(self.prefix.bin, "mpicxx")
        self.spec.mpifc = join_path(self.prefix.bin, "mpifort")
        self.spec.mpif77 = join_path(self.prefix.bin, "mpif77")
