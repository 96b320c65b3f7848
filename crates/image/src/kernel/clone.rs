//! Making a process with `clone3`, which can choose its number.

/// `struct clone_args` up to `set_tid_size`.
#[repr(C, align(8))]
#[derive(Default)]
pub struct CloneArgs {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
}

impl CloneArgs {
    /// Makes a child with the number that is written at `set_tid`.
    pub fn numbered(exit_signal: i32, set_tid: u64) -> CloneArgs {
        let exit_signal = exit_signal as u64;
        CloneArgs { exit_signal, set_tid, set_tid_size: 1, ..CloneArgs::default() }
    }

    /// The child has the same descriptors, not copies of them.
    pub fn sharing_descriptors(mut self) -> CloneArgs {
        self.flags |= libc::CLONE_FILES as u64;
        self
    }

    /// The structure as words.
    pub fn words(&self) -> [u64; 10] {
        const _: () = assert!(size_of::<CloneArgs>() == 80);
        // SAFETY: ten words without padding.
        unsafe { std::mem::transmute_copy(self) }
    }
}
