! The module mpi_f08: handles that are types, statuses, procedures as arguments, `ierror` that may be
! left out. A job of one rank.
module callbacks
  use mpi_f08
  use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
  implicit none
  integer :: called = 0
contains
  ! Adds, and counts its calls.
  subroutine add(invec, inoutvec, len, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: a(:), b(:)
    if (datatype /= MPI_INTEGER) call MPI_Abort(MPI_COMM_WORLD, 9)
    call c_f_pointer(invec, a, [len])
    call c_f_pointer(inoutvec, b, [len])
    b = a + b
    called = called + 1
  end subroutine add
  subroutine heed(comm, error_code)
    type(MPI_Comm) :: comm
    integer :: error_code
    if (comm == MPI_COMM_SELF .and. error_code /= MPI_SUCCESS) called = called + 100
  end subroutine heed
  subroutine copy(oldcomm, comm_keyval, extra_state, attribute_val_in, attribute_val_out, flag, &
      ierror)
    type(MPI_Comm) :: oldcomm
    integer :: comm_keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
    flag = oldcomm == MPI_COMM_WORLD .and. comm_keyval /= MPI_KEYVAL_INVALID
    attribute_val_out = attribute_val_in + extra_state
    ierror = MPI_SUCCESS
  end subroutine copy
end module callbacks

program module08
  use mpi_f08
  use callbacks
  implicit none
  type(MPI_File) :: file
  type(MPI_Status) :: from
  integer :: good = 0, bad = 0, n, e, key, counts(2), f_status(MPI_STATUS_SIZE)
  integer :: out(4) = [1, 2, 3, 4], inn(4) = 0
  integer(MPI_ADDRESS_KIND) :: base, value
  logical :: flag
  character(len=MPI_MAX_OBJECT_NAME) :: name
  type(MPI_Status) :: status, statuses(2)
  type(MPI_Request) :: requests(2), request
  type(MPI_Comm) :: comm
  type(MPI_Datatype) :: pair, types(1)
  type(MPI_Op) :: op
  type(MPI_Errhandler) :: handler
  type(MPI_Info) :: info
  type(MPI_Group) :: group

  call MPI_Init()
  call MPI_Comm_size(MPI_COMM_WORLD, n)
  call check(n == 1, 'size')
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, e)
  call check(e == MPI_SUCCESS .and. comm /= MPI_COMM_NULL, 'a communicator')
  call MPI_Comm_set_name(comm, 'a copy')
  call MPI_Comm_get_name(comm, name, n)
  call check(name == 'a copy' .and. n == 6, 'text')

  call MPI_Irecv(inn, 2, MPI_INTEGER, 0, 5, comm, requests(1))
  call MPI_Irecv(inn(3), 2, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, requests(2))
  call MPI_Send(out, 2, MPI_INTEGER, 0, 5, comm)
  call MPI_Send(out(3:4), 2, MPI_INTEGER, 0, 6, comm)
  call MPI_Waitall(2, requests, statuses)
  call check(all(inn == out) .and. all(requests == MPI_REQUEST_NULL), 'messages')
  call check(all(statuses%MPI_SOURCE == 0) .and. all(statuses%MPI_TAG == [5, 6]), 'statuses')
  call MPI_Get_count(statuses(2), MPI_INTEGER, n)
  call check(n == 2, 'count')
  call MPI_Status_f082f(statuses(2), f_status)
  call MPI_Status_f2f08(f_status, status)
  call check(f_status(MPI_TAG) == 6 .and. status%MPI_TAG == 6, 'statuses of both kinds')
  inn = 0
  call MPI_Isend(out(1:3:2), 1, MPI_INTEGER, 0, 1, comm, request)
  call MPI_Recv(inn, 1, MPI_INTEGER, 0, 1, comm, MPI_STATUS_IGNORE)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call MPI_Waitall(0, requests, MPI_STATUSES_IGNORE)
  call check(inn(1) == 1, 'no status')
  call MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, flag, status)
  call check(.not. flag, 'logical')

  call MPI_Op_create(add, .true., op)
  call MPI_Allreduce(MPI_IN_PLACE, inn, 1, MPI_INTEGER, op, comm)
  call MPI_Reduce_local(out, inn, 1, MPI_INTEGER, op)
  call check(inn(1) == 2 .and. called == 1, 'an operation')
  call MPI_Op_free(op)
  call check(op == MPI_OP_NULL, 'freed')
  call MPI_Iallreduce(out, inn, 4, MPI_INTEGER, MPI_SUM, comm, request)
  call MPI_Wait(request, status)
  call check(all(inn == out), 'begun')

  call MPI_Type_contiguous(2, MPI_INTEGER, pair)
  call MPI_Type_commit(pair)
  types = pair
  counts = [2, 0]
  inn = 0
  call MPI_Alltoallw(out, counts, [0], types, inn, counts, [0], types, comm)
  call check(all(inn == out), 'types in an array')
  call MPI_Type_free(pair)
  call MPI_Get_address(inn(2), value)
  call MPI_Get_address(inn(1), base)
  call check(MPI_Aint_diff(value, base) == 4, 'addresses')

  call MPI_Comm_create_keyval(copy, MPI_COMM_NULL_DELETE_FN, key, 30_MPI_ADDRESS_KIND)
  call MPI_Comm_set_attr(MPI_COMM_WORLD, key, 12_MPI_ADDRESS_KIND)
  call MPI_Comm_free(comm)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  call MPI_Comm_get_attr(comm, key, value, flag)
  call check(flag .and. value == 42, 'attributes')

  call MPI_Comm_create_errhandler(heed, handler)
  call MPI_Comm_set_errhandler(MPI_COMM_SELF, handler)
  called = 0
  call MPI_Send(out, 1, MPI_INTEGER, 7, 0, MPI_COMM_SELF, e)
  call check(called == 100 .and. e /= MPI_SUCCESS, 'an error handler')
  call MPI_Info_create(info)
  call MPI_Info_set(info, 'where', 'here')
  call MPI_Info_get(info, 'where', 4, name, flag)
  call check(flag .and. name(1:4) == 'here', 'info')
  call MPI_Info_free(info)
  call MPI_Comm_group(MPI_COMM_WORLD, group)
  call MPI_Group_size(group, n)
  call check(n == 1 .and. group /= MPI_GROUP_EMPTY, 'a group')
  call MPI_File_open(MPI_COMM_SELF, 'module08.data', MPI_MODE_RDWR + MPI_MODE_CREATE + &
      MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, file)
  call MPI_File_write_at(file, 4_MPI_OFFSET_KIND, [5, 6], 2, MPI_INTEGER, MPI_STATUS_IGNORE)
  call MPI_File_set_view(file, 8_MPI_OFFSET_KIND, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL)
  call MPI_File_read_all(file, n, 1, MPI_INTEGER, from, e)
  call check(n == 6 .and. e == MPI_SUCCESS, 'a file')
  call MPI_File_close(file)
  call check(file == MPI_FILE_NULL, 'a file that was closed')
  call MPI_File_read(file, n, 1, MPI_INTEGER, from, e)
  call check(e /= MPI_SUCCESS, 'no file')
  call MPI_Finalize()
  print '(a,i0,a,i0,a)', 'module08: ', good, ' passed, ', bad, ' failed'
  if (bad /= 0) stop 1
contains
  include 'check.inc'
end program module08
