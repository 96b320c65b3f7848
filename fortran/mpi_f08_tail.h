
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

    subroutine MPI_Comm_create_errhandler_f08(comm_errhandler_fn, errhandler, ierror)
      procedure(MPI_Comm_errhandler_function) :: comm_errhandler_fn
      type(MPI_Errhandler) :: errhandler
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Comm_create_errhandler(comm_errhandler_fn, errhandler%MPI_VAL, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Comm_create_errhandler_f08

    subroutine MPI_Win_create_errhandler_f08(win_errhandler_fn, errhandler, ierror)
      procedure(MPI_Win_errhandler_function) :: win_errhandler_fn
      type(MPI_Errhandler) :: errhandler
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Win_create_errhandler(win_errhandler_fn, errhandler%MPI_VAL, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Win_create_errhandler_f08

    subroutine MPI_File_create_errhandler_f08(file_errhandler_fn, errhandler, ierror)
      procedure(MPI_File_errhandler_function) :: file_errhandler_fn
      type(MPI_Errhandler) :: errhandler
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_File_create_errhandler(file_errhandler_fn, errhandler%MPI_VAL, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_File_create_errhandler_f08

    subroutine MPI_Comm_create_keyval_f08(comm_copy_attr_fn, comm_delete_attr_fn, comm_keyval, &
        extra_state, ierror)
      procedure(MPI_Comm_copy_attr_function) :: comm_copy_attr_fn
      procedure(MPI_Comm_delete_attr_function) :: comm_delete_attr_fn
      integer, intent(out) :: comm_keyval
      integer(MPI_ADDRESS_KIND), intent(in) :: extra_state
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Comm_create_keyval(comm_copy_attr_fn, comm_delete_attr_fn, comm_keyval, &
          extra_state, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Comm_create_keyval_f08

    subroutine MPI_Comm_set_attr_f08(comm, comm_keyval, attribute_val, ierror)
      type(MPI_Comm), intent(in) :: comm
      integer, intent(in) :: comm_keyval
      integer(MPI_ADDRESS_KIND), intent(in) :: attribute_val
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Comm_set_attr(comm%MPI_VAL, comm_keyval, attribute_val, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Comm_set_attr_f08

    subroutine MPI_Comm_get_attr_f08(comm, comm_keyval, attribute_val, flag, ierror)
      type(MPI_Comm), intent(in) :: comm
      integer, intent(in) :: comm_keyval
      integer(MPI_ADDRESS_KIND) :: attribute_val
      logical, intent(out) :: flag
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Comm_get_attr(comm%MPI_VAL, comm_keyval, attribute_val, flag, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Comm_get_attr_f08

    subroutine MPI_Type_create_keyval_f08(type_copy_attr_fn, type_delete_attr_fn, type_keyval, &
        extra_state, ierror)
      procedure(MPI_Type_copy_attr_function) :: type_copy_attr_fn
      procedure(MPI_Type_delete_attr_function) :: type_delete_attr_fn
      integer, intent(out) :: type_keyval
      integer(MPI_ADDRESS_KIND), intent(in) :: extra_state
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Type_create_keyval(type_copy_attr_fn, type_delete_attr_fn, type_keyval, &
          extra_state, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Type_create_keyval_f08

    subroutine MPI_Type_set_attr_f08(datatype, type_keyval, attribute_val, ierror)
      type(MPI_Datatype), intent(in) :: datatype
      integer, intent(in) :: type_keyval
      integer(MPI_ADDRESS_KIND), intent(in) :: attribute_val
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Type_set_attr(datatype%MPI_VAL, type_keyval, attribute_val, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Type_set_attr_f08

    subroutine MPI_Type_get_attr_f08(datatype, type_keyval, attribute_val, flag, ierror)
      type(MPI_Datatype), intent(in) :: datatype
      integer, intent(in) :: type_keyval
      integer(MPI_ADDRESS_KIND) :: attribute_val
      logical, intent(out) :: flag
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Type_get_attr(datatype%MPI_VAL, type_keyval, attribute_val, flag, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Type_get_attr_f08

    subroutine MPI_Win_create_keyval_f08(win_copy_attr_fn, win_delete_attr_fn, win_keyval, &
        extra_state, ierror)
      procedure(MPI_Win_copy_attr_function) :: win_copy_attr_fn
      procedure(MPI_Win_delete_attr_function) :: win_delete_attr_fn
      integer, intent(out) :: win_keyval
      integer(MPI_ADDRESS_KIND), intent(in) :: extra_state
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Win_create_keyval(win_copy_attr_fn, win_delete_attr_fn, win_keyval, &
          extra_state, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Win_create_keyval_f08

    subroutine MPI_Win_set_attr_f08(win, win_keyval, attribute_val, ierror)
      type(MPI_Win), intent(in) :: win
      integer, intent(in) :: win_keyval
      integer(MPI_ADDRESS_KIND), intent(in) :: attribute_val
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Win_set_attr(win%MPI_VAL, win_keyval, attribute_val, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Win_set_attr_f08

    subroutine MPI_Win_get_attr_f08(win, win_keyval, attribute_val, flag, ierror)
      type(MPI_Win), intent(in) :: win
      integer, intent(in) :: win_keyval
      integer(MPI_ADDRESS_KIND) :: attribute_val
      logical, intent(out) :: flag
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_Win_get_attr(win%MPI_VAL, win_keyval, attribute_val, flag, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Win_get_attr_f08

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
