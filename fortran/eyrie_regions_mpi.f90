! eyrie_regions for programs of MPI, whichever it is: to be compiled with that MPI's compiler.
module eyrie_regions_mpi
  use, intrinsic :: iso_c_binding
  use eyrie_regions
  use mpi
  implicit none
  private
  public :: eyrie_open_mpi

contains

  ! All of the communicator call it, which stays until the handle is closed.
  integer function eyrie_open_mpi(regions, options, comm)
    type(c_ptr), intent(out) :: regions
    character(len=*), intent(in) :: options
    integer, intent(in) :: comm
    integer, pointer :: kept
    integer :: rank, ranks, ierr
    ! Never given back: a handle is opened once in a program's life.
    allocate (kept)
    kept = comm
    call MPI_Comm_rank(comm, rank, ierr)
    call MPI_Comm_size(comm, ranks, ierr)
    eyrie_open_mpi = eyrie_open(regions, options, rank, ranks, most_mpi, c_loc(kept))
  end function eyrie_open_mpi

  integer(c_int) function most_mpi(context, values, count) bind(c)
    type(c_ptr), value :: context
    integer(c_int), value :: count
    integer(c_int64_t), intent(inout) :: values(count)
    integer(c_int64_t) :: own(count)
    integer, pointer :: comm
    integer :: ierr
    call c_f_pointer(context, comm)
    own = values
    call MPI_Allreduce(own, values, int(count), MPI_INTEGER8, MPI_MAX, comm, ierr)
    most_mpi = int(ierr, c_int)
  end function most_mpi
end module eyrie_regions_mpi
