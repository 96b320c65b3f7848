! The module `mpi`: constants and explicit interfaces, both generated from the C header. Choice
! buffers are of any type and rank. Routines with procedure arguments are declared here by hand.
module mpi
  implicit none
  include 'mpi_constants.h'
  include 'mpi_interfaces.h'

  interface
    subroutine MPI_Init(ierror)
      integer :: ierror
    end subroutine MPI_Init
    subroutine MPI_Init_thread(required, provided, ierror)
      integer :: required, provided, ierror
    end subroutine MPI_Init_thread
    subroutine MPI_Pcontrol(level)
      integer :: level
    end subroutine MPI_Pcontrol
    subroutine MPI_F_sync_reg(buf)
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buf
      type(*), dimension(*) :: buf
    end subroutine MPI_F_sync_reg
    subroutine MPI_Info_create_env(info, ierror)
      integer :: info, ierror
    end subroutine MPI_Info_create_env
    subroutine MPI_Info_get(info, key, valuelen, value, flag, ierror)
      integer :: info, valuelen, ierror
      character(len=*) :: key, value
      logical :: flag
    end subroutine MPI_Info_get
    subroutine MPI_Info_get_string(info, key, buflen, value, flag, ierror)
      integer :: info, buflen, ierror
      character(len=*) :: key, value
      logical :: flag
    end subroutine MPI_Info_get_string
    double precision function MPI_Wtime()
    end function MPI_Wtime
    double precision function MPI_Wtick()
    end function MPI_Wtick
    integer(8) function MPI_Aint_add(base, disp)
      integer(8) :: base, disp
    end function MPI_Aint_add
    integer(8) function MPI_Aint_diff(addr1, addr2)
      integer(8) :: addr1, addr2
    end function MPI_Aint_diff
    double precision function PMPI_Wtime()
    end function PMPI_Wtime
    double precision function PMPI_Wtick()
    end function PMPI_Wtick
    integer(8) function PMPI_Aint_add(base, disp)
      integer(8) :: base, disp
    end function PMPI_Aint_add
    integer(8) function PMPI_Aint_diff(addr1, addr2)
      integer(8) :: addr1, addr2
    end function PMPI_Aint_diff
    subroutine MPI_Waitany(count, array_of_requests, index, status, ierror)
      integer :: count, array_of_requests(*), index, status(8), ierror
    end subroutine MPI_Waitany
    subroutine MPI_Testany(count, array_of_requests, index, flag, status, ierror)
      integer :: count, array_of_requests(*), index, status(8), ierror
      logical :: flag
    end subroutine MPI_Testany
    subroutine MPI_Waitsome(incount, array_of_requests, outcount, array_of_indices, &
        array_of_statuses, ierror)
      integer :: incount, array_of_requests(*), outcount, array_of_indices(*), ierror
      integer :: array_of_statuses(8, *)
    end subroutine MPI_Waitsome
    subroutine MPI_Testsome(incount, array_of_requests, outcount, array_of_indices, &
        array_of_statuses, ierror)
      integer :: incount, array_of_requests(*), outcount, array_of_indices(*), ierror
      integer :: array_of_statuses(8, *)
    end subroutine MPI_Testsome
    subroutine MPI_Request_get_status_any(count, array_of_requests, index, flag, status, ierror)
      integer :: count, array_of_requests(*), index, status(8), ierror
      logical :: flag
    end subroutine MPI_Request_get_status_any
    subroutine MPI_Request_get_status_some(incount, array_of_requests, outcount, &
        array_of_indices, array_of_statuses, ierror)
      integer :: incount, array_of_requests(*), outcount, array_of_indices(*), ierror
      integer :: array_of_statuses(8, *)
    end subroutine MPI_Request_get_status_some
    subroutine MPI_Buffer_detach(buffer, size, ierror)
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      type(*), dimension(*) :: buffer
      integer :: size, ierror
    end subroutine MPI_Buffer_detach
    subroutine MPI_Type_get_contents(datatype, max_integers, max_addresses, max_datatypes, &
        array_of_integers, array_of_addresses, array_of_datatypes, ierror)
      integer :: datatype, max_integers, max_addresses, max_datatypes, ierror
      integer :: array_of_integers(*), array_of_datatypes(*)
      integer(8) :: array_of_addresses(*)
    end subroutine MPI_Type_get_contents
    subroutine MPI_Comm_set_attr(comm, comm_keyval, attribute_val, ierror)
      integer :: comm, comm_keyval, ierror
      integer(8) :: attribute_val
    end subroutine MPI_Comm_set_attr
    subroutine MPI_Comm_get_attr(comm, comm_keyval, attribute_val, flag, ierror)
      integer :: comm, comm_keyval, ierror
      integer(8) :: attribute_val
      logical :: flag
    end subroutine MPI_Comm_get_attr
    subroutine MPI_Type_set_attr(datatype, type_keyval, attribute_val, ierror)
      integer :: datatype, type_keyval, ierror
      integer(8) :: attribute_val
    end subroutine MPI_Type_set_attr
    subroutine MPI_Type_get_attr(datatype, type_keyval, attribute_val, flag, ierror)
      integer :: datatype, type_keyval, ierror
      integer(8) :: attribute_val
      logical :: flag
    end subroutine MPI_Type_get_attr
    subroutine MPI_Win_set_attr(win, win_keyval, attribute_val, ierror)
      integer :: win, win_keyval, ierror
      integer(8) :: attribute_val
    end subroutine MPI_Win_set_attr
    subroutine MPI_Win_get_attr(win, win_keyval, attribute_val, flag, ierror)
      integer :: win, win_keyval, ierror
      integer(8) :: attribute_val
      logical :: flag
    end subroutine MPI_Win_get_attr
  end interface

  external :: MPI_Op_create, MPI_Comm_create_errhandler, MPI_Win_create_errhandler
  external :: MPI_File_create_errhandler, MPI_Session_create_errhandler, MPI_Comm_create_keyval, MPI_Type_create_keyval
  external :: MPI_Win_create_keyval, MPI_Keyval_create, MPI_Attr_put, MPI_Attr_get
end module mpi
