//! How long a rank runs on a core that others want before it is their turn.
//!
//! Who sleeps until a message comes wants the core when it is there, not when a stranger has used
//! up his slice. Linux (6.12 on) takes who has short slices before one with long ones, and gives
//! him no more of the core in all. Kept true: what the user has chosen stays, a policy or a shorter
//! slice.

/// Shorter than what kernels give by themselves (0.7 ms on one core, more on several).
const SLICE_NS: u64 = 300_000;

/// `struct sched_attr` of the first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of the usual policy: the slice. Older kernels say 0.
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

fn now() -> Option<Attributes> {
    let mut all = Attributes::default();
    // SAFETY: fills a live structure of the size that is said.
    let r = unsafe {
        libc::syscall(libc::SYS_sched_getattr, 0, &raw mut all, size_of::<Attributes>(), 0)
    };
    (r == 0).then_some(all)
}

/// Gives this process short slices, which what it executes and forks has, too. Async-signal-safe.
pub fn shorten() {
    let Some(mut all) = now() else { return };
    if all.policy != libc::SCHED_OTHER as u32 || all.runtime_ns <= SLICE_NS {
        return;
    }
    all.size = size_of::<Attributes>() as u32;
    all.runtime_ns = SLICE_NS;
    // SAFETY: reads a live structure; a refusal changes nothing.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const all, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_shortened_and_nothing_else() {
        // The attributes are this thread's.
        std::thread::spawn(|| {
            let before = now().unwrap();
            shorten();
            let after = now().unwrap();
            assert_eq!((after.policy, after.nice), (before.policy, before.nice));
            assert_eq!(after.runtime_ns, before.runtime_ns.min(SLICE_NS));
            shorten();
            assert_eq!(now().unwrap().runtime_ns, after.runtime_ns);
        })
        .join()
        .unwrap();
    }
}
