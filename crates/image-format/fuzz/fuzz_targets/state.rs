//! Any bytes as a state section, behind the checksums: what decodes encodes to the same bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    eyrie_image_format::fuzzing::state(bytes);
});
