//! Registers of a thread, as ptrace gives them and as the words of an image.

/// General registers.
pub type Regs = libc::user_regs_struct;

/// `user_regs_struct` as the image stores it.
pub fn regs_to_words(regs: &Regs) -> [u64; 27] {
    const _: () = assert!(size_of::<Regs>() == 27 * 8);
    // SAFETY: 27 words without padding; every bit pattern is valid.
    unsafe { std::mem::transmute_copy(regs) }
}

/// The inverse of [`regs_to_words`].
pub fn words_to_regs(words: &[u64; 27]) -> Regs {
    // SAFETY: as above.
    unsafe { std::mem::transmute_copy(words) }
}
