//! MPI error classes, by their values in the MPI-5 standard ABI.

/// An error class (`MPI_ERR_*`); 0 is success and never stored in an `Err`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class(pub i32);

/// Result of an MPI operation.
pub type Res<T> = Result<T, Class>;

/// The classes, MPI 5.0 section 9.4.
pub mod class {
    use super::Class;

    pub const SUCCESS: Class = Class(0);
    pub const BUFFER: Class = Class(1);
    pub const COUNT: Class = Class(2);
    pub const TYPE: Class = Class(3);
    pub const TAG: Class = Class(4);
    pub const COMM: Class = Class(5);
    pub const RANK: Class = Class(6);
    pub const REQUEST: Class = Class(7);
    pub const ROOT: Class = Class(8);
    pub const GROUP: Class = Class(9);
    pub const OP: Class = Class(10);
    pub const TOPOLOGY: Class = Class(11);
    pub const DIMS: Class = Class(12);
    pub const ARG: Class = Class(13);
    pub const UNKNOWN: Class = Class(14);
    pub const TRUNCATE: Class = Class(15);
    pub const OTHER: Class = Class(16);
    pub const INTERN: Class = Class(17);
    pub const PENDING: Class = Class(18);
    pub const IN_STATUS: Class = Class(19);
    pub const ACCESS: Class = Class(20);
    pub const AMODE: Class = Class(21);
    pub const ASSERT: Class = Class(22);
    pub const BAD_FILE: Class = Class(23);
    pub const BASE: Class = Class(24);
    pub const CONVERSION: Class = Class(25);
    pub const DISP: Class = Class(26);
    pub const DUP_DATAREP: Class = Class(27);
    pub const FILE_EXISTS: Class = Class(28);
    pub const FILE_IN_USE: Class = Class(29);
    pub const FILE: Class = Class(30);
    pub const INFO_KEY: Class = Class(31);
    pub const INFO_NOKEY: Class = Class(32);
    pub const INFO_VALUE: Class = Class(33);
    pub const INFO: Class = Class(34);
    pub const IO: Class = Class(35);
    pub const KEYVAL: Class = Class(36);
    pub const LOCKTYPE: Class = Class(37);
    pub const NAME: Class = Class(38);
    pub const NO_MEM: Class = Class(39);
    pub const NOT_SAME: Class = Class(40);
    pub const NO_SPACE: Class = Class(41);
    pub const NO_SUCH_FILE: Class = Class(42);
    pub const PORT: Class = Class(43);
    pub const QUOTA: Class = Class(44);
    pub const READ_ONLY: Class = Class(45);
    pub const RMA_ATTACH: Class = Class(46);
    pub const RMA_CONFLICT: Class = Class(47);
    pub const RMA_RANGE: Class = Class(48);
    pub const RMA_SHARED: Class = Class(49);
    pub const RMA_SYNC: Class = Class(50);
    pub const SERVICE: Class = Class(51);
    pub const SIZE: Class = Class(52);
    pub const SPAWN: Class = Class(53);
    pub const UNSUPPORTED_DATAREP: Class = Class(54);
    pub const UNSUPPORTED_OPERATION: Class = Class(55);
    pub const WIN: Class = Class(56);
    pub const RMA_FLAVOR: Class = Class(57);
    pub const PROC_ABORTED: Class = Class(58);
    pub const VALUE_TOO_LARGE: Class = Class(59);
    pub const SESSION: Class = Class(60);
    pub const ERRHANDLER: Class = Class(61);
    pub const ABI: Class = Class(62);
    // Behind those of the standard, by the numbers that MPICH has for them.
    pub const PROC_FAILED: Class = Class(101);
    pub const PROC_FAILED_PENDING: Class = Class(102);
    pub const REVOKED: Class = Class(103);
}
