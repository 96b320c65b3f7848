//! Error classes, codes and their texts (MPI 5.0 sections 9.4 and 9.5).
//!
//! Kept true: the library itself returns classes only, so a code below `FIRST_DYNAMIC` is its own
//! class. Classes and codes that the program adds share one counter and are never given twice.

use std::collections::BTreeMap;

use crate::error::{Class, Res, class};
use crate::machine::Machine;

/// First class or code that the program can add: above `MPI_ERR_LASTCODE` of both ABIs.
pub const FIRST_DYNAMIC: i32 = 0x4000_0000;
/// `MPI_MAX_ERROR_STRING`, terminator included.
pub const MAX_ERROR_STRING: usize = 512;

/// Texts of the classes, by value.
static TEXTS: [&str; 63] = [
    "MPI_SUCCESS: no error",
    "MPI_ERR_BUFFER: invalid buffer pointer",
    "MPI_ERR_COUNT: invalid count argument",
    "MPI_ERR_TYPE: invalid datatype argument",
    "MPI_ERR_TAG: invalid tag argument",
    "MPI_ERR_COMM: invalid communicator",
    "MPI_ERR_RANK: invalid rank",
    "MPI_ERR_REQUEST: invalid request handle",
    "MPI_ERR_ROOT: invalid root",
    "MPI_ERR_GROUP: invalid group",
    "MPI_ERR_OP: invalid operation",
    "MPI_ERR_TOPOLOGY: invalid topology",
    "MPI_ERR_DIMS: invalid dimension argument",
    "MPI_ERR_ARG: invalid argument of some other kind",
    "MPI_ERR_UNKNOWN: unknown error",
    "MPI_ERR_TRUNCATE: message truncated on receive",
    "MPI_ERR_OTHER: known error not in this list",
    "MPI_ERR_INTERN: internal error",
    "MPI_ERR_PENDING: pending request",
    "MPI_ERR_IN_STATUS: error code is in status",
    "MPI_ERR_ACCESS: permission denied",
    "MPI_ERR_AMODE: invalid access mode passed to MPI_File_open",
    "MPI_ERR_ASSERT: invalid assertion argument",
    "MPI_ERR_BAD_FILE: invalid file name",
    "MPI_ERR_BASE: invalid base passed to MPI_Free_mem",
    "MPI_ERR_CONVERSION: error in a data conversion function",
    "MPI_ERR_DISP: invalid displacement argument",
    "MPI_ERR_DUP_DATAREP: data representation is already defined",
    "MPI_ERR_FILE_EXISTS: file exists",
    "MPI_ERR_FILE_IN_USE: file is in use by some process",
    "MPI_ERR_FILE: invalid file handle",
    "MPI_ERR_INFO_KEY: key is empty or too long",
    "MPI_ERR_INFO_NOKEY: key is not defined in the info object",
    "MPI_ERR_INFO_VALUE: value is too long",
    "MPI_ERR_INFO: invalid info object",
    "MPI_ERR_IO: input/output error",
    "MPI_ERR_KEYVAL: invalid attribute key",
    "MPI_ERR_LOCKTYPE: invalid lock type argument",
    "MPI_ERR_NAME: service name is not published",
    "MPI_ERR_NO_MEM: memory is exhausted",
    "MPI_ERR_NOT_SAME: collective argument differs between processes",
    "MPI_ERR_NO_SPACE: not enough space",
    "MPI_ERR_NO_SUCH_FILE: file does not exist",
    "MPI_ERR_PORT: invalid port name",
    "MPI_ERR_QUOTA: quota exceeded",
    "MPI_ERR_READ_ONLY: read-only file or file system",
    "MPI_ERR_RMA_ATTACH: memory cannot be attached",
    "MPI_ERR_RMA_CONFLICT: conflicting accesses to a window",
    "MPI_ERR_RMA_RANGE: target memory is not part of the window",
    "MPI_ERR_RMA_SHARED: memory cannot be shared",
    "MPI_ERR_RMA_SYNC: wrong synchronization of RMA calls",
    "MPI_ERR_SERVICE: invalid service name",
    "MPI_ERR_SIZE: invalid size argument",
    "MPI_ERR_SPAWN: error in spawning processes",
    "MPI_ERR_UNSUPPORTED_DATAREP: unsupported data representation",
    "MPI_ERR_UNSUPPORTED_OPERATION: unsupported operation",
    "MPI_ERR_WIN: invalid window",
    "MPI_ERR_RMA_FLAVOR: window has the wrong flavor",
    "MPI_ERR_PROC_ABORTED: a peer process has aborted",
    "MPI_ERR_VALUE_TOO_LARGE: value is too large to store",
    "MPI_ERR_SESSION: invalid session",
    "MPI_ERR_ERRHANDLER: invalid error handler",
    "MPI_ERR_ABI: ABI mismatch or unsupported ABI query",
];

/// The first class for failures that the program handles itself.
const FIRST_FAILURE: i32 = 101;

/// Their texts.
static FAILURE_TEXTS: [&str; 3] = [
    "MPI_ERR_PROC_FAILED: a process that is needed has failed",
    "MPI_ERR_PROC_FAILED_PENDING: a process that could have sent the message has failed; the \
     request is pending",
    "MPI_ERR_REVOKED: the communicator is revoked",
];

/// The first code of the tool information interface (MPI 5.0 section 15.3.10), which has codes
/// without classes in the standard's sense: each is its own.
pub const FIRST_TOOL_CODE: i32 = 1001;

/// Their texts.
static TOOL_TEXTS: [&str; 18] = [
    "MPI_T_ERR_CANNOT_INIT: the interface cannot be initialized now",
    "MPI_T_ERR_NOT_ACCESSIBLE: what was asked for is not accessible here or now",
    "MPI_T_ERR_NOT_INITIALIZED: the interface is not initialized",
    "MPI_T_ERR_NOT_SUPPORTED: what was asked for is not supported",
    "MPI_T_ERR_MEMORY: memory is exhausted",
    "MPI_T_ERR_INVALID: invalid use of the interface or bad argument",
    "MPI_T_ERR_INVALID_INDEX: there is no variable, category, event or source of this index",
    "MPI_T_ERR_INVALID_ITEM: there is no item of this index",
    "MPI_T_ERR_INVALID_SESSION: invalid session",
    "MPI_T_ERR_INVALID_HANDLE: invalid handle",
    "MPI_T_ERR_INVALID_NAME: nothing has this name",
    "MPI_T_ERR_OUT_OF_HANDLES: there are no more handles",
    "MPI_T_ERR_OUT_OF_SESSIONS: there are no more sessions",
    "MPI_T_ERR_CVAR_SET_NOT_NOW: the control variable cannot be set now",
    "MPI_T_ERR_CVAR_SET_NEVER: the control variable can never be set",
    "MPI_T_ERR_PVAR_NO_WRITE: the performance variable cannot be written or reset",
    "MPI_T_ERR_PVAR_NO_STARTSTOP: the performance variable cannot be started or stopped",
    "MPI_T_ERR_PVAR_NO_ATOMIC: the performance variable cannot be read and reset at once",
];

/// The text of a class of the standard, or of a code of the tool information interface.
fn fixed_text(code: i32) -> Option<&'static str> {
    let at = |first: i32| usize::try_from(code.checked_sub(first)?).ok();
    let own = at(0).and_then(|n| TEXTS.get(n));
    let own = own.or_else(|| at(FIRST_FAILURE).and_then(|n| FAILURE_TEXTS.get(n)));
    own.or_else(|| at(FIRST_TOOL_CODE).and_then(|n| TOOL_TEXTS.get(n))).copied()
}

/// A class or a code of the program's.
struct Added {
    /// Its class; its own number if it is one.
    class: i32,
    text: Vec<u8>,
    /// Codes that belong to this class.
    codes: u32,
}

/// What the program added, and the texts.
pub(crate) struct Codes {
    added: BTreeMap<i32, Added>,
    next: i32,
}

impl Codes {
    pub(crate) fn new() -> Self {
        Codes { added: BTreeMap::new(), next: FIRST_DYNAMIC }
    }

    fn class(&self, code: i32) -> Option<i32> {
        if fixed_text(code).is_some() {
            return Some(code);
        }
        self.added.get(&code).map(|a| a.class)
    }

    fn add(&mut self, class: Option<i32>) -> Res<i32> {
        let code = self.next;
        self.next = code.checked_add(1).ok_or(class::NO_MEM)?;
        let class = class.unwrap_or(code);
        if class != code
            && let Some(of) = self.added.get_mut(&class)
        {
            of.codes += 1;
        }
        self.added.insert(code, Added { class, text: Vec::new(), codes: 0 });
        Ok(code)
    }

    fn added(&mut self, code: i32) -> Res<&mut Added> {
        self.added.get_mut(&code).ok_or(class::ARG)
    }

    fn remove_class(&mut self, code: i32) -> Res<()> {
        let entry = self.added(code)?;
        if entry.class != code || entry.codes != 0 || !entry.text.is_empty() {
            return Err(class::ARG);
        }
        self.added.remove(&code);
        Ok(())
    }

    fn remove_code(&mut self, code: i32) -> Res<()> {
        let entry = self.added(code)?;
        let class = entry.class;
        // Its text has to be removed first.
        if class == code || !entry.text.is_empty() {
            return Err(class::ARG);
        }
        self.added.remove(&code);
        if let Some(of) = self.added.get_mut(&class) {
            of.codes -= 1;
        }
        Ok(())
    }

    fn text(&self, code: i32) -> Option<&[u8]> {
        let fixed = fixed_text(code);
        fixed.map(|t| t.as_bytes()).or_else(|| self.added.get(&code).map(|a| &a.text[..]))
    }
}

/// Text of a class of the standard, for messages on stderr.
pub fn class_text(code: Class) -> &'static str {
    fixed_text(code.0).unwrap_or("error code")
}

impl Machine {
    pub fn add_error_class(&mut self) -> Res<i32> {
        let code = self.errhandlers.codes.add(None)?;
        self.attrs.set_last_used_code(code);
        Ok(code)
    }

    pub fn add_error_code(&mut self, class: i32) -> Res<i32> {
        let codes = &mut self.errhandlers.codes;
        if codes.class(class) != Some(class) {
            return Err(class::ARG);
        }
        let code = codes.add(Some(class))?;
        self.attrs.set_last_used_code(code);
        Ok(code)
    }

    /// Sets the text of an added class or code; an empty text is allowed.
    pub fn add_error_string(&mut self, code: i32, text: &[u8]) -> Res<()> {
        let kept = &text[..text.len().min(MAX_ERROR_STRING - 1)];
        self.errhandlers.codes.added(code)?.text = kept.to_vec();
        Ok(())
    }

    pub fn remove_error_class(&mut self, class: i32) -> Res<()> {
        self.errhandlers.codes.remove_class(class)
    }

    pub fn remove_error_code(&mut self, code: i32) -> Res<()> {
        self.errhandlers.codes.remove_code(code)
    }

    pub fn remove_error_string(&mut self, code: i32) -> Res<()> {
        self.errhandlers.codes.added(code)?.text.clear();
        Ok(())
    }

    pub fn error_class(&self, code: i32) -> Res<i32> {
        self.errhandlers.codes.class(code).ok_or(class::ARG)
    }

    /// At most `MAX_ERROR_STRING` - 1 bytes.
    pub fn error_string(&self, code: i32) -> Res<&[u8]> {
        self.errhandlers.codes.text(code).ok_or(class::ARG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stand_at_their_classes() {
        for (class, name) in [
            (class::TRUNCATE, "MPI_ERR_TRUNCATE"),
            (class::PENDING, "MPI_ERR_PENDING"),
            (class::INFO, "MPI_ERR_INFO:"),
            (class::NO_SUCH_FILE, "MPI_ERR_NO_SUCH_FILE"),
            (class::SPAWN, "MPI_ERR_SPAWN"),
            (class::WIN, "MPI_ERR_WIN"),
            (class::ABI, "MPI_ERR_ABI"),
        ] {
            assert!(class_text(class).starts_with(name), "{name}");
        }
    }

    #[test]
    fn added_codes_belong_to_their_class() {
        let mut codes = Codes::new();
        let own = codes.add(None).unwrap();
        let a = codes.add(Some(own)).unwrap();
        let b = codes.add(Some(class::TAG.0)).unwrap();
        assert_eq!(codes.class(a), Some(own));
        assert_eq!(codes.class(b), Some(class::TAG.0));
        assert_eq!(codes.class(b + 1), None);
        assert_eq!(codes.remove_class(own), Err(class::ARG));
        assert_eq!(codes.remove_code(own), Err(class::ARG));
        codes.added(a).unwrap().text = b"text".to_vec();
        assert_eq!(codes.remove_code(a), Err(class::ARG));
        codes.added(a).unwrap().text.clear();
        codes.remove_code(a).unwrap();
        codes.added(own).unwrap().text = b"text".to_vec();
        assert_eq!(codes.remove_class(own), Err(class::ARG));
        codes.added(own).unwrap().text.clear();
        codes.remove_class(own).unwrap();
        assert_eq!(codes.class(own), None);
        assert_eq!(codes.text(own), None);
        assert_eq!(codes.text(b), Some(&b""[..]));
    }
}
