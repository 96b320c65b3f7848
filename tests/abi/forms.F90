! The same calls in all three forms of Fortran: compiled with mpif.h (-DFORM=1), with the module mpi (2) and
! with mpi_f08 (3). Routines of which the C prototype does not tell all: matched probes, statuses that are
! set, requests whose status is asked for, strings, buffers. A job of one rank.
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
  call MPI_Comm_free(ring, e)
  call MPI_Comm_free(comm, e)
  call MPI_Finalize(e)
  print '(a,i0,a,i0,a)', 'forms: ', good, ' passed, ', bad, ' failed'
  if (bad /= 0) stop 1
contains
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
