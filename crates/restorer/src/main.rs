//! `eyrie-restorer`: carries out a restore plan in its own process and stops itself.
//!
//! It is started under ptrace by `eyrie_image::restore`, which puts the plan's descriptor in `rdi`,
//! its length in `rsi` and the address to map it at in `rdx` before the first instruction, and that
//! later takes the registers of the restored process into its own hands. It runs wherever its bytes
//! were moved to: nothing that it uses is an absolute address. It has no libc, no heap, no
//! thread-local storage and a stack of its own, so that every mapping and every registration it was
//! born with can be taken away under it. Started by hand it says so and exits.

#![allow(unsafe_code)] // no libc, raw system calls
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use eyrie_restorer::plan::{Header, MAGIC, MAX_PLAN_BYTES, Step, expect, special};

const SYS_WRITE: u64 = 1;
const SYS_MMAP: u64 = 9;
const SYS_GETPID: u64 = 39;
const SYS_KILL: u64 = 62;
const SYS_EXIT_GROUP: u64 = 231;
const SIGSTOP: u64 = 19;
const PROT_READ_WRITE: u64 = 3;
const MAP_SHARED_FIXED_NOREPLACE: u64 = 0x10_0001;

// The stack is part of the restorer's own data: the kernel's stack goes away with the first steps.
global_asm!(
    ".bss",
    ".balign 16",
    "restorer_stack:",
    ".skip 16384",
    "restorer_stack_end:",
    ".text",
    ".global _start",
    "_start:",
    "lea rsp, [rip + restorer_stack_end]",
    "xor ebp, ebp",
    "call {run}",
    "ud2",
    run = sym run,
);

/// Makes one system call.
///
/// # Safety
/// The planner vouches for what the call does to this address space.
#[inline(always)]
unsafe fn syscall(nr: u64, a: &[u64; 6]) -> i64 {
    let ret: i64;
    // SAFETY: the kernel clobbers rcx and r11 only; memory effects are declared by the default
    // memory clobber of asm!.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr as i64 => ret,
            in("rdi") a[0],
            in("rsi") a[1],
            in("rdx") a[2],
            in("r10") a[3],
            in("r8") a[4],
            in("r9") a[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    ret
}

/// Palette 1 with one tile of 16 rows and 64 bytes a row.
static TILE_CONFIG: [u8; 64] = {
    let mut config = [0; 64];
    config[0] = 1;
    config[16] = 64;
    config[48] = 16;
    config
};

fn exit(code: u64) -> ! {
    loop {
        // SAFETY: ends this process.
        unsafe { syscall(SYS_EXIT_GROUP, &[code, 0, 0, 0, 0, 0]) };
    }
}

/// Uses AMX once. The kernel takes the trap of the first use as the occasion to grow this thread's
/// state buffer; without it, setting AMX registers from outside fails.
fn touch_amx() -> i64 {
    // SAFETY: the planner asked for the permission to use AMX in the step before, and the tile
    // state is released at once; no other register is touched.
    unsafe {
        asm!(
            "ldtilecfg [{c}]",
            ".byte 0xc4, 0xe2, 0x7b, 0x49, 0xc0", // tilezero tmm0
            "tilerelease",
            c = in(reg) &raw const TILE_CONFIG,
            options(nostack),
        );
    }
    0
}

fn carry_out(step: &Step) -> i64 {
    if step.call == special::TOUCH_AMX {
        return touch_amx();
    }
    // SAFETY: the planner computed the step for this very process.
    unsafe { syscall(u64::from(step.call), &step.args) }
}

fn holds(step: &Step, result: i64) -> bool {
    match step.expect {
        expect::ANY => true,
        expect::SUCCESS => !(-4095..0).contains(&result),
        _ => result as u64 == step.value,
    }
}

extern "C" fn run(fd: u64, bytes: u64, place: u64) -> ! {
    if bytes < size_of::<Header>() as u64 || bytes > MAX_PLAN_BYTES {
        let text = b"eyrie-restorer is started by eyrie and is of no use by itself\n";
        let args = [2, text.as_ptr() as u64, text.len() as u64, 0, 0, 0];
        // SAFETY: writes a constant.
        unsafe { syscall(SYS_WRITE, &args) };
        exit(2);
    }
    let args = [place, bytes, PROT_READ_WRITE, MAP_SHARED_FIXED_NOREPLACE, fd, 0];
    // SAFETY: nothing can lie there yet; the flags see to it.
    if unsafe { syscall(SYS_MMAP, &args) } as u64 != place {
        exit(3);
    }
    let head = place as *mut Header;
    // SAFETY: the plan is mapped, at least a header long, page-aligned and stays mapped.
    let (magic, count) = unsafe { ((*head).magic, (*head).steps) };
    let room = (bytes - size_of::<Header>() as u64) / size_of::<Step>() as u64;
    if magic != MAGIC || count > room {
        exit(4);
    }
    let steps = (place + size_of::<Header>() as u64) as *const Step;
    // SAFETY: the fields are aligned, mapped, and shared with the planner's pread only.
    let done = unsafe { AtomicU64::from_ptr(&raw mut (*head).done) };
    // SAFETY: as above.
    let failure = unsafe { AtomicI64::from_ptr(&raw mut (*head).result) };
    let mut i = 0;
    while i < count {
        // SAFETY: i < count, and count steps fit the mapping.
        let step = unsafe { &*steps.add(i as usize) };
        let result = carry_out(step);
        if !holds(step, result) {
            failure.store(result, Ordering::SeqCst);
            exit(5);
        }
        i += 1;
        done.store(i, Ordering::SeqCst);
    }
    // SAFETY: the planner's side waits for this stop and never lets us past it.
    unsafe {
        let pid = syscall(SYS_GETPID, &[0; 6]) as u64;
        syscall(SYS_KILL, &[pid, SIGSTOP, 0, 0, 0, 0]);
    }
    exit(6);
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(7)
}
