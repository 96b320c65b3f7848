! Counts of 64 bits in mpi_f08: the same names as with default integers, told apart by the kind of their
! arguments. A job of one rank.
module reductions
  use mpi_f08
  use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
  implicit none
  integer(MPI_COUNT_KIND) :: elements = 0
contains
  subroutine add(invec, inoutvec, len, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer(MPI_COUNT_KIND) :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: a(:), b(:)
    if (datatype /= MPI_INTEGER) call MPI_Abort(MPI_COMM_WORLD, 9)
    call c_f_pointer(invec, a, [len])
    call c_f_pointer(inoutvec, b, [len])
    b = a + b
    elements = elements + len
  end subroutine add
end module reductions

program large
  use mpi_f08
  use reductions
  use, intrinsic :: iso_c_binding, only: c_loc, c_associated
  implicit none
  integer, parameter :: wide = MPI_COUNT_KIND
  integer :: good = 0, bad = 0, out(4) = [1, 2, 3, 4], inn(4) = 0, few, combiner, e, lengths(2), kinds(1)
  integer(wide) :: n, counts(1), displacements(1), integers, addresses, types_held, large_ones, large_of(3)
  integer(MPI_ADDRESS_KIND) :: at(1), address_of(1)
  integer, target :: room(4096)
  type(c_ptr) :: where
  type(MPI_Request) :: request
  type(MPI_Status) :: status
  type(MPI_Datatype) :: row, held(1)
  type(MPI_Op) :: op
  type(MPI_File) :: file
  type(MPI_Message) :: message

  call MPI_Init()
  call MPI_Irecv(inn, 4_wide, MPI_INTEGER, 0, 1, MPI_COMM_WORLD, request)
  call MPI_Send(out, 4_wide, MPI_INTEGER, 0, 1, MPI_COMM_WORLD)
  call MPI_Wait(request, status)
  call MPI_Get_count(status, MPI_INTEGER, n)
  call MPI_Get_count(status, MPI_INTEGER, few)
  call check(all(inn == out) .and. n == 4 .and. few == 4, 'a message')
  inn = 0
  call MPI_Isend(out, 2_wide, MPI_INTEGER, 0, 2, MPI_COMM_WORLD, request)
  call MPI_Mprobe(0, 2, MPI_COMM_WORLD, message, status)
  call PMPI_Mrecv(inn, 2_wide, MPI_INTEGER, message, status, e)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call check(all(inn(1:2) == out(1:2)) .and. message == MPI_MESSAGE_NULL, 'a matched message')

  counts = 4
  displacements = 0
  inn = 0
  call MPI_Allgatherv(out, 4_wide, MPI_INTEGER, inn, counts, [0_MPI_ADDRESS_KIND], MPI_INTEGER, MPI_COMM_WORLD)
  call check(all(inn == out), 'Allgatherv')
  inn = 0
  at = 0
  held = MPI_INTEGER
  call MPI_Alltoallw(out, counts, at, held, inn, counts, at, held, MPI_COMM_WORLD)
  call check(all(inn == out), 'Alltoallw')
  call MPI_Op_create_c(add, .true., op)
  call MPI_Reduce_local(out, inn, 4_wide, MPI_INTEGER, op)
  call check(all(inn == 2 * out) .and. elements == 4, 'an operation')
  call MPI_Op_free(op)
  inn = 0
  call MPI_Iallreduce(out, inn, 4_wide, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request)
  call MPI_Wait(request, status)
  call check(all(inn == out), 'begun')

  call MPI_Type_vector(2_wide, 1_wide, 2_wide, MPI_INTEGER, row)
  call MPI_Type_commit(row)
  call MPI_Type_size(row, n)
  call MPI_Type_size(row, few)
  call check(n == 8 .and. few == 8, 'sizes')
  call MPI_Type_get_envelope(row, integers, addresses, large_ones, types_held, combiner)
  call check(integers + large_ones == 3 .and. types_held == 1 .and. combiner == MPI_COMBINER_VECTOR, 'envelope')
  call MPI_Type_get_contents(row, integers, addresses, large_ones, types_held, kinds, address_of, large_of, held)
  call check(large_of(3) == 2 .and. held(1) == MPI_INTEGER, 'contents')
  lengths = 0
  call MPI_Sendrecv(out, 1_wide, row, 0, 3, lengths, 2_wide, MPI_INTEGER, 0, 3, MPI_COMM_WORLD, status)
  call check(all(lengths == [1, 3]), 'a row')
  call MPI_Type_free(row)

  call MPI_Buffer_attach(room, 16384_wide)
  call MPI_Buffer_detach(where, n)
  call check(c_associated(where, c_loc(room)) .and. n == 16384, 'a buffer')
  call MPI_File_open(MPI_COMM_SELF, 'large.data', MPI_MODE_RDWR + MPI_MODE_CREATE + &
      MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, file)
  call MPI_File_write_at(file, 4_MPI_OFFSET_KIND, out, 4_wide, MPI_INTEGER, MPI_STATUS_IGNORE)
  inn = 0
  call MPI_File_read_at(file, 8_MPI_OFFSET_KIND, inn, 3_wide, MPI_INTEGER, status)
  call MPI_Get_elements(status, MPI_INTEGER, n)
  call check(all(inn(1:3) == out(2:4)) .and. n == 3, 'a file')
  call MPI_File_close(file)
  call MPI_Finalize()
  print '(a,i0,a,i0,a)', 'large: ', good, ' passed, ', bad, ' failed'
  if (bad /= 0) stop 1
contains
  include 'check.inc'
end program large
