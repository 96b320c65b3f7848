//! Copies past the caches, for bytes that nobody will read soon: the log of a message that its
//! receiver reads elsewhere.

/// Copies `out.len()` bytes from `from` to `out` without drawing `out` into the caches.
///
/// # Safety
/// `from` must be valid for `out.len()` bytes and not overlap `out`.
#[cfg(target_arch = "x86_64")]
pub unsafe fn streaming_copy(from: *const u8, out: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const LINE: usize = 64;
    let to = out.as_mut_ptr();
    let head = to.align_offset(LINE).min(out.len());
    let lines = (out.len() - head) / LINE;
    let tail = head + lines * LINE;
    // SAFETY: the caller's promise for `from`; `to` stays inside `out`, and from `head` on it is
    // aligned to a line. SSE2 is part of x86-64.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        for i in 0..lines {
            let (a, b) = (from.add(head + i * LINE), to.add(head + i * LINE));
            let words = [0, 16, 32, 48].map(|o| _mm_loadu_si128(a.add(o).cast::<__m128i>()));
            for (o, w) in words.into_iter().enumerate() {
                _mm_stream_si128(b.add(o * 16).cast::<__m128i>(), w);
            }
        }
        std::ptr::copy_nonoverlapping(from.add(tail), to.add(tail), out.len() - tail);
        // These stores are not ordered with others; a stamp is to be stored after them.
        _mm_sfence();
    }
}

/// See above; elsewhere an ordinary copy.
///
/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn streaming_copy(from: *const u8, out: &mut [u8]) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_length_at_any_place_is_copied_whole() {
        let from: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        for at in 0..70 {
            for len in [0, 1, 15, 63, 64, 65, 128, 500, 900] {
                let mut to = vec![0u8; 1000];
                // SAFETY: `from` has 1000 bytes and `at + len` is below that.
                unsafe { streaming_copy(from.as_ptr().add(3), &mut to[at..at + len]) };
                assert_eq!(to[at..at + len], from[3..3 + len]);
                assert!(to[..at].iter().chain(&to[at + len..]).all(|&b| b == 0));
            }
        }
    }
}
