//! Communicators between threads over one segment: groups, contexts, attributes, error handlers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::Mutex;

use crate::attr::{self, AttrKind, CopyRule};
use crate::comm::TYPE_SHARED;
use crate::consts::*;
use crate::datatype::predefined::UINT64_T as U64;
use crate::errhandler::{Action, ErrKind};
use crate::error::{Class, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::op::SUM;
use crate::testing;

/// Sum of the members' world ranks, by a collective on the communicator.
fn sum_of_ranks(m: &mut Machine, comm: Handle) -> u64 {
    let (own, mut sum) = ([u64::from(m.world().0)], [0u64]);
    // SAFETY: the buffers hold one element.
    unsafe {
        let (from, at) = (own.as_ptr().cast(), sum.as_mut_ptr().cast());
        m.allreduce(from, at, 1, U64, SUM, comm).unwrap();
    }
    sum[0]
}

fn members(m: &Machine, comm: Handle) -> Vec<u32> {
    m.comms.get_ref(comm).unwrap().group.members().to_vec()
}

#[test]
fn a_duplicate_is_congruent_and_apart() {
    for ranks in [1, 2, 5] {
        testing::run(ranks, |m| {
            let mut dup = m.comm_dup(COMM_WORLD).unwrap();
            assert_eq!(m.comm_compare(COMM_WORLD, dup), Ok(CONGRUENT));
            assert_eq!(m.comm_compare(dup, dup), Ok(IDENT));
            let (a, b) = (m.comms.get(COMM_WORLD).unwrap(), m.comms.get(dup).unwrap());
            assert_ne!(a.ctx(), b.ctx());
            assert_eq!(sum_of_ranks(m, dup), u64::from(ranks * (ranks - 1) / 2));
            let stale = dup;
            m.comm_free(&mut dup).unwrap();
            assert_eq!(dup, COMM_NULL);
            assert_eq!(m.comm_size(stale), Err(class::COMM));
            assert_eq!(m.comm_free(&mut { COMM_WORLD }), Err(class::COMM));
        });
    }
}

#[test]
fn split_orders_by_key_then_by_rank() {
    testing::run(7, |m| {
        let me = m.world().0;
        let color = if me == 6 { UNDEFINED } else { (me % 2) as i32 };
        let key = if me % 2 == 1 { -(me as i32) } else { 0 };
        let part = m.comm_split(COMM_WORLD, color, key).unwrap();
        match me {
            6 => assert_eq!(part, COMM_NULL),
            1 | 3 | 5 => assert_eq!(members(m, part), [5, 3, 1]),
            _ => assert_eq!(members(m, part), [0, 2, 4]),
        }
        if me != 6 {
            let expect = if me % 2 == 1 { 9 } else { 6 };
            assert_eq!(sum_of_ranks(m, part), expect);
            let backwards = m.comm_split(part, 0, -(me as i32)).unwrap();
            let like = if me % 2 == 1 { CONGRUENT } else { SIMILAR };
            assert_eq!(m.comm_compare(part, backwards), Ok(like));
            assert_eq!(m.comm_compare(part, COMM_WORLD), Ok(UNEQUAL));
        }
        assert_eq!(m.comm_split(COMM_WORLD, -5, 0), Err(class::ARG));
        let node = m.comm_split_type(COMM_WORLD, TYPE_SHARED, 0, INFO_NULL).unwrap();
        let home = |rank| m.endpoint.node_of(rank);
        let here: Vec<u32> = (0..7).filter(|rank| home(*rank) == home(me)).collect();
        assert_eq!(members(m, node), here);
        let none = m.comm_split_type(COMM_WORLD, UNDEFINED, 0, INFO_NULL);
        assert_eq!(none, Ok(COMM_NULL));
    });
}

#[test]
fn create_takes_members_only() {
    testing::run(5, |m| {
        let me = m.world().0;
        let world = m.comm_group(COMM_WORLD).unwrap();
        let chosen = m.group_incl(world, &[3, 0, 4]).unwrap();
        let comm = m.comm_create(COMM_WORLD, chosen).unwrap();
        // Only members of the group call this, and the others do something else meanwhile.
        let mut by_group = COMM_NULL;
        if [0, 3, 4].contains(&me) {
            assert_eq!(members(m, comm), [3, 0, 4]);
            by_group = m.comm_create_group(COMM_WORLD, chosen, 77).unwrap();
            assert_eq!(m.comm_compare(comm, by_group), Ok(CONGRUENT));
            assert_eq!(sum_of_ranks(m, by_group), 7);
        } else {
            assert_eq!(comm, COMM_NULL);
        }
        assert_eq!(sum_of_ranks(m, COMM_WORLD), 10);
        // A group that is not part of the communicator.
        if by_group != COMM_NULL {
            assert_eq!(m.comm_create(by_group, world), Err(class::GROUP));
        }
        assert_eq!(m.comm_create_group(COMM_WORLD, chosen, -1), Err(class::TAG));
    });
}

#[test]
fn no_process_has_a_context_twice() {
    const RANKS: u32 = 6;
    let held: Vec<Mutex<Vec<u32>>> = (0..RANKS).map(|_| Mutex::new(Vec::new())).collect();
    testing::run(RANKS, |m| {
        let me = m.world().0;
        let mut comms = vec![COMM_WORLD];
        let world = m.comm_group(COMM_WORLD).unwrap();
        for round in 0..12u32 {
            // Pairs and triples make communicators of their own, so that counters drift apart.
            let part = m.comm_split(COMM_WORLD, ((me + round) % 3) as i32, 0).unwrap();
            comms.push(part);
            if (me + round) % 3 == 1 {
                comms.push(m.comm_dup(part).unwrap());
                let own = m.comm_dup(COMM_SELF).unwrap();
                comms.push(own);
            }
            let pair = [(round % RANKS) as i32, ((round + 2) % RANKS) as i32];
            let group = m.group_incl(world, &pair).unwrap();
            let made = m.comm_create_group(COMM_WORLD, group, 3).unwrap();
            comms.extend((made != COMM_NULL).then_some(made));
        }
        let ctx = |m: &Machine, c| m.comms.get_ref(c).unwrap().ctx();
        *held[me as usize].lock().unwrap() = comms.iter().map(|&c| ctx(m, c)).collect();
        for &comm in &comms {
            let expect: u64 = members(m, comm).iter().map(|&w| u64::from(w)).sum();
            assert_eq!(sum_of_ranks(m, comm), expect);
        }
    });
    for list in &held {
        let list = list.lock().unwrap();
        assert_eq!(list.iter().collect::<BTreeSet<_>>().len(), list.len());
        assert!(list.len() > 12 && list.iter().all(|c| c % 2 == 0));
    }
}

thread_local! {
    /// Stands for the ABI layer's pointer to the machine.
    static CURRENT: Cell<*mut Machine> = const { Cell::new(null_mut()) };
}

fn set_current(m: *mut Machine) -> *mut Machine {
    CURRENT.replace(m)
}

#[test]
fn attributes_follow_their_functions() {
    testing::run(2, |m| {
        m.set_reentry_hook(set_current);
        let log = Rc::new(RefCell::new(Vec::new()));
        let (copies, deletes) = (log.clone(), log.clone());
        let copy = CopyRule::Call(Rc::new(move |_, _, value| {
            copies.borrow_mut().push(("copy", value));
            // SAFETY: the machine lent itself for this call, and nothing else uses it meanwhile.
            let machine = unsafe { &mut *CURRENT.get() };
            assert_eq!(machine.comm_size(COMM_WORLD), Ok(2));
            Ok((value != 3).then_some(value * 10))
        }));
        let delete = Rc::new(move |comm, _, value| {
            deletes.borrow_mut().push(("delete", value));
            // SAFETY: as above.
            let machine = unsafe { &mut *CURRENT.get() };
            machine.comm_set_name(comm, b"losing attributes").unwrap();
            if value == 666 { 77 } else { 0 }
        });
        let comm_kind = AttrKind::Comm;
        let mut keys = Vec::new();
        for _ in 0..3 {
            keys.push(m.keyval_create(comm_kind, copy.clone(), Some(delete.clone())).unwrap());
        }
        let kept = m.keyval_create(comm_kind, CopyRule::Dup, None).unwrap();
        let dropped = m.keyval_create(comm_kind, CopyRule::Null, None).unwrap();
        let mut a = m.comm_dup(COMM_WORLD).unwrap();
        for (&key, value) in keys.iter().zip(1..) {
            m.attr_set(comm_kind, a, key, value).unwrap();
        }
        m.attr_set(comm_kind, a, kept, 9).unwrap();
        m.attr_set(comm_kind, a, dropped, 9).unwrap();
        let mut b = m.comm_dup(a).unwrap();
        assert_eq!(log.take(), [("copy", 3), ("copy", 2), ("copy", 1)]);
        let got = |m: &Machine, key| m.attr_get(comm_kind, b, key).unwrap();
        assert_eq!(keys.iter().map(|&k| got(m, k)).collect::<Vec<_>>(), [Some(10), Some(20), None]);
        assert_eq!((got(m, kept), got(m, dropped)), (Some(9), None));
        // Setting again deletes the old value; the keyval may go before its attributes.
        m.attr_set(comm_kind, b, keys[0], 666).unwrap();
        m.keyval_free(comm_kind, &mut keys[2]).unwrap();
        assert_eq!(keys[2], attr::KEYVAL_INVALID);
        assert_eq!(log.take(), [("delete", 10)]);
        m.comm_free(&mut a).unwrap();
        assert_eq!(log.take(), [("delete", 3), ("delete", 2), ("delete", 1)]);
        // A delete function that fails keeps the communicator.
        assert_eq!(m.comm_free(&mut b), Err(Class(77)));
        assert_eq!(log.take(), [("delete", 20), ("delete", 666)]);
        assert_eq!(m.comm_get_name(b).unwrap(), b"losing attributes");
        assert_eq!(m.attr_delete(comm_kind, b, keys[0]), Err(Class(77)));
        assert!(CURRENT.get().is_null());
    });
}

/// Frees its own keyval, as a program may.
fn delete_and_free() -> attr::DeleteFn {
    Rc::new(|_, mut keyval, _| {
        // SAFETY: the machine lent itself for this call, and nothing else uses it meanwhile.
        let machine = unsafe { &mut *CURRENT.get() };
        machine.keyval_free(AttrKind::Comm, &mut keyval).map_or(1, |()| 0)
    })
}

#[test]
fn a_freed_keyval_lives_as_long_as_its_attributes() {
    testing::run(1, |m| {
        let kind = AttrKind::Comm;
        let saved = m.keyval_create(kind, CopyRule::Dup, None).unwrap();
        let mut a = m.comm_dup(COMM_WORLD).unwrap();
        m.attr_set(kind, a, saved, 1).unwrap();
        m.keyval_free(kind, &mut saved.clone()).unwrap();
        // It still copies, is found, set and deleted, and no new one gets its number.
        let mut b = m.comm_dup(a).unwrap();
        assert_eq!(m.attr_get(kind, b, saved), Ok(Some(1)));
        assert_eq!(m.attr_set(kind, b, saved, 2), Ok(()));
        assert_eq!(m.attr_get(kind, b, saved), Ok(Some(2)));
        assert_eq!(m.attr_set(AttrKind::Type, U64, saved, 1), Err(class::KEYVAL));
        assert_ne!(m.keyval_create(kind, CopyRule::Dup, None), Ok(saved));
        assert_eq!(m.attr_delete(kind, a, saved), Ok(()));
        assert_eq!(m.attr_get(kind, a, saved), Ok(None));
        // The last one takes the keyval along.
        m.comm_free(&mut b).unwrap();
        assert_eq!(m.attr_get(kind, a, saved), Err(class::KEYVAL));
        assert_eq!(m.attr_set(kind, a, saved, 1), Err(class::KEYVAL));
        m.comm_free(&mut a).unwrap();
    });
}

#[test]
fn a_keyval_may_be_freed_once_for_each_who_holds_it() {
    testing::run(1, |m| {
        m.set_reentry_hook(set_current);
        let kind = AttrKind::Comm;
        let mut key = m.keyval_create(kind, CopyRule::Null, Some(delete_and_free())).unwrap();
        let mut saved = key;
        let number = key;
        let mut a = m.comm_dup(COMM_WORLD).unwrap();
        m.attr_set(kind, COMM_WORLD, key, 0).unwrap();
        m.attr_set(kind, a, key, 0).unwrap();
        m.comm_free(&mut a).unwrap();
        assert_eq!(m.keyval_free(kind, &mut key), Ok(()));
        assert_eq!(m.keyval_free(kind, &mut saved), Ok(()));
        assert_eq!((key, saved), (attr::KEYVAL_INVALID, attr::KEYVAL_INVALID));
        assert_eq!(m.attr_delete(kind, COMM_WORLD, number), Ok(()));
        assert_eq!(m.keyval_free(kind, &mut number.clone()), Err(class::KEYVAL));
    });
}

#[test]
fn a_copy_that_comes_after_the_last_attribute_keeps_the_keyval() {
    testing::run(1, |m| {
        m.set_reentry_hook(set_current);
        let kind = AttrKind::Comm;
        let copy = CopyRule::Call(Rc::new(|comm, keyval, value| {
            // SAFETY: the machine lent itself for this call, and nothing else uses it meanwhile.
            let machine = unsafe { &mut *CURRENT.get() };
            machine.attr_delete(AttrKind::Comm, comm, keyval).map_err(|e| e.0)?;
            Ok(Some(value + 1))
        }));
        let saved = m.keyval_create(kind, copy, None).unwrap();
        m.attr_set(kind, COMM_WORLD, saved, 1).unwrap();
        m.keyval_free(kind, &mut saved.clone()).unwrap();
        let mut a = m.comm_dup(COMM_WORLD).unwrap();
        assert_eq!(m.attr_get(kind, COMM_WORLD, saved), Ok(None));
        assert_eq!(m.attr_get(kind, a, saved), Ok(Some(2)));
        m.comm_free(&mut a).unwrap();
        assert_eq!(m.attr_get(kind, COMM_WORLD, saved), Err(class::KEYVAL));
    });
}

#[test]
fn keyvals_belong_to_their_kind() {
    testing::run(1, |m| {
        let key = m.keyval_create(AttrKind::Type, CopyRule::Dup, None).unwrap();
        assert_eq!(m.attr_set(AttrKind::Comm, COMM_WORLD, key, 1), Err(class::KEYVAL));
        assert_eq!(m.attr_set(AttrKind::Type, U64, key, 1), Ok(()));
        assert_eq!(m.attr_get(AttrKind::Type, U64, key), Ok(Some(1)));
        assert_eq!(m.attr_set(AttrKind::Comm, COMM_WORLD, attr::TAG_UB, 1), Err(class::KEYVAL));
        let at = m.attr_get(AttrKind::Comm, COMM_WORLD, attr::TAG_UB).unwrap().unwrap();
        // SAFETY: predefined attributes are the address of an int.
        assert_eq!(unsafe { *(at as *const i32) }, TAG_UB);
        let code = m.add_error_class().unwrap();
        assert_eq!(m.attr_predefined(attr::LASTUSEDCODE), Some(code));
        assert_eq!(m.attr_get(AttrKind::Comm, COMM_NULL, attr::TAG_UB), Err(class::COMM));
    });
}

#[test]
fn error_handlers_live_while_they_are_used() {
    testing::run(2, |m| {
        assert!(matches!(m.raise(COMM_WORLD, class::TAG), Action::Abort));
        m.comm_set_errhandler(COMM_SELF, ERRORS_RETURN).unwrap();
        assert!(matches!(m.raise(COMM_NULL, class::COMM), Action::Return));
        let seen = Rc::new(Cell::new(0));
        let told = seen.clone();
        let handler = Rc::new(move |_, code| {
            told.set(code);
            class::OTHER.0
        });
        let mut eh = m.errhandler_create(ErrKind::Comm, handler).unwrap();
        let same = eh;
        m.comm_set_errhandler(COMM_WORLD, eh).unwrap();
        m.errhandler_free(&mut eh).unwrap();
        assert_eq!(eh, ERRHANDLER_NULL);
        // A duplicate inherits it; the program gets the same handle back.
        let mut dup = m.comm_dup(COMM_WORLD).unwrap();
        m.comm_set_errhandler(COMM_WORLD, ERRORS_RETURN).unwrap();
        let mut again = m.comm_get_errhandler(dup).unwrap();
        assert_eq!(again, same);
        let Action::Call(function, object) = m.raise(dup, class::TAG) else { panic!("no handler") };
        // The call returns what the handler has left.
        assert_eq!(function(object, class::TAG.0), class::OTHER.0);
        assert_eq!((seen.get(), object), (class::TAG.0, dup));
        m.comm_free(&mut dup).unwrap();
        assert_eq!(m.errhandler_check(ErrKind::Comm, same), Ok(()));
        m.errhandler_free(&mut again).unwrap();
        assert_eq!(m.comm_set_errhandler(COMM_WORLD, same), Err(class::ERRHANDLER));
        let win = m.errhandler_create(ErrKind::Win, Rc::new(|_, code| code)).unwrap();
        assert_eq!(m.comm_set_errhandler(COMM_WORLD, win), Err(class::ERRHANDLER));
    });
}

#[test]
fn hints_and_names() {
    testing::run(1, |m| {
        let info = m.info_create().unwrap();
        m.info_set(info, b"mpi_assert_no_any_tag", b"true").unwrap();
        m.info_set(info, b"color", b"blue").unwrap();
        let comm = m.comm_dup_with_info(COMM_SELF, info).unwrap();
        let again = m.comm_dup(comm).unwrap();
        let used = m.comm_get_info(again).unwrap();
        assert_eq!(m.info_nkeys(used), Ok(1));
        assert_eq!(m.info_get(used, b"mpi_assert_no_any_tag").unwrap(), Some(&b"true"[..]));
        m.comm_set_name(comm, &[b'x'; 200]).unwrap();
        assert_eq!(m.comm_get_name(comm).unwrap().len(), 127);
        assert_eq!(m.comm_get_name(again).unwrap(), b"");
        assert_eq!(m.comm_get_name(COMM_NULL).unwrap(), b"MPI_COMM_NULL");
        assert_eq!(m.comm_set_info(comm, INFO_NULL), Err(class::INFO));
    });
}

#[test]
fn grids_and_their_parts() {
    testing::run(7, |m| {
        let me = m.world().0 as i32;
        let grid = m.cart_create(COMM_WORLD, &[2, 3], &[false, true], true).unwrap();
        if me == 6 {
            assert_eq!(grid, COMM_NULL);
            return;
        }
        let mut coords = [0; 2];
        m.cart_coords(grid, me, &mut coords).unwrap();
        assert_eq!(coords, [me / 3, me % 3]);
        let up = if me < 3 { PROC_NULL } else { me - 3 };
        let down = if me < 3 { me + 3 } else { PROC_NULL };
        assert_eq!(m.cart_shift(grid, 0, 1), Ok((up, down)));
        let row = m.cart_sub(grid, &[false, true]).unwrap();
        assert_eq!(m.cartdim_get(row), Ok(1));
        assert_eq!(sum_of_ranks(m, row), if me < 3 { 3 } else { 12 });
        let dup = m.comm_dup(grid).unwrap();
        assert_eq!(m.topo_test(dup), Ok(crate::topo_cart::CART));
        assert_eq!(m.topo_test(COMM_WORLD), Ok(UNDEFINED));
        assert_eq!(m.cart_shift(COMM_WORLD, 0, 1), Err(class::TOPOLOGY));
    });
}

#[test]
fn freed_communicators_leave_nothing_behind() {
    testing::run(3, |m| {
        for _ in 0..50 {
            let mut dup = m.comm_dup(COMM_WORLD).unwrap();
            assert_eq!(sum_of_ranks(m, dup), 3);
            m.comm_free(&mut dup).unwrap();
        }
        // Those of COMM_WORLD, and those of a duplicate that another rank is ahead with.
        assert!(m.engine.contexts_held() <= 4);
    });
}
