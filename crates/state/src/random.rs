//! Bytes that nobody guesses, from the kernel.

/// `None`: it gives none.
pub fn bytes<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the buffer is as long as stated.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    (got == N as isize).then_some(bytes)
}
