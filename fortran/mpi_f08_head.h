
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
  public :: MPI_File_errhandler_function
  public :: MPI_Comm_copy_attr_function, MPI_Comm_delete_attr_function
  public :: MPI_Type_copy_attr_function, MPI_Type_delete_attr_function
  public :: MPI_Win_copy_attr_function, MPI_Win_delete_attr_function

  abstract interface
    subroutine MPI_User_function(invec, inoutvec, len, datatype)
      import :: c_ptr, MPI_Datatype
      type(c_ptr), value :: invec, inoutvec
      integer :: len
      type(MPI_Datatype) :: datatype
    end subroutine MPI_User_function
    subroutine MPI_Comm_errhandler_function(comm, error_code)
      import :: MPI_Comm
      type(MPI_Comm) :: comm
      integer :: error_code
    end subroutine MPI_Comm_errhandler_function
    subroutine MPI_Win_errhandler_function(win, error_code)
      import :: MPI_Win
      type(MPI_Win) :: win
      integer :: error_code
    end subroutine MPI_Win_errhandler_function
    subroutine MPI_File_errhandler_function(file, error_code)
      import :: MPI_File
      type(MPI_File) :: file
      integer :: error_code
    end subroutine MPI_File_errhandler_function
    subroutine MPI_Comm_copy_attr_function(oldcomm, comm_keyval, extra_state, attribute_val_in, &
        attribute_val_out, flag, ierror)
      import :: MPI_Comm, MPI_ADDRESS_KIND
      type(MPI_Comm) :: oldcomm
      integer :: comm_keyval, ierror
      integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
      logical :: flag
    end subroutine MPI_Comm_copy_attr_function
    subroutine MPI_Comm_delete_attr_function(comm, comm_keyval, attribute_val, extra_state, ierror)
      import :: MPI_Comm, MPI_ADDRESS_KIND
      type(MPI_Comm) :: comm
      integer :: comm_keyval, ierror
      integer(MPI_ADDRESS_KIND) :: attribute_val, extra_state
    end subroutine MPI_Comm_delete_attr_function
    subroutine MPI_Type_copy_attr_function(oldtype, type_keyval, extra_state, attribute_val_in, &
        attribute_val_out, flag, ierror)
      import :: MPI_Datatype, MPI_ADDRESS_KIND
      type(MPI_Datatype) :: oldtype
      integer :: type_keyval, ierror
      integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
      logical :: flag
    end subroutine MPI_Type_copy_attr_function
    subroutine MPI_Type_delete_attr_function(datatype, type_keyval, attribute_val, extra_state, &
        ierror)
      import :: MPI_Datatype, MPI_ADDRESS_KIND
      type(MPI_Datatype) :: datatype
      integer :: type_keyval, ierror
      integer(MPI_ADDRESS_KIND) :: attribute_val, extra_state
    end subroutine MPI_Type_delete_attr_function
    subroutine MPI_Win_copy_attr_function(oldwin, win_keyval, extra_state, attribute_val_in, &
        attribute_val_out, flag, ierror)
      import :: MPI_Win, MPI_ADDRESS_KIND
      type(MPI_Win) :: oldwin
      integer :: win_keyval, ierror
      integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
      logical :: flag
    end subroutine MPI_Win_copy_attr_function
    subroutine MPI_Win_delete_attr_function(win, win_keyval, attribute_val, extra_state, ierror)
      import :: MPI_Win, MPI_ADDRESS_KIND
      type(MPI_Win) :: win
      integer :: win_keyval, ierror
      integer(MPI_ADDRESS_KIND) :: attribute_val, extra_state
    end subroutine MPI_Win_delete_attr_function
  end interface
