//! Feeds arbitrary bytes to what reads a launcher's answers.
//!
//! Kept true: it does not panic, and what it takes is what a launcher may say.
#![no_main]

use eyrie_control::pmi::{Line, Pmi};
use libfuzzer_sys::fuzz_target;
use std::io::{self, Read, Write};

struct Launcher<'a>(&'a [u8]);

impl Read for Launcher<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Launcher<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(line) = Line::parse(data) {
        assert!(!line.command.is_empty());
    }
    if let Ok(mut pmi) = Pmi::new(Launcher(data)) {
        let _ = pmi.put("key", "value");
        let _ = pmi.barrier();
        if let Ok(Some(value)) = pmi.get("key") {
            assert!(!value.contains('\n'));
        }
        let _ = pmi.finalize();
    }
});
