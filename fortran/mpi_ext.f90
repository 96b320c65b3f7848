! Modules by which programs for another MPI ask for what handles failures (ULFM): here the modules
! mpi and mpi_f08 have it.
module mpi_ext
  use mpi
  implicit none
end module mpi_ext

module mpi_ext_f08
  use mpi_f08
  implicit none
end module mpi_ext_f08
