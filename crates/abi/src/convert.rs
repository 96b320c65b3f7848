//! Handles as integers: `MPI_X_toint` and `MPI_X_fromint` (MPI 5.0 section 20.3), and `MPI_X_c2f`
//! and `MPI_X_f2c` (MPI 4.1 section 19.3.4), which give the same integers.
//!
//! Kept true: the integer of an object that was made at run time is the machine's own, so both
//! directions need no table.

use std::ffi::c_int;

use crate::repr::*;

macro_rules! integers {
    ($($handle:ident: $toint:ident $fromint:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $toint(handle: $handle) -> c_int {
            handle.int()
        }
        #[unsafe(no_mangle)]
        pub extern "C" fn $fromint(value: c_int) -> $handle {
            $handle::of_int(value)
        }
    )*};
}

integers! {
    Comm: PMPI_Comm_toint PMPI_Comm_fromint;
    Datatype: PMPI_Type_toint PMPI_Type_fromint;
    Errhandler: PMPI_Errhandler_toint PMPI_Errhandler_fromint;
    File: PMPI_File_toint PMPI_File_fromint;
    Group: PMPI_Group_toint PMPI_Group_fromint;
    Info: PMPI_Info_toint PMPI_Info_fromint;
    Message: PMPI_Message_toint PMPI_Message_fromint;
    Op: PMPI_Op_toint PMPI_Op_fromint;
    Request: PMPI_Request_toint PMPI_Request_fromint;
    Session: PMPI_Session_toint PMPI_Session_fromint;
    Win: PMPI_Win_toint PMPI_Win_fromint;
}

integers! {
    Comm: PMPI_Comm_c2f PMPI_Comm_f2c;
    Datatype: PMPI_Type_c2f PMPI_Type_f2c;
    Errhandler: PMPI_Errhandler_c2f PMPI_Errhandler_f2c;
    File: PMPI_File_c2f PMPI_File_f2c;
    Group: PMPI_Group_c2f PMPI_Group_f2c;
    Info: PMPI_Info_c2f PMPI_Info_f2c;
    Message: PMPI_Message_c2f PMPI_Message_f2c;
    Op: PMPI_Op_c2f PMPI_Op_f2c;
    Request: PMPI_Request_c2f PMPI_Request_f2c;
    Session: PMPI_Session_c2f PMPI_Session_f2c;
    Win: PMPI_Win_c2f PMPI_Win_f2c;
}
