//! Programs with child processes: the family is frozen, killed and restored as a whole.

mod common;

use common::survives;

#[test]
fn children_grandchildren_and_those_that_have_ended() {
    common::adopt_orphans();
    survives("family", &[], &["1500"], 3);
}
