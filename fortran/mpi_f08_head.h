
  ! The eight integers of a status of the module mpi.
  type, bind(C) :: MPI_Status
    integer(c_int) :: MPI_SOURCE
    integer(c_int) :: MPI_TAG
    integer(c_int) :: MPI_ERROR
    integer(c_int), private :: internal(5) = 0
  end type MPI_Status
  public :: MPI_Status, MPI_Status_f2f08, MPI_Status_f082f

  ! Known by where they lie (entry.h).
  type(MPI_Status), bind(C, name='eyrie_mpi_f08_status_ignore') :: MPI_STATUS_IGNORE
  type(MPI_Status), bind(C, name='eyrie_mpi_f08_statuses_ignore') :: MPI_STATUSES_IGNORE(1)
  public :: MPI_STATUS_IGNORE, MPI_STATUSES_IGNORE

  public :: MPI_User_function, MPI_Comm_errhandler_function, MPI_Win_errhandler_function
  public :: MPI_File_errhandler_function, MPI_Session_errhandler_function
  public :: MPI_Comm_copy_attr_function, MPI_Comm_delete_attr_function
  public :: MPI_Type_copy_attr_function, MPI_Type_delete_attr_function
  public :: MPI_Win_copy_attr_function, MPI_Win_delete_attr_function
  public :: MPI_Grequest_query_function, MPI_Grequest_free_function, MPI_Grequest_cancel_function
  public :: MPI_Datarep_conversion_function, MPI_Datarep_extent_function

  abstract interface
    subroutine MPI_User_function(invec, inoutvec, len, datatype)
      import :: c_ptr, MPI_Datatype
      type(c_ptr), value :: invec, inoutvec
      integer :: len
      type(MPI_Datatype) :: datatype
    end subroutine MPI_User_function
    subroutine MPI_Datarep_conversion_function(userbuf, datatype, count, filebuf, position, &
        extra_state, ierror)
      import :: c_ptr, MPI_Datatype, MPI_OFFSET_KIND, MPI_ADDRESS_KIND
      type(c_ptr), value :: userbuf, filebuf
      type(MPI_Datatype) :: datatype
      integer :: count, ierror
      integer(MPI_OFFSET_KIND) :: position
      integer(MPI_ADDRESS_KIND) :: extra_state
    end subroutine MPI_Datarep_conversion_function
    subroutine MPI_Datarep_extent_function(datatype, extent, extra_state, ierror)
      import :: MPI_Datatype, MPI_ADDRESS_KIND
      type(MPI_Datatype) :: datatype
      integer(MPI_ADDRESS_KIND) :: extent, extra_state
      integer :: ierror
    end subroutine MPI_Datarep_extent_function
    subroutine MPI_Grequest_query_function(extra_state, status, ierror)
      import :: MPI_ADDRESS_KIND, MPI_Status
      integer(MPI_ADDRESS_KIND) :: extra_state
      type(MPI_Status) :: status
      integer :: ierror
    end subroutine MPI_Grequest_query_function
    subroutine MPI_Grequest_free_function(extra_state, ierror)
      import :: MPI_ADDRESS_KIND
      integer(MPI_ADDRESS_KIND) :: extra_state
      integer :: ierror
    end subroutine MPI_Grequest_free_function
    subroutine MPI_Grequest_cancel_function(extra_state, complete, ierror)
      import :: MPI_ADDRESS_KIND
      integer(MPI_ADDRESS_KIND) :: extra_state
      logical :: complete
      integer :: ierror
    end subroutine MPI_Grequest_cancel_function
