//! What an image needs of the processor.
//!
//! A feature that is missing where a process is restored matters only if the process uses it. That
//! it does is certain for registers that hold something and for features that it had to ask the
//! kernel for. Beyond that, code has chosen among variants of functions when it started: the
//! libraries of a compiler, and Eyrie's, by known lists of features, other code that executes
//! `cpuid` by any. Code that was compiled for a feature without asking for it is found by neither,
//! except through its registers.
//!
//! `libgcc` asks for all features when it is loaded, and keeps the answer for others: it uses none
//! itself. Who is told by it has a copy of it within, which asks, or imports its variable. So what
//! imports that counts as code that asks.

use crate::error::RestoreError;
use crate::kernel::cpuid;
use crate::kernel::script::OLD_VDSO_NAME;
use eyrie_image_format::state::processor::{FIXED_BYTES, MAX_COMPONENT};
use eyrie_image_format::state::{Backing, Component, Processor, State, Thread};
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::collections::BTreeSet;

/// Names of features, separated by commas, that count as missing here: for tests.
const HIDE: &str = "EYRIE_IMAGE_HIDE_FEATURES";
/// Where ptrace's XSAVE layout tells which states are enabled.
const XCR0_OFFSET: usize = 464;
/// Where it tells which are in use.
const XSTATE_BV_OFFSET: usize = 512;

const AVX: u64 = 1 << 2;
const AVX512: u64 = 7 << 5;
const PKRU: u64 = 1 << 9;
const AMX: u64 = 3 << 17;
const APX: u64 = 1 << 19;

/// A feature: its name, where CPUID tells (leaf, subleaf, register, bit), and the states that the
/// kernel must have enabled for it.
struct Feature(&'static str, u32, u32, u8, u8, u64);

const FEATURES: [Feature; 74] = [
    Feature("pni", 1, 0, 2, 0, 0),
    Feature("pclmulqdq", 1, 0, 2, 1, 0),
    Feature("ssse3", 1, 0, 2, 9, 0),
    Feature("fma", 1, 0, 2, 12, AVX),
    Feature("cx16", 1, 0, 2, 13, 0),
    Feature("sse4_1", 1, 0, 2, 19, 0),
    Feature("sse4_2", 1, 0, 2, 20, 0),
    Feature("movbe", 1, 0, 2, 22, 0),
    Feature("popcnt", 1, 0, 2, 23, 0),
    Feature("aes", 1, 0, 2, 25, 0),
    Feature("xsave", 1, 0, 2, 27, 0),
    Feature("avx", 1, 0, 2, 28, AVX),
    Feature("f16c", 1, 0, 2, 29, AVX),
    Feature("rdrand", 1, 0, 2, 30, 0),
    Feature("fsgsbase", 7, 0, 1, 0, 0),
    Feature("bmi1", 7, 0, 1, 3, 0),
    Feature("avx2", 7, 0, 1, 5, AVX),
    Feature("bmi2", 7, 0, 1, 8, 0),
    Feature("rtm", 7, 0, 1, 11, 0),
    Feature("avx512f", 7, 0, 1, 16, AVX | AVX512),
    Feature("avx512dq", 7, 0, 1, 17, AVX | AVX512),
    Feature("rdseed", 7, 0, 1, 18, 0),
    Feature("adx", 7, 0, 1, 19, 0),
    Feature("avx512ifma", 7, 0, 1, 21, AVX | AVX512),
    Feature("clflushopt", 7, 0, 1, 23, 0),
    Feature("clwb", 7, 0, 1, 24, 0),
    Feature("avx512cd", 7, 0, 1, 28, AVX | AVX512),
    Feature("sha_ni", 7, 0, 1, 29, 0),
    Feature("avx512bw", 7, 0, 1, 30, AVX | AVX512),
    Feature("avx512vl", 7, 0, 1, 31, AVX | AVX512),
    Feature("avx512vbmi", 7, 0, 2, 1, AVX | AVX512),
    Feature("ospke", 7, 0, 2, 4, PKRU),
    Feature("waitpkg", 7, 0, 2, 5, 0),
    Feature("avx512_vbmi2", 7, 0, 2, 6, AVX | AVX512),
    Feature("gfni", 7, 0, 2, 8, 0),
    Feature("vaes", 7, 0, 2, 9, AVX),
    Feature("vpclmulqdq", 7, 0, 2, 10, AVX),
    Feature("avx512_vnni", 7, 0, 2, 11, AVX | AVX512),
    Feature("avx512_bitalg", 7, 0, 2, 12, AVX | AVX512),
    Feature("avx512_vpopcntdq", 7, 0, 2, 14, AVX | AVX512),
    Feature("rdpid", 7, 0, 2, 22, 0),
    Feature("movdiri", 7, 0, 2, 27, 0),
    Feature("movdir64b", 7, 0, 2, 28, 0),
    Feature("avx512_vp2intersect", 7, 0, 3, 8, AVX | AVX512),
    Feature("serialize", 7, 0, 3, 14, 0),
    Feature("tsxldtrk", 7, 0, 3, 16, 0),
    Feature("amx_bf16", 7, 0, 3, 22, AMX),
    Feature("avx512_fp16", 7, 0, 3, 23, AVX | AVX512),
    Feature("amx_tile", 7, 0, 3, 24, AMX),
    Feature("amx_int8", 7, 0, 3, 25, AMX),
    Feature("sha512", 7, 1, 0, 0, AVX),
    Feature("sm3", 7, 1, 0, 1, AVX),
    Feature("sm4", 7, 1, 0, 2, AVX),
    Feature("avx_vnni", 7, 1, 0, 4, AVX),
    Feature("avx512_bf16", 7, 1, 0, 5, AVX | AVX512),
    Feature("cmpccxadd", 7, 1, 0, 7, 0),
    Feature("amx_fp16", 7, 1, 0, 21, AMX),
    Feature("avx_ifma", 7, 1, 0, 23, AVX),
    Feature("avx_vnni_int8", 7, 1, 3, 4, AVX),
    Feature("avx_ne_convert", 7, 1, 3, 5, AVX),
    Feature("amx_complex", 7, 1, 3, 8, AMX),
    Feature("avx10", 7, 1, 3, 19, AVX | AVX512),
    Feature("apx_f", 7, 1, 3, 21, APX),
    Feature("xsaveopt", 0xd, 1, 0, 0, 0),
    Feature("xsavec", 0xd, 1, 0, 1, 0),
    Feature("xgetbv1", 0xd, 1, 0, 2, 0),
    Feature("lahf_lm", 0x8000_0001, 0, 2, 0, 0),
    Feature("lzcnt", 0x8000_0001, 0, 2, 5, 0),
    Feature("sse4a", 0x8000_0001, 0, 2, 6, 0),
    Feature("3dnowprefetch", 0x8000_0001, 0, 2, 8, 0),
    Feature("xop", 0x8000_0001, 0, 2, 11, AVX),
    Feature("fma4", 0x8000_0001, 0, 2, 16, AVX),
    Feature("tbm", 0x8000_0001, 0, 2, 21, 0),
    Feature("rdtscp", 0x8000_0001, 0, 3, 27, 0),
];

/// Features by which the C library chooses among its functions, and how its loader saves registers.
const OF_THE_C_LIBRARY: &[&str] = &[
    "pni", "ssse3", "sse4_1", "sse4_2", "popcnt", "movbe", "xsave", "xsavec", "avx", "avx2", "fma",
    "fma4", "bmi1", "bmi2", "lzcnt", "rtm", "avx512f", "avx512vl", "avx512bw", "avx512dq",
    "avx512cd", "cx16",
];

/// Beginnings of the names of libraries, and the features by which each chooses.
const KNOWN: [(&[u8], &[&str]); 15] = [
    (b"libc.so", OF_THE_C_LIBRARY),
    (b"libc-2", OF_THE_C_LIBRARY),
    (b"ld-linux", OF_THE_C_LIBRARY),
    (b"libm.so", OF_THE_C_LIBRARY),
    (b"libm-2", OF_THE_C_LIBRARY),
    (b"libgcc_s.so", &[]),
    (b"libquadmath.so", &[]),
    // `std::random_device`.
    (b"libstdc++.so", &["rdrand", "rdseed"]),
    // `MATMUL`.
    (b"libgfortran.so", &["avx", "avx2", "fma", "fma4", "avx512f"]),
    // Operations on 16 bytes.
    (b"libatomic.so", &["cx16", "avx"]),
    // Checksums; Python has it.
    (b"liblzma.so", &["pclmulqdq", "ssse3", "sse4_1"]),
    // Ours: Rust's own library (`fma`), codes and ciphers of what it links.
    (b"libmpi_abi.so", OF_EYRIE),
    (b"libmpi.so.12", OF_EYRIE),
    (b"libmpich.so.12", OF_EYRIE),
    (b"libeyrie_", OF_EYRIE),
];

/// Features that Eyrie's libraries, with all that is linked into them, ask for.
const OF_EYRIE: &[&str] =
    &["ssse3", "sse4_1", "sse4_2", "pclmulqdq", "aes", "avx", "avx2", "fma", "fma4", "gfni"];

/// The permission for these is asked of the kernel first: without it nothing has used them.
const BY_PERMISSION: &str = "amx_";
/// What is asked for. The state beside it, how tiles are laid out, everybody has permission for.
const TILE_DATA: u64 = 1 << 18;

/// Features and the states that only they use.
const BY_STATE: [(u64, &str); 6] = [
    (AVX, "avx"),
    (AVX512, "avx512f"),
    (PKRU, "ospke"),
    (AMX, "amx_tile"),
    (APX, "apx_f"),
    (3, "pni"),
];

/// The word at `at` of an XSAVE area.
fn word(area: &[u8], at: usize) -> u64 {
    let bytes = area.get(at..at + 8).unwrap_or(&[]);
    bytes.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b))
}

/// States that the processor and the kernel have, as bits of XCR0.
fn enabled() -> u64 {
    if __cpuid_count(1, 0).ecx >> 27 & 1 == 0 {
        return 3;
    }
    // SAFETY: the processor has the instruction and the kernel has enabled it, as just seen.
    unsafe { _xgetbv(0) }
}

/// The processor that this runs on.
pub fn here() -> Processor {
    let xcr0 = enabled();
    let top = [__cpuid_count(0, 0).eax, __cpuid_count(0x8000_0000, 0).eax];
    let has = |f: &&Feature| {
        let Feature(_, leaf, sub, register, bit, states) = **f;
        let highest = top[usize::from(leaf >= 0x8000_0000)];
        if leaf > highest || xcr0 & states != states {
            return false;
        }
        let found = __cpuid_count(leaf, sub);
        let word = [found.eax, found.ebx, found.ecx, found.edx][usize::from(register)];
        word >> bit & 1 != 0
    };
    let hidden = std::env::var(HIDE).unwrap_or_default();
    let shown = |f: &&Feature| !hidden.split(',').any(|name| name == f.0);
    let features = FEATURES.iter().filter(has).filter(shown);
    let features = features.map(|f| f.0.as_bytes().to_vec()).collect();
    let component = |number: u32| {
        let found = __cpuid_count(0xd, number);
        // Not those that only the kernel may save.
        let user = found.ecx & 1 == 0 && found.eax > 0 && xcr0 >> number & 1 != 0;
        user.then_some(Component { number, offset: found.ebx, bytes: found.eax })
    };
    let components =
        if top[0] >= 0xd { (2..=MAX_COMPONENT).filter_map(component).collect() } else { vec![] };
    Processor { features, components }
}

/// States that hold something in a thread. That of protection keys always does, which is no matter
/// where there are none.
fn in_use(thread: &Thread, keys: u32) -> u64 {
    let used = word(&thread.xstate, XSTATE_BV_OFFSET);
    if keys & !1 == 0 { used & !PKRU } else { used }
}

/// Refuses a processor without a feature that the process uses, unless it is in `ignored`.
pub fn check(state: &State, here: &Processor, ignored: &[String]) -> Result<(), RestoreError> {
    let gone = |name: &[u8]| {
        !here.features.iter().any(|f| f == name) && !ignored.iter().any(|i| i.as_bytes() == name)
    };
    let missing: Vec<&[u8]> =
        state.processor.features.iter().map(Vec::as_slice).filter(|n| gone(n)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let used = state
        .threads
        .iter()
        .map(|t| in_use(t, state.attributes.keys))
        .fold(state.xcomp_perm & TILE_DATA, |all, t| all | t);
    let by_state =
        |name: &[u8]| BY_STATE.iter().any(|(s, n)| n.as_bytes() == name && used & s & !3 != 0);
    let asked = Asked::by(state);
    let may = |name: &[u8]| used & AMX != 0 || !name.starts_with(BY_PERMISSION.as_bytes());
    let needed = |name: &&&[u8]| by_state(name) || may(name) && asked.for_feature(name);
    let needed: Vec<String> =
        missing.iter().filter(needed).map(|n| String::from_utf8_lossy(n).into_owned()).collect();
    if needed.is_empty() {
        return Ok(());
    }
    let what = format!("its processor lacks {}, which the program uses", needed.join(", "));
    Err(RestoreError::Machine(what))
}

/// What code of a process has asked for.
struct Asked {
    /// Whatever there is.
    any: bool,
    listed: BTreeSet<&'static str>,
}

impl Asked {
    fn for_feature(&self, name: &[u8]) -> bool {
        self.any || self.listed.iter().any(|n| n.as_bytes() == name)
    }

    fn by(state: &State) -> Asked {
        let mut asked = Asked { any: false, listed: BTreeSet::new() };
        let code = state.regions.iter().filter(|r| r.prot & libc::PROT_EXEC as u32 != 0);
        let last = |path: &[u8]| path.rsplit(|&b| b == b'/').next().unwrap_or_default().to_vec();
        let ours = state.files.iter().any(|f| last(&f.path).starts_with(b"libmpi_abi.so"));
        let mut seen = BTreeSet::new();
        for region in code {
            let Backing::File { file, offset } = &region.backing else {
                // Made at run time, or of a file that is lost.
                asked.any |= region.name != OLD_VDSO_NAME;
                continue;
            };
            let path = &state.files[*file as usize].path;
            let name = last(path);
            // Others' MPI libraries may have the names of ours for programs of another ABI.
            let is = |k: &[u8]| name.starts_with(k) && (ours || !k.ends_with(b".so.12"));
            match KNOWN.iter().find(|(k, _)| is(k)) {
                Some((_, features)) => asked.listed.extend(*features),
                None if asked.any => {}
                None => {
                    asked.any |= seen.insert(*file) && cpuid::is_told(path);
                    asked.any |= cpuid::asks(path, *offset, region.end - region.start);
                }
            }
        }
        asked
    }
}

/// The XSAVE area of a thread in the layout of this processor; `template` is an area of it.
pub fn convert(
    thread: &Thread,
    (there, keys): (&Processor, u32),
    here: &Processor,
    template: &[u8],
) -> Result<Vec<u8>, RestoreError> {
    let area = &thread.xstate;
    let enabled = word(template, XCR0_OFFSET);
    let has = |number: u32| here.components.iter().any(|c| c.number == number);
    let used = in_use(thread, if has(PKRU.trailing_zeros()) { !0 } else { keys });
    if there.components == here.components && area.len() == template.len() {
        return Ok(area.clone());
    }
    let lacks = |what: String| RestoreError::Machine(format!("its processor lacks {what}"));
    let mut new = vec![0; template.len()];
    // Legacy registers and the header; what the kernel notes in between is this machine's.
    new[..FIXED_BYTES].copy_from_slice(&area[..FIXED_BYTES]);
    new[XCR0_OFFSET..XSTATE_BV_OFFSET].copy_from_slice(&template[XCR0_OFFSET..XSTATE_BV_OFFSET]);
    new[XSTATE_BV_OFFSET..XSTATE_BV_OFFSET + 8].copy_from_slice(&used.to_le_bytes());
    for number in (2..=MAX_COMPONENT).filter(|n| used >> n & 1 != 0) {
        let find = |p: &Processor| p.components.iter().find(|c| c.number == number).cloned();
        let name = || {
            let by = BY_STATE.iter().find(|(s, _)| s >> number & 1 != 0);
            by.map_or(format!("register state {number}"), |(_, n)| (*n).to_owned())
        };
        let (Some(from), Some(to)) = (find(there), find(here)) else { return Err(lacks(name())) };
        let range = |c: &Component| c.offset as usize..(c.offset + c.bytes) as usize;
        let (Some(source), true) = (area.get(range(&from)), from.bytes == to.bytes) else {
            return Err(lacks(format!("the layout of {}", name())));
        };
        let place = new.get_mut(range(&to)).filter(|_| enabled >> number & 1 != 0);
        place.ok_or_else(|| lacks(name()))?.copy_from_slice(source);
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(xstate: Vec<u8>) -> Thread {
        Thread {
            tid: 1,
            comm: vec![],
            affinity: vec![],
            schedule: crate::resources::attributes::schedule(0),
            regs: [0; 27],
            xstate,
            sigmask: 0,
            altstack: [0; 3],
            robust: [0; 2],
            tid_address: 0,
            rseq: None,
            pending: vec![],
        }
    }

    fn processor(components: &[(u32, u32, u32)]) -> Processor {
        let component =
            |&(number, offset, bytes): &(u32, u32, u32)| Component { number, offset, bytes };
        Processor { features: vec![], components: components.iter().map(component).collect() }
    }

    #[test]
    fn what_the_processor_has_is_what_the_kernel_says() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = text.lines().find_map(|l| l.strip_prefix("flags")).unwrap();
        let flags: Vec<&str> = flags.split_ascii_whitespace().collect();
        let found = here();
        // The kernel has other names for these, or shows them elsewhere.
        let renamed = |n: &str| match n {
            "lzcnt" => "abm".to_owned(),
            other => other.to_owned(),
        };
        // Where these have faults the kernel does not show them; programs find them all the same.
        let hidden = ["rdseed"];
        let differ = |name: &&str| {
            let ours = found.features.iter().any(|f| f == name.as_bytes());
            let shown = flags.contains(&renamed(name).as_str());
            ours != shown && !(ours && hidden.contains(name))
        };
        let names = FEATURES.iter().map(|Feature(name, ..)| *name);
        assert_eq!(names.filter(differ).collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn states_move_to_where_the_other_processor_has_them() {
        let (there, here) =
            (processor(&[(2, 576, 256), (9, 2688, 8)]), processor(&[(2, 576, 256), (9, 832, 8)]));
        let mut old = vec![0; 2696];
        let mut template = vec![0; 840];
        template[XCR0_OFFSET] = 7;
        template[XCR0_OFFSET + 1] = 2;
        old[XSTATE_BV_OFFSET] = 7;
        old[XSTATE_BV_OFFSET + 1] = 2;
        old[24..32].fill(0x1f);
        old[576..832].fill(0xaa);
        old[2688..2696].fill(0x55);
        let new = convert(&thread(old.clone()), (&there, 3), &here, &template).unwrap();
        assert_eq!(new[XCR0_OFFSET..XCR0_OFFSET + 2], [7, 2]);
        assert!(new[24..32].iter().all(|&b| b == 0x1f));
        assert!(new[576..832].iter().all(|&b| b == 0xaa));
        assert!(new[832..840].iter().all(|&b| b == 0x55));
        // A state that is not in use needs no place.
        old[XSTATE_BV_OFFSET + 1] = 0;
        let without = processor(&[(2, 576, 256)]);
        template.truncate(832);
        assert_eq!(
            convert(&thread(old.clone()), (&there, 3), &without, &template).unwrap().len(),
            832
        );
        old[XSTATE_BV_OFFSET + 1] = 2;
        let error = convert(&thread(old.clone()), (&there, 3), &without, &template).unwrap_err();
        assert!(error.to_string().contains("lacks ospke"), "{error}");
        // Nor does one for keys that nobody has.
        let new = convert(&thread(old), (&there, 1), &without, &template).unwrap();
        assert_eq!(new[XSTATE_BV_OFFSET..XSTATE_BV_OFFSET + 2], [7, 0]);
    }
}
