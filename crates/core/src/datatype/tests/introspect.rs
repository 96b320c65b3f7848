//! Envelope, contents, names, life time, Fortran kinds.

use crate::consts::{DATATYPE_NULL, UNDEFINED};
use crate::datatype::predefined as p;
use crate::datatype::{
    Combiner, Contents, DISTRIBUTE_BLOCK, DISTRIBUTE_CYCLIC, DISTRIBUTE_DFLT_DARG, Darray, Form,
    ORDER_C, ORDER_FORTRAN, TypeTable,
};
use crate::error::class;
use crate::handle::Handle;

/// Integers, addresses and large counts in both forms, and the constituents.
type Lists<'a> = (&'a [i64], &'a [i64], &'a [i64], &'a [i64], &'a [Handle]);

/// Checks both forms: (integers, addresses) of the small, (integers, counts) of the large.
fn check(t: &mut TypeTable, h: Handle, combiner: Combiner, expected: Lists<'_>) {
    let (integers, addresses, large_integers, counts, datatypes) = expected;
    for form in [Form::Small, Form::Large] {
        t.get(h).unwrap().set_form(form);
        let (ints, addrs, large): (&[i64], &[i64], &[i64]) = match form {
            Form::Small => (integers, addresses, &[]),
            Form::Large => (large_integers, &[], counts),
        };
        let e = t.get(h).unwrap().envelope();
        assert_eq!(e.combiner, combiner);
        assert_eq!((e.integers, e.addresses), (ints.len(), addrs.len()), "{combiner:?}");
        assert_eq!((e.large_counts, e.datatypes), (large.len(), datatypes.len()), "{combiner:?}");
        let expected = Contents {
            integers: ints.to_vec(),
            addresses: addrs.to_vec(),
            large_counts: large.to_vec(),
            datatypes: datatypes.to_vec(),
        };
        assert_eq!(t.contents(h).unwrap(), expected, "{combiner:?} {form:?}");
    }
}

#[test]
fn contents_of_every_constructor() {
    let mut t = TypeTable::new();
    let old = &[p::INT][..];
    let h = t.contiguous(3, p::INT).unwrap();
    check(&mut t, h, Combiner::Contiguous, (&[3], &[], &[], &[3], old));
    let h = t.vector(3, 2, 5, p::INT).unwrap();
    check(&mut t, h, Combiner::Vector, (&[3, 2, 5], &[], &[], &[3, 2, 5], old));
    let h = t.hvector(3, 2, 50, p::INT).unwrap();
    check(&mut t, h, Combiner::Hvector, (&[3, 2], &[50], &[], &[3, 2, 50], old));
    let h = t.indexed(&[1, 2], &[0, 7], p::INT).unwrap();
    check(&mut t, h, Combiner::Indexed, (&[2, 1, 2, 0, 7], &[], &[], &[2, 1, 2, 0, 7], old));
    let h = t.hindexed(&[1, 2], &[0, 70], p::INT).unwrap();
    check(&mut t, h, Combiner::Hindexed, (&[2, 1, 2], &[0, 70], &[], &[2, 1, 2, 0, 70], old));
    let h = t.indexed_block(4, &[0, 7], p::INT).unwrap();
    check(&mut t, h, Combiner::IndexedBlock, (&[2, 4, 0, 7], &[], &[], &[2, 4, 0, 7], old));
    let h = t.hindexed_block(4, &[0, 70], p::INT).unwrap();
    check(&mut t, h, Combiner::HindexedBlock, (&[2, 4], &[0, 70], &[], &[2, 4, 0, 70], old));
    let two = [p::INT, p::DOUBLE];
    let h = t.structure(&[1, 2], &[0, 8], &two).unwrap();
    check(&mut t, h, Combiner::Struct, (&[2, 1, 2], &[0, 8], &[], &[2, 1, 2, 0, 8], &two));
    let h = t.resized(p::INT, -4, 16).unwrap();
    check(&mut t, h, Combiner::Resized, (&[], &[-4, 16], &[], &[-4, 16], old));
    let h = t.dup(p::INT).unwrap();
    check(&mut t, h, Combiner::Dup, (&[], &[], &[], &[], old));
}

#[test]
fn contents_of_arrays_and_fortran_kinds() {
    let mut t = TypeTable::new();
    let old = &[p::INT][..];
    let h = t.subarray(&[4, 5], &[2, 3], &[1, 2], ORDER_C, p::INT).unwrap();
    let small = [2, 4, 5, 2, 3, 1, 2, 12];
    check(&mut t, h, Combiner::Subarray, (&small, &[], &[2, 12], &small[1..7], old));
    let args = Darray {
        size: 6,
        rank: 4,
        gsizes: &[10, 9],
        distribs: &[DISTRIBUTE_BLOCK, DISTRIBUTE_CYCLIC],
        dargs: &[DISTRIBUTE_DFLT_DARG, 2],
        psizes: &[2, 3],
        order: ORDER_FORTRAN,
    };
    let h = t.darray(args, p::INT).unwrap();
    let small = [6, 4, 2, 10, 9, 17, 18, 19, 2, 2, 3, 15];
    let large = [6, 4, 2, 17, 18, 19, 2, 2, 3, 15];
    check(&mut t, h, Combiner::Darray, (&small, &[], &large, &[10, 9], old));
    let h = t.f90_real(10, UNDEFINED).unwrap();
    let args = [10, i64::from(UNDEFINED)];
    check(&mut t, h, Combiner::F90Real, (&args, &[], &args, &[], &[]));
    let h = t.f90_complex(10, 30).unwrap();
    check(&mut t, h, Combiner::F90Complex, (&[10, 30], &[], &[10, 30], &[], &[]));
    let h = t.f90_integer(12).unwrap();
    check(&mut t, h, Combiner::F90Integer, (&[12], &[], &[12], &[], &[]));
}

#[test]
fn wrong_distributions_are_refused() {
    let mut t = TypeTable::new();
    let good = Darray {
        size: 2,
        rank: 1,
        gsizes: &[10],
        distribs: &[DISTRIBUTE_BLOCK],
        dargs: &[5],
        psizes: &[2],
        order: ORDER_C,
    };
    t.darray(good, p::INT).unwrap();
    let bad = [
        Darray { rank: 2, ..good },
        Darray { size: 3, ..good },
        Darray { dargs: &[4], ..good },
        Darray { dargs: &[0], ..good },
        Darray { psizes: &[0], ..good },
        Darray { gsizes: &[0], ..good },
        Darray { distribs: &[99], ..good },
        Darray { distribs: &[16], ..good },
        Darray { order: 0, ..good },
        Darray { gsizes: &[10, 10], ..good },
    ];
    for args in bad {
        assert_eq!(t.darray(args, p::INT), Err(class::ARG), "{args:?}");
    }
}

#[test]
fn derived_constituents_come_with_handles_of_their_own() {
    let mut t = TypeTable::new();
    let mut inner = t.vector(2, 1, 2, p::INT).unwrap();
    let mut outer = t.structure(&[1, 1], &[0, 32], &[inner, p::CHAR]).unwrap();
    t.free(&mut inner).unwrap();
    assert_eq!(inner, DATATYPE_NULL);
    let mut contents = t.contents(outer).unwrap();
    assert_eq!(contents.datatypes[1], p::CHAR);
    let again = &mut contents.datatypes[0];
    assert_eq!(t.get(*again).unwrap().envelope().combiner, Combiner::Vector);
    assert_eq!(t.contents(*again).unwrap().integers, [2, 1, 2]);
    // The outer type goes first; the inner one lives on by its handle.
    t.free(&mut outer).unwrap();
    assert_eq!(t.get(*again).unwrap().size, 8);
    t.free(again).unwrap();
    assert_eq!(t.derived_count(), 0);
}

#[test]
fn named_types_have_no_contents() {
    let mut t = TypeTable::new();
    let e = t.get(p::DOUBLE).unwrap().envelope();
    assert_eq!((e.combiner, e.integers, e.datatypes), (Combiner::Named, 0, 0));
    assert_eq!(t.contents(p::DOUBLE), Err(class::TYPE));
    assert_eq!(t.contents(p::DOUBLE_INT), Err(class::TYPE));
}

#[test]
fn names_and_commit() {
    let mut t = TypeTable::new();
    let h = t.contiguous(3, p::INT).unwrap();
    assert_eq!(t.get(h).unwrap().name(), b"");
    assert_eq!(t.get_committed(h).err(), Some(class::TYPE));
    t.commit(h).unwrap();
    t.get(h).unwrap().set_name(b"three ints");
    let copy = t.dup(h).unwrap();
    assert_eq!(t.get_committed(copy).unwrap().name(), b"");
    assert_eq!(t.get(h).unwrap().name(), b"three ints");
    assert_eq!(t.get(p::TWO_INT).unwrap().name(), b"MPI_2INT");
}

#[test]
fn a_freed_handle_is_stale_and_the_object_lives_while_in_use() {
    let mut t = TypeTable::new();
    let h = t.contiguous(3, p::INT).unwrap();
    let in_use = t.get(h).unwrap();
    let mut freed = h;
    t.free(&mut freed).unwrap();
    let other = t.contiguous(4, p::INT).unwrap();
    assert_ne!(h, other);
    assert_eq!(t.get(h).err(), Some(class::TYPE));
    assert_eq!(in_use.size, 12);
}

#[test]
fn fortran_kinds_are_found_by_precision_and_range() {
    let mut t = TypeTable::new();
    let mut size = |p, r| t.f90_real(p, r).map(|h| t.get(h).unwrap().size);
    assert_eq!(size(6, 37), Ok(4));
    assert_eq!(size(6, 38), Ok(8));
    assert_eq!(size(7, UNDEFINED), Ok(8));
    assert_eq!(size(15, 308), Ok(16));
    assert_eq!(size(UNDEFINED, 4931), Ok(16));
    assert_eq!(size(33, 4931), Ok(16));
    assert_eq!(size(34, 10), Err(class::ARG));
    assert_eq!(size(UNDEFINED, UNDEFINED), Err(class::ARG));
    let mut h = t.f90_real(7, UNDEFINED).unwrap();
    assert_eq!(t.f90_real(7, UNDEFINED), Ok(h));
    assert_eq!(t.free(&mut h), Err(class::TYPE));
    assert!(t.get_committed(h).is_ok());
    let quad = t.f90_complex(20, 4000).unwrap();
    assert_eq!(t.get(quad).unwrap().size, 32);
    for (r, bytes) in [(2, 1), (3, 2), (9, 4), (18, 8), (19, 16)] {
        let h = t.f90_integer(r).unwrap();
        assert_eq!(t.get(h).unwrap().size, bytes);
    }
    assert_eq!(t.f90_integer(39), Err(class::ARG));
    // It stands for itself among a type's constituents.
    let pair = t.contiguous(2, quad).unwrap();
    assert_eq!(t.contents(pair).unwrap().datatypes, [quad]);
}

#[test]
fn types_are_matched_by_class_and_size() {
    let t = TypeTable::new();
    assert_eq!(t.match_size(193, 8), Ok(p::REAL8));
    assert_eq!(t.match_size(192, 1), Ok(p::INTEGER1));
    assert_eq!(t.match_size(194, 8), Ok(p::COMPLEX8));
    assert_eq!(t.match_size(191, 4), Ok(p::LOGICAL4));
    assert_eq!(t.match_size(193, 3), Err(class::ARG));
    assert_eq!(t.match_size(7, 4), Err(class::ARG));
    assert_eq!(t.value_index(p::DOUBLE, p::INT), Ok(p::DOUBLE_INT));
    assert_eq!(t.value_index(p::DOUBLE, p::LONG), Ok(DATATYPE_NULL));
}
