! Procedures of the module mpi_f08 that start programs, in an object of their own: a job has room for
! programs that its ranks start if its program needs these functions (crates/cli, room), and who uses
! the module links all of its object. Their interfaces are in mpi_f08_spawn.h.
subroutine MPI_Comm_spawn_f08(command, argv, maxprocs, info, root, comm, intercomm, array_of_errcodes, ierror)
  use mpi, only: f_MPI_Comm_spawn => PMPI_Comm_spawn
  use mpi_f08, only: MPI_Info, MPI_Comm
  implicit none
  character(len=*), intent(in) :: command, argv(*)
  integer, intent(in) :: maxprocs, root
  type(MPI_Info), intent(in) :: info
  type(MPI_Comm), intent(in) :: comm
  type(MPI_Comm), intent(out) :: intercomm
  integer :: array_of_errcodes(*)
  integer, optional, intent(out) :: ierror
  integer :: e
  call f_MPI_Comm_spawn(command, argv, maxprocs, info%MPI_VAL, root, comm%MPI_VAL, intercomm%MPI_VAL, &
    array_of_errcodes, e)
  if (present(ierror)) ierror = e
end subroutine MPI_Comm_spawn_f08

subroutine MPI_Comm_spawn_multiple_f08(count, array_of_commands, array_of_argv, array_of_maxprocs, &
    array_of_info, root, comm, intercomm, array_of_errcodes, ierror)
  use, intrinsic :: iso_c_binding, only: c_f_pointer, c_loc
  use mpi, only: f_MPI_Comm_spawn_multiple => PMPI_Comm_spawn_multiple
  use mpi_f08, only: MPI_Info, MPI_Comm
  implicit none
  integer, intent(in) :: count, array_of_maxprocs(*), root
  character(len=*), intent(in) :: array_of_commands(*), array_of_argv(count, *)
  type(MPI_Info), intent(in), target :: array_of_info(*)
  type(MPI_Comm), intent(in) :: comm
  type(MPI_Comm), intent(out) :: intercomm
  integer :: array_of_errcodes(*)
  integer, optional, intent(out) :: ierror
  integer, pointer, contiguous :: i_info(:)
  integer :: e
  call c_f_pointer(c_loc(array_of_info), i_info, [1])
  call f_MPI_Comm_spawn_multiple(count, array_of_commands, array_of_argv, array_of_maxprocs, &
    i_info, root, comm%MPI_VAL, intercomm%MPI_VAL, array_of_errcodes, e)
  if (present(ierror)) ierror = e
end subroutine MPI_Comm_spawn_multiple_f08
