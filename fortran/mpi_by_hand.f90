    ! Interfaces that the C prototypes do not tell; generate.py adds the profiling names.
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
    subroutine MPI_Comm_detach_buffer(comm, buffer, size, ierror)
      integer :: comm
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      type(*), dimension(*) :: buffer
      integer :: size, ierror
    end subroutine MPI_Comm_detach_buffer
    subroutine MPI_Session_detach_buffer(session, buffer, size, ierror)
      integer :: session
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      type(*), dimension(*) :: buffer
      integer :: size, ierror
    end subroutine MPI_Session_detach_buffer
    subroutine MPI_Comm_spawn(command, argv, maxprocs, info, root, comm, intercomm, array_of_errcodes, ierror)
      character(len=*) :: command, argv(*)
      integer :: maxprocs, info, root, comm, intercomm, array_of_errcodes(*), ierror
    end subroutine MPI_Comm_spawn
    subroutine MPI_Comm_spawn_multiple(count, array_of_commands, array_of_argv, array_of_maxprocs, array_of_info, &
        root, comm, intercomm, array_of_errcodes, ierror)
      integer :: count, array_of_maxprocs(*), array_of_info(*), root, comm, intercomm
      integer :: array_of_errcodes(*), ierror
      character(len=*) :: array_of_commands(*), array_of_argv(count, *)
    end subroutine MPI_Comm_spawn_multiple
    subroutine MPI_Session_get_nth_pset(session, info, n, pset_len, pset_name, ierror)
      integer :: session, info, n, pset_len, ierror
      character(len=*) :: pset_name
    end subroutine MPI_Session_get_nth_pset
    subroutine MPI_Grequest_start(query_fn, free_fn, cancel_fn, extra_state, request, ierror)
      external :: query_fn, free_fn, cancel_fn
      integer(8) :: extra_state
      integer :: request, ierror
    end subroutine MPI_Grequest_start
    subroutine MPI_Register_datarep(datarep, read_conversion_fn, write_conversion_fn, &
        dtype_file_extent_fn, extra_state, ierror)
      character(len=*) :: datarep
      external :: read_conversion_fn, write_conversion_fn, dtype_file_extent_fn
      integer(8) :: extra_state
      integer :: ierror
    end subroutine MPI_Register_datarep
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
