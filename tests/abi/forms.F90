! The same calls in all three forms of Fortran: compiled with mpif.h (-DFORM=1), with the module mpi (2) and
! with mpi_f08 (3). Routines of which the C prototype does not tell all: matched probes, statuses that are
! set, requests whose status is asked for, strings, buffers, representations of data. A job of one rank.
#if FORM == 3
#define HANDLE(kind) type(kind)
#define STATUS(name) type(MPI_Status) :: name
#define STATUSES(name, n) type(MPI_Status) :: name(n)
#define TAG(status) status%MPI_TAG
#define TAG_OF(statuses, i) statuses(i)%MPI_TAG
#else
#define HANDLE(kind) integer
#define STATUS(name) integer :: name(MPI_STATUS_SIZE)
#define STATUSES(name, n) integer :: name(MPI_STATUS_SIZE, n)
#define TAG(status) status(MPI_TAG)
#define TAG_OF(statuses, i) statuses(MPI_TAG, i)
#endif
program forms
#if FORM == 3
  use mpi_f08
  use, intrinsic :: iso_c_binding, only: c_ptr, c_loc, c_associated
#elif FORM == 2
  use mpi
#endif
  implicit none
#if FORM == 1
  include 'mpif.h'
#endif
  integer :: good = 0, bad = 0, e, n, i, out(4) = [1, 2, 3, 4], inn(4), indices(3)
  integer(MPI_COUNT_KIND) :: wide, low, extent
  integer(MPI_ADDRESS_KIND) :: key_value
  logical :: flag
  character(len=MPI_MAX_OBJECT_NAME) :: name
  character(len=MPI_MAX_ERROR_STRING) :: text
  HANDLE(MPI_Message) :: message
  HANDLE(MPI_Request) :: request, requests(3)
  HANDLE(MPI_Datatype) :: pair, types(1)
  HANDLE(MPI_Comm) :: comm, ring
  HANDLE(MPI_Info) :: info
  STATUS(status)
  STATUSES(statuses, 3)
#if FORM == 3
  type(c_ptr) :: detached
#else
  integer(MPI_ADDRESS_KIND) :: detached
#endif
  integer, target :: room(1024)
  HANDLE(MPI_File) :: file
  integer(MPI_OFFSET_KIND) :: offset
#if FORM == 3
  procedure(MPI_Datarep_conversion_function) :: to_file, from_file
  procedure(MPI_Datarep_extent_function) :: in_file
#else
  external :: to_file, from_file, in_file
#endif

  call MPI_Init(e)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, e)
  call MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN, e)

  ! Messages: a handle that goes in and comes back.
  call MPI_Isend(out, 3, MPI_INTEGER, 0, 21, comm, request, e)
  call MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, message, status, e)
  call check(e == MPI_SUCCESS .and. TAG(status) == 21 .and. message /= MPI_MESSAGE_NULL, 'Mprobe')
  call MPI_Mrecv(inn, 4, MPI_INTEGER, message, status, e)
  call MPI_Get_count(status, MPI_INTEGER, n, i)
  call check(e == MPI_SUCCESS .and. message == MPI_MESSAGE_NULL .and. n == 3 .and. inn(3) == 3, 'Mrecv')
  call MPI_Wait(request, MPI_STATUS_IGNORE, e)
  call MPI_Isend(out, 2, MPI_INTEGER, 0, 22, comm, request, e)
  flag = .false.
  do while (.not. flag)
    call MPI_Improbe(0, 22, comm, flag, message, status, e)
  end do
  inn = 0
  call MPI_Imrecv(inn, 2, MPI_INTEGER, message, requests(1), e)
  call check(e == MPI_SUCCESS .and. message == MPI_MESSAGE_NULL, 'Imrecv')
  call MPI_Wait(requests(1), status, e)
  call MPI_Wait(request, MPI_STATUS_IGNORE, e)
  call check(inn(2) == 2 .and. TAG(status) == 22, 'what Imrecv receives')
  message = MPI_MESSAGE_NO_PROC
  call MPI_Mrecv(inn, 2, MPI_INTEGER, message, status, e)
  call check(e == MPI_SUCCESS .and. message == MPI_MESSAGE_NULL, 'Mrecv of no process')

  ! Requests whose status is asked for stay; indices count from one.
  requests = MPI_REQUEST_NULL
  call MPI_Irecv(inn, 1, MPI_INTEGER, 0, 31, comm, requests(1), e)
  call MPI_Irecv(inn(2), 1, MPI_INTEGER, 0, 32, comm, requests(3), e)
  call MPI_Request_get_status_any(3, requests, n, flag, status, e)
  call check(e == MPI_SUCCESS .and. .not. flag .and. n == MPI_UNDEFINED, 'none is complete')
  call MPI_Send(out, 1, MPI_INTEGER, 0, 32, comm, e)
  flag = .false.
  do while (.not. flag)
    call MPI_Request_get_status_any(3, requests, n, flag, status, e)
  end do
  call check(n == 3 .and. TAG(status) == 32 .and. requests(3) /= MPI_REQUEST_NULL, 'the third is complete')
  call MPI_Request_get_status_all(3, requests, flag, statuses, e)
  call check(e == MPI_SUCCESS .and. .not. flag, 'not all are')
  n = 0
  do while (n == 0)
    call MPI_Request_get_status_some(3, requests, n, indices, statuses, e)
  end do
  call check(n == 1 .and. indices(1) == 3 .and. TAG_OF(statuses, 1) == 32, 'some are')
  call MPI_Send(out, 1, MPI_INTEGER, 0, 31, comm, e)
  flag = .false.
  do while (.not. flag)
    call MPI_Request_get_status_all(3, requests, flag, statuses, e)
  end do
  call check(TAG_OF(statuses, 1) == 31 .and. TAG_OF(statuses, 2) == MPI_ANY_TAG, 'all are')
  call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE, e)
  call MPI_Request_get_status_any(3, requests, n, flag, status, e)
  call check(flag .and. n == MPI_UNDEFINED .and. TAG(status) == MPI_ANY_TAG, 'no request is there')

  ! Statuses that are set, sizes as wide integers.
  call MPI_Type_vector(2, 1, 3, MPI_INTEGER, pair, e)
  call MPI_Type_size_x(pair, wide, e)
  call MPI_Type_get_extent_x(pair, low, extent, e)
  call check(wide == 8 .and. low == 0 .and. extent == 16, 'Type_size_x, Type_get_extent_x')
  call MPI_Type_get_true_extent_x(pair, low, extent, e)
  call check(low == 0 .and. extent == 16, 'Type_get_true_extent_x')
  call MPI_Status_set_elements(status, MPI_INTEGER, 7, e)
  call MPI_Get_elements_x(status, MPI_INTEGER, wide, e)
  call check(wide == 7, 'Status_set_elements, Get_elements_x')
  call MPI_Status_set_elements_x(status, pair, 5_MPI_COUNT_KIND, e)
  call MPI_Get_elements(status, MPI_INTEGER, n, e)
  call check(n == 10, 'Status_set_elements_x')
  call MPI_Status_set_cancelled(status, .true., e)
  call MPI_Test_cancelled(status, flag, e)
  call check(flag, 'Status_set_cancelled')
  call MPI_Status_set_source(status, 4, e)
  call MPI_Status_set_tag(status, 5, e)
  call MPI_Status_set_error(status, MPI_ERR_TAG, e)
  call MPI_Status_get_source(status, n, e)
  call MPI_Status_get_tag(status, i, e)
  call check(n == 4 .and. i == 5 .and. TAG(status) == 5, 'Status_set_source, Status_set_tag')
  call MPI_Status_get_error(status, n, e)
  call check(n == MPI_ERR_TAG, 'Status_set_error')
  call MPI_Type_get_value_index(MPI_DOUBLE, MPI_INT, types(1), e)
  call check(types(1) == MPI_DOUBLE_INT, 'Type_get_value_index')

  ! Strings: blanks in front count in names, and not in keys and values.
  call MPI_Comm_set_name(comm, '  a name ', e)
  call MPI_Comm_get_name(comm, name, n, e)
  call check(n == 8 .and. name == '  a name', 'blanks in a name')
  call MPI_Info_create(info, e)
  call MPI_Info_set(info, ' key ', '  value ', e)
  call MPI_Info_get(info, 'key', 10, name, flag, e)
  call check(flag .and. name(1:10) == 'value', 'blanks in a key and a value')
  call MPI_Info_free(info, e)
  call MPI_Add_error_class(n, e)
  call MPI_Add_error_string(n, 'of our own', e)
  call MPI_Error_string(n, text, i, e)
  call check(text(1:i) == 'of our own', 'an error string')
  call MPI_Remove_error_string(n, e)
  call MPI_Remove_error_class(n, e)
  call check(e == MPI_SUCCESS, 'Remove_error_class')

  ! An operation in place does not look at the types that it sends.
  call MPI_Cart_create(comm, 1, [1], [.true.], .false., ring, e)
  types = pair
  call MPI_Type_commit(types(1), e)
  inn = 9
  call MPI_Alltoallw(MPI_IN_PLACE, [0], [0], [MPI_DATATYPE_NULL], inn, [1], [0], types, comm, e)
  call check(e == MPI_SUCCESS .and. inn(1) == 9, 'Alltoallw in place')
  call MPI_Type_free(pair, e)

  call MPI_Buffer_attach(room, 4096, e)
  call MPI_Bsend(out, 1, MPI_INTEGER, 0, 40, comm, e)
  call MPI_Recv(inn, 1, MPI_INTEGER, 0, 40, comm, MPI_STATUS_IGNORE, e)
  call MPI_Buffer_detach(detached, n, e)
  call check(n == 4096, 'Buffer_detach')
#if FORM == 3
  call check(c_associated(detached, c_loc(room)), 'the buffer that was attached')
#endif
  call MPI_Comm_get_attr(comm, MPI_TAG_UB, key_value, flag, e)
  call check(PMPI_Wtime() > 0 .and. PMPI_Aint_diff(PMPI_Aint_add(key_value, key_value), key_value) == key_value, &
      'functions by their other names')
  ! The same routines by their profiling names.
  call PMPI_Isend(out, 2, MPI_INTEGER, 0, 50, comm, request, e)
  call PMPI_Recv(inn, 2, MPI_INTEGER, 0, 50, comm, status, e)
  call PMPI_Wait(request, MPI_STATUS_IGNORE, e)
  call PMPI_Get_count(status, MPI_INTEGER, n, e)
  call PMPI_Comm_rank(comm, i, e)
  call check(n == 2 .and. i == 0 .and. inn(2) == 2, 'routines by their other names')
#if FORM != 1
  call sizes
#endif

  ! Files: the shared pointer, and a representation of data with numbers that are negative and one less.
  key_value = 1
  call MPI_Register_datarep('of ours', from_file, to_file, in_file, key_value, e)
  call check(e == MPI_SUCCESS, 'Register_datarep')
  call MPI_Register_datarep('of ours ', from_file, MPI_CONVERSION_FN_NULL, in_file, key_value, e)
  call MPI_Error_class(e, n, i)
  call check(n == MPI_ERR_DUP_DATAREP, 'a representation that is there')
  write (name, '(a,i0)') 'forms-', FORM
  call MPI_File_open(comm, name, ior(MPI_MODE_CREATE, ior(MPI_MODE_RDWR, MPI_MODE_DELETE_ON_CLOSE)), &
      MPI_INFO_NULL, file, e)
  offset = 4
  call MPI_File_set_view(file, offset, MPI_INTEGER, MPI_INTEGER, 'of ours', MPI_INFO_NULL, e)
  call MPI_File_write_shared(file, out, 2, MPI_INTEGER, status, e)
  call MPI_Get_count(status, MPI_INTEGER, n, i)
  call check(e == MPI_SUCCESS .and. n == 2, 'File_write_shared')
  call MPI_File_iwrite_shared(file, out(3), 1, MPI_INTEGER, request, e)
  call MPI_Wait(request, status, e)
  call MPI_File_write_ordered_begin(file, out(4), 1, MPI_INTEGER, e)
  call MPI_File_write_ordered_end(file, out(4), status, e)
  call MPI_File_get_position_shared(file, offset, e)
  call check(e == MPI_SUCCESS .and. offset == 4, 'File_get_position_shared')
  offset = 1
  call MPI_File_seek_shared(file, offset, MPI_SEEK_SET, e)
  inn = 0
  call MPI_File_read_shared(file, inn, 2, MPI_INTEGER, status, e)
  call MPI_File_read_ordered(file, inn(3), 4, MPI_INTEGER, status, e)
  call MPI_Get_count(status, MPI_INTEGER, n, i)
  call check(n == 1 .and. all(inn == [2, 3, 4, 0]), 'File_read_shared, File_read_ordered')
  offset = 0
  call MPI_File_set_view(file, offset, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL, e)
  call MPI_File_read(file, inn, 4, MPI_INTEGER, status, e)
  call check(all(inn == [0, -2, -3, -4]), 'what was converted')
  call MPI_File_close(file, e)
  call MPI_Comm_free(ring, e)
  call MPI_Comm_free(comm, e)
  call failures()
  call MPI_Finalize(e)
  print '(a,i0,a,i0,a)', 'forms: ', good, ' passed, ', bad, ' failed'
  if (bad /= 0) stop 1
contains

  ! Functions for failures (ULFM), under both of their names: what they give back, also when a request is complete.
  subroutine failures()
    HANDLE(MPI_Comm) :: one, made
    HANDLE(MPI_Group) :: group
    call MPI_Comm_dup(MPI_COMM_WORLD, one, e)
    call MPI_Comm_set_errhandler(one, MPI_ERRORS_RETURN, e)
    n = 13
    call MPI_Comm_agree(one, n, e)
    call check(e == MPI_SUCCESS .and. n == 13, 'Comm_agree')
    n = 6
    call MPIX_Comm_iagree(one, n, request, e)
    call MPI_Wait(request, MPI_STATUS_IGNORE, e)
    call check(e == MPI_SUCCESS .and. n == 6, 'Comm_iagree')
    call MPI_Comm_ack_failed(one, 5, n, e)
    call check(e == MPI_SUCCESS .and. n == 0, 'Comm_ack_failed')
    call MPI_Comm_get_failed(one, group, e)
    call check(e == MPI_SUCCESS .and. group == MPI_GROUP_EMPTY, 'Comm_get_failed')
    call MPIX_Comm_iagree_failed(one, group, request, e)
    call MPI_Wait(request, MPI_STATUS_IGNORE, e)
    call check(e == MPI_SUCCESS .and. group == MPI_GROUP_EMPTY, 'Comm_iagree_failed')
    call MPI_Comm_revoke(one, e)
    call MPIX_Comm_is_revoked(one, flag, e)
    call check(e == MPI_SUCCESS .and. flag, 'Comm_is_revoked')
    call MPI_Barrier(one, e)
    call MPI_Error_class(e, n, i)
    call check(n == MPI_ERR_REVOKED .and. n == MPIX_ERR_REVOKED, 'a revoked communicator')
    call MPI_Comm_ishrink(one, made, request, e)
    call MPI_Wait(request, MPI_STATUS_IGNORE, e)
    call MPI_Comm_size(made, n, i)
    call check(e == MPI_SUCCESS .and. n == 1, 'Comm_ishrink')
    call MPI_Comm_free(made, e)
    call MPI_Comm_free(one, e)
  end subroutine failures
#if FORM != 1
  ! Variables of all intrinsic types, scalars and arrays; without ierror in mpi_f08 alone by the standard.
  subroutine sizes
    integer(1) :: i1(2, 2)
    integer(8), allocatable :: i8(:)
    logical(2) :: l2
    real(16) :: r16
    complex(8) :: c8(1, 1, 1, 1, 1, 1, 1)
    character(len=7) :: word
    integer :: size(7)
    allocate (i8(3))
    call MPI_Sizeof(i1, size(1), e)
    call MPI_Sizeof(i8, size(2), e)
    call MPI_Sizeof(l2, size(3), e)
    call MPI_Sizeof(r16, size(4), e)
    call PMPI_Sizeof(c8, size(5), e)
    call MPI_Sizeof(word, size(6), e)
    call MPI_Sizeof(inn(2:4:2), size(7))
    call check(e == MPI_SUCCESS .and. all(size == [1, 8, 2, 16, 16, 1, 4]), 'Sizeof')
  end subroutine sizes
#endif
  subroutine check(ok, what)
    logical, intent(in) :: ok
    character(len=*), intent(in) :: what
    if (ok) then
      good = good + 1
    else
      bad = bad + 1
      print *, 'forms.F90: not so: ', what
    end if
  end subroutine check
end program forms

! What MPI_Register_datarep is given: numbers are written as their negative, less the extra state.
#if FORM == 3
#define USE_MPI use mpi_f08
#define BUFFERS type(c_ptr), value :: userbuf, filebuf
#elif FORM == 2
#define USE_MPI use mpi
#define BUFFERS integer :: userbuf(*), filebuf(*)
#else
#define USE_MPI
#define BUFFERS integer :: userbuf(*), filebuf(*)
#endif
subroutine to_file(userbuf, datatype, count, filebuf, position, extra_state, ierror)
  USE_MPI
  use, intrinsic :: iso_c_binding
  implicit none
  BUFFERS
  HANDLE(MPI_Datatype) :: datatype
  integer :: count, ierror
  integer(8) :: position, extra_state
#if FORM == 3
  integer, pointer :: from(:), to(:)
  call c_f_pointer(userbuf, from, [count])
  call c_f_pointer(filebuf, to, [count])
  to = -from - int(extra_state)
  if (datatype /= MPI_INTEGER .or. position /= 0) ierror = 1
#else
  filebuf(1:count) = -userbuf(1:count) - int(extra_state)
  if (position /= 0) ierror = datatype
#endif
end subroutine to_file

subroutine from_file(userbuf, datatype, count, filebuf, position, extra_state, ierror)
  USE_MPI
  use, intrinsic :: iso_c_binding
  implicit none
  BUFFERS
  HANDLE(MPI_Datatype) :: datatype
  integer :: count, ierror
  integer(8) :: position, extra_state
#if FORM == 3
  integer, pointer :: from(:), to(:)
  call c_f_pointer(filebuf, from, [count])
  call c_f_pointer(userbuf, to, [count])
  to = -from - int(extra_state)
  if (datatype /= MPI_INTEGER .or. position /= 0) ierror = 1
#else
  userbuf(1:count) = -filebuf(1:count) - int(extra_state)
  if (position /= 0) ierror = datatype
#endif
end subroutine from_file

subroutine in_file(datatype, extent, extra_state, ierror)
  USE_MPI
  implicit none
  HANDLE(MPI_Datatype) :: datatype
  integer(8) :: extent, extra_state
  integer :: ierror
  extent = 4
#if FORM == 3
  if (datatype /= MPI_INTEGER) ierror = 1
#else
  if (extra_state /= 1) ierror = datatype
#endif
end subroutine in_file
