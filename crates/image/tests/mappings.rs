//! What lies in the address space besides plain memory: frozen, killed and restored three times in
//! a row, the result is that of an undisturbed run.

mod common;

use common::survives;

#[test]
fn mappings_where_the_restorer_works() {
    survives("occupy", &[], &["4000"], 3);
}

#[test]
fn shared_memory_without_a_file() {
    survives("shared", &["-lrt"], &["400"], 3);
}

/// Without root, and with the page tables read in the old way.
#[test]
fn without_privileges_and_without_pagemap_scan() {
    common::as_nobody("mappings", &["mappings_where", "shared_"], 2);
}
