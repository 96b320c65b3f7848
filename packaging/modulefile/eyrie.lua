-- Lmod: `module use PREFIX/share/modulefiles`, then `module load eyrie`. It finds out where it lies.
local prefix = myFileName():gsub("/share/modulefiles/.*$", "")

whatis("Name: Eyrie")
whatis("Version: " .. myModuleVersion())
whatis("Description: MPI library and job runtime for programs that must outlive their machines")
help([[mpicc, mpicxx, mpifort compile; eyrie run -n 4 ./program starts. eyrie --help tells more.]])

family("MPI")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man") .. ":")
prepend_path("PKG_CONFIG_PATH", pathJoin(prefix, "lib/pkgconfig"))
prepend_path("CMAKE_PREFIX_PATH", prefix)
setenv("MPI_HOME", prefix)
setenv("EYRIE_ROOT", prefix)
