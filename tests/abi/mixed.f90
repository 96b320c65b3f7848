! Fortran and C in one program (mixed_c.c): handles, statuses and the addresses that mean "no status" are
! the same in both. Compiled with the module mpi; a job of one rank.
program mixed
  use mpi
  implicit none
  integer :: e, good, bad, comm, vector, request, group, op, info, status(MPI_STATUS_SIZE), x(2)
  integer :: key
  integer(MPI_ADDRESS_KIND) :: value
  logical :: flag
  external :: check_attribute, check_handles, check_status, check_ignored, make_in_c, mixed_end
  good = 0
  call MPI_Init(e)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, e)
  call MPI_Type_vector(2, 3, 5, MPI_INTEGER, vector, e)
  call MPI_Comm_group(comm, group, e)
  call MPI_Info_create(info, e)
  call MPI_Info_set(info, 'key', 'value', e)
  x = [7, 8]
  call MPI_Isend(x, 2, MPI_INTEGER, 0, 11, comm, request, e)
  op = MPI_MAX
  call check_handles(comm, vector, group, info, op, request)
  call check_ignored(MPI_STATUS_IGNORE, MPI_STATUSES_IGNORE)
  ! C has received what was sent here; what it sends is received here.
  call MPI_Recv(x, 1, MPI_INTEGER, 0, 12, comm, status, e)
  call check_status(status)
  ! What Fortran sets is an address for C, what C sets is a number for Fortran; copies are as the original.
  value = 4711
  call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, key, value, e)
  call MPI_Comm_set_attr(MPI_COMM_SELF, key, value, e)
  call check_attribute(key)
  call MPI_Comm_get_attr(MPI_COMM_SELF, key, value, flag, e)
  if (.not. flag .or. value /= -9) call MPI_Abort(MPI_COMM_WORLD, 3, e)
  call make_in_c(comm, vector)
  call MPI_Comm_size(comm, x(1), e)
  call MPI_Type_size(vector, x(2), e)
  good = merge(1, 0, x(1) == 1 .and. x(2) == 24)
  call MPI_Comm_free(comm, e)
  call MPI_Finalize(e)
  bad = 1 - good
  call mixed_end(bad)
end program mixed
