
    subroutine MPI_Init_f08(ierror)
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Init(e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Init_f08

    subroutine MPI_Init_thread_f08(required, provided, ierror)
      integer, intent(in) :: required
      integer, intent(out) :: provided
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Init_thread(required, provided, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Init_thread_f08

    subroutine MPI_Pcontrol_f08(level)
      integer, intent(in) :: level
      call f_MPI_Pcontrol(level)
    end subroutine MPI_Pcontrol_f08

    subroutine MPI_F_sync_reg_f08(buf)
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buf
      type(*), dimension(*) :: buf
      call f_MPI_F_sync_reg(buf)
    end subroutine MPI_F_sync_reg_f08

    subroutine MPI_Info_create_env_f08(info, ierror)
      type(MPI_Info) :: info
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Info_create_env(info%MPI_VAL, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Info_create_env_f08

    subroutine MPI_Op_create_f08(user_fn, commute, op, ierror)
      procedure(MPI_User_function) :: user_fn
      logical, intent(in) :: commute
      type(MPI_Op) :: op
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Op_create(user_fn, commute, op%MPI_VAL, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Op_create_f08

    subroutine MPI_Status_f2f08(f_status, f08_status, ierror)
      integer, intent(in) :: f_status(MPI_STATUS_SIZE)
      type(MPI_Status), intent(out) :: f08_status
      integer, optional, intent(out) :: ierror
      f08_status = transfer(f_status, f08_status)
      if (present(ierror)) ierror = MPI_SUCCESS
    end subroutine MPI_Status_f2f08

    subroutine MPI_Status_f082f(f08_status, f_status, ierror)
      type(MPI_Status), intent(in) :: f08_status
      integer, intent(out) :: f_status(MPI_STATUS_SIZE)
      integer, optional, intent(out) :: ierror
      f_status = transfer(f08_status, f_status)
      if (present(ierror)) ierror = MPI_SUCCESS
    end subroutine MPI_Status_f082f

    subroutine MPI_Buffer_detach_f08(buffer_addr, size, ierror)
      type(c_ptr), intent(out) :: buffer_addr
      integer, intent(out) :: size
      integer, optional, intent(out) :: ierror
      interface
        integer(c_int) function detach(at, size) bind(C, name='eyrie_mpi_f08_buffer_detach')
          import :: c_ptr, c_int
          type(c_ptr) :: at
          integer(c_int) :: size
        end function detach
      end interface
      integer :: e
      e = detach(buffer_addr, size)
      if (present(ierror)) ierror = e
    end subroutine MPI_Buffer_detach_f08

    subroutine MPI_Comm_detach_buffer_f08(comm, buffer_addr, size, ierror)
      type(MPI_Comm), intent(in) :: comm
      type(c_ptr), intent(out) :: buffer_addr
      integer, intent(out) :: size
      integer, optional, intent(out) :: ierror
      interface
        integer(c_int) function detach(of, at, size) &
            bind(C, name='eyrie_mpi_f08_comm_detach_buffer')
          import :: c_ptr, c_int
          integer(c_int), value :: of
          type(c_ptr) :: at
          integer(c_int) :: size
        end function detach
      end interface
      integer :: e
      e = detach(comm%MPI_VAL, buffer_addr, size)
      if (present(ierror)) ierror = e
    end subroutine MPI_Comm_detach_buffer_f08

    subroutine MPI_Session_detach_buffer_f08(session, buffer_addr, size, ierror)
      type(MPI_Session), intent(in) :: session
      type(c_ptr), intent(out) :: buffer_addr
      integer, intent(out) :: size
      integer, optional, intent(out) :: ierror
      interface
        integer(c_int) function detach(of, at, size) &
            bind(C, name='eyrie_mpi_f08_session_detach_buffer')
          import :: c_ptr, c_int
          integer(c_int), value :: of
          type(c_ptr) :: at
          integer(c_int) :: size
        end function detach
      end interface
      integer :: e
      e = detach(session%MPI_VAL, buffer_addr, size)
      if (present(ierror)) ierror = e
    end subroutine MPI_Session_detach_buffer_f08

    subroutine MPI_Session_get_nth_pset_f08(session, info, n, pset_len, pset_name, ierror)
      type(MPI_Session), intent(in) :: session
      type(MPI_Info), intent(in) :: info
      integer, intent(in) :: n
      integer, intent(inout) :: pset_len
      character(len=*), intent(out) :: pset_name
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Session_get_nth_pset(session%MPI_VAL, info%MPI_VAL, n, pset_len, pset_name, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Session_get_nth_pset_f08

    subroutine MPI_Grequest_start_f08(query_fn, free_fn, cancel_fn, extra_state, request, ierror)
      procedure(MPI_Grequest_query_function) :: query_fn
      procedure(MPI_Grequest_free_function) :: free_fn
      procedure(MPI_Grequest_cancel_function) :: cancel_fn
      integer(MPI_ADDRESS_KIND), intent(in) :: extra_state
      type(MPI_Request) :: request
      integer, optional, intent(out) :: ierror
      integer(MPI_ADDRESS_KIND) :: extra
      integer :: e
      extra = extra_state
      call f_MPI_Grequest_start(query_fn, free_fn, cancel_fn, extra, request%MPI_VAL, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Grequest_start_f08

    subroutine MPI_Register_datarep_f08(datarep, read_conversion_fn, write_conversion_fn, &
        dtype_file_extent_fn, extra_state, ierror)
      character(len=*), intent(in) :: datarep
      procedure(MPI_Datarep_conversion_function) :: read_conversion_fn, write_conversion_fn
      procedure(MPI_Datarep_extent_function) :: dtype_file_extent_fn
      integer(MPI_ADDRESS_KIND), intent(in) :: extra_state
      integer, optional, intent(out) :: ierror
      integer(MPI_ADDRESS_KIND) :: extra
      integer :: e
      extra = extra_state
      call f_MPI_Register_datarep(datarep, read_conversion_fn, write_conversion_fn, &
          dtype_file_extent_fn, extra, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Register_datarep_f08
