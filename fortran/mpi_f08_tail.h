
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
