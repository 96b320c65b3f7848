//! What lies in the address space besides plain memory: frozen, killed and restored three times in
//! a row, the result is that of an undisturbed run.

mod common;

use common::survives;

#[test]
fn mappings_where_the_restorer_works() {
    survives("occupy", &[], &["4000"], 3);
}
