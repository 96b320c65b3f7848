//! Programs are frozen at random instants, killed and restored, three times in a row; the result is
//! that of an undisturbed run.

mod common;

use common::survives;

#[test]
fn heap_and_stdio() {
    survives("plain", &[], &["10000"], 3);
}
