//! Partitioned messages, and generalized requests.

use std::cell::Cell;
use std::rc::Rc;

use crate::consts::{ANY_SOURCE, ANY_TAG, COMM_WORLD, PROC_NULL, REQUEST_NULL};
use crate::datatype::predefined::UINT64_T as U64;
use crate::error::class;
use crate::generalized::Generalized;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::partitioned::Parts;
use crate::status::Status;
use crate::testing;

const PARTS: i32 = 4;
const EACH: i64 = 3;
const ALL: usize = 12;

fn init(m: &mut Machine, sends: bool, at: &mut [u64], parts: i32, peer: i32, tag: i32) -> Handle {
    let count = ALL as i64 / i64::from(parts);
    let of = Parts { buf: at.as_mut_ptr().cast(), parts, count, dt: U64 };
    // SAFETY: the tests keep their buffers until the requests are gone.
    unsafe { m.partitioned_init(sends, of, peer, tag, COMM_WORLD).unwrap() }
}

#[test]
fn a_message_leaves_when_all_parts_are_ready() {
    testing::run(2, |m| {
        let me = m.world().0;
        let mut data = [0u64; ALL];
        if me == 0 {
            let mut req = init(m, true, &mut data, PARTS, 1, 5);
            for round in 0..3 {
                m.start(req).unwrap();
                for part in [2, 0, 3, 1] {
                    let from = part as usize * EACH as usize;
                    data[from..from + EACH as usize].fill(round * 10 + part as u64);
                    m.pready(req, part, part).unwrap();
                    if part != 1 {
                        assert_eq!(m.pready(req, part, part), Err(class::ARG));
                    }
                }
                assert_eq!(m.pready(req, PARTS, PARTS), Err(class::ARG));
                m.wait(&mut req).unwrap();
            }
            m.request_free(&mut req).unwrap();
        } else {
            // As many parts as the receiver likes.
            let mut req = init(m, false, &mut data, 2, 0, 5);
            for round in 0..3 {
                m.start(req).unwrap();
                while !m.parrived(req, 1).unwrap() {}
                assert_eq!(m.parrived(req, 2), Err(class::ARG));
                let expect: Vec<u64> = (0..ALL as u64).map(|i| round * 10 + i / 3).collect();
                assert_eq!(data[..], expect);
                m.wait(&mut req).unwrap();
                assert_eq!(m.parrived(req, 0), Ok(true));
            }
        }
    });
}

#[test]
fn pairs_belong_together_by_the_order_in_which_they_were_made() {
    testing::run(2, |m| {
        let me = m.world().0;
        let mut data = [[0u64; ALL]; 3];
        let peer = 1 - me as i32;
        let reqs: Vec<Handle> =
            data.iter_mut().map(|at| init(m, me == 0, at, PARTS, peer, 5)).collect();
        // The sender's last begins first.
        let order = if me == 0 { [2usize, 0, 1] } else { [0, 1, 2] };
        for i in order {
            m.start(reqs[i]).unwrap();
            if me == 0 {
                data[i].fill(i as u64 + 1);
                m.pready(reqs[i], 0, PARTS - 1).unwrap();
            }
        }
        let mut list = reqs.clone();
        let mut statuses = [Status::EMPTY; 3];
        m.waitall(&mut list, &mut statuses).unwrap();
        // Each has the tag that the program gave.
        let told = if me == 0 { (ANY_SOURCE, ANY_TAG) } else { (0, 5) };
        assert_eq!(statuses.map(|s| (s.source, s.tag)), [told; 3]);
        for (i, got) in data.iter().enumerate() {
            assert_eq!(got[..], [i as u64 + 1; ALL]);
        }
    });
}

#[test]
fn nobody_gets_parts_for_no_peer() {
    testing::run(1, |m| {
        let mut data = [0u64; ALL];
        for sends in [true, false] {
            let mut req = init(m, sends, &mut data, PARTS, PROC_NULL, 5);
            assert_eq!(m.pready(req, 0, 0), Err(class::REQUEST));
            m.start(req).unwrap();
            if sends {
                m.pready(req, 0, PARTS - 1).unwrap();
            }
            m.wait(&mut req).unwrap();
        }
    });
}

#[test]
fn a_generalized_request_is_complete_when_the_program_says_so() {
    testing::run(1, |m| {
        let calls = Rc::new(Cell::new((0, 0, 0)));
        let functions = || {
            let (q, f, c) = (calls.clone(), calls.clone(), calls.clone());
            let add = |at: &Cell<(i32, i32, i32)>, what: (i32, i32, i32)| {
                let was = at.get();
                at.set((was.0 + what.0, was.1 + what.1, was.2 + what.2));
                0
            };
            Generalized {
                query: Rc::new(move |status| {
                    status.tag = 77;
                    add(&q, (1, 0, 0))
                }),
                free: Rc::new(move || add(&f, (0, 1, 0))),
                cancel: Rc::new(move |_| add(&c, (0, 0, 1))),
            }
        };
        let mut req = m.grequest_start(functions()).unwrap();
        assert_eq!(m.test(&mut req).unwrap(), None);
        m.cancel(req).unwrap();
        m.grequest_complete(req).unwrap();
        assert_eq!(m.grequest_complete(req), Err(class::REQUEST));
        assert_eq!(m.request_get_status(req).unwrap().map(|s| s.tag), Some(77));
        assert_eq!(m.wait(&mut req).unwrap().tag, 77);
        assert_eq!((req, calls.get()), (REQUEST_NULL, (2, 1, 1)));
        // One that is freed first goes when it is complete.
        let req = m.grequest_start(functions()).unwrap();
        m.request_free(&mut { req }).unwrap();
        assert_eq!(calls.get(), (2, 1, 1));
        m.grequest_complete(req).unwrap();
        assert_eq!(calls.get(), (2, 2, 1));
    });
}
