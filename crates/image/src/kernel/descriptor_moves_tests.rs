//! Descriptors go where they are wanted, and hardly more are needed on the way.

use super::*;
use proptest::prelude::*;

/// Carries out the steps of a plan on a table of numbers, and tells the largest size it had.
fn carry_out(plan: &Plan, table: &mut BTreeMap<u64, (u64, bool)>) -> usize {
    let mut most = table.len();
    for step in plan.steps() {
        let [a, b, c, ..] = step.args;
        match libc::c_long::from(step.call) {
            libc::SYS_close_range => table.retain(|n, _| !(a..=b).contains(n)),
            libc::SYS_close => drop(table.remove(&a).unwrap()),
            libc::SYS_dup3 => {
                assert_ne!(a, b);
                let (what, _) = table[&a];
                table.insert(b, (what, c != 0));
            }
            libc::SYS_fcntl => table.get_mut(&a).unwrap().1 = c != 0,
            _ => unreachable!(),
        }
        most = most.max(table.len());
    }
    most
}

/// A number, which descriptor is to have it, and whether it is closed on exec.
fn target() -> impl Strategy<Value = (u64, prop::sample::Index, bool)> {
    (0u64..60, any::<prop::sample::Index>(), any::<bool>())
}

proptest! {
    #[test]
    fn everything_gets_its_place_and_hardly_more_is_needed(
        there in proptest::collection::btree_set(0u64..60, 1..40),
        targets in proptest::collection::vec(target(), 0..50),
        kept in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let sources: Vec<u64> = there.iter().copied().collect();
        let wanted: BTreeMap<u64, Wanted> = targets
            .iter()
            .map(|&(to, from, cloexec)| (to, Wanted { source: *from.get(&sources), cloexec }))
            .collect();
        let kept: BTreeSet<u64> = kept.iter().map(|k| *k.get(&sources)).collect();
        // Each number means itself; strangers are there, too.
        let mut table: BTreeMap<u64, (u64, bool)> = (0..80).map(|n| (n, (n, false))).collect();
        let mut plan = Plan::default();
        let used: BTreeSet<u64> =
            wanted.values().map(|w| w.source).chain(kept.iter().copied()).collect();
        let taken: BTreeSet<u64> = wanted.keys().copied().collect();
        let mut numbers = Table::new(&mut plan, used.clone(), taken.clone());
        let moved = numbers.make_way(&mut plan, &kept, &wanted);
        numbers.put(&mut plan, &wanted);
        carry_out(&plan, &mut table);
        for (to, w) in &wanted {
            prop_assert_eq!(table[to], (w.source, w.cloexec));
        }
        for n in &kept {
            prop_assert_eq!(table[moved.get(n).unwrap_or(n)].0, *n);
        }
        prop_assert_eq!(table.keys().copied().collect::<BTreeSet<_>>(), numbers.open.clone());
        let mut last = Plan::default();
        Table::finish(&mut last, &taken);
        carry_out(&last, &mut table);
        prop_assert_eq!(table.keys().copied().collect::<BTreeSet<_>>(), taken);
    }
}

#[test]
fn a_thousand_take_no_second_thousand() {
    // As a process with 1000 files is born, in the reverse order, beside 20 that are mapped.
    let wanted: BTreeMap<u64, Wanted> =
        (0..1000).map(|to| (to, Wanted { source: 999 - to, cloexec: false })).collect();
    let kept: BTreeSet<u64> = (1000..1020).collect();
    let mut plan = Plan::default();
    let there: BTreeSet<u64> = (0..1020).collect();
    let mut numbers = Table::new(&mut plan, there.clone(), wanted.keys().copied().collect());
    assert!(numbers.make_way(&mut plan, &kept, &wanted).is_empty());
    numbers.put(&mut plan, &wanted);
    let mut table = there.into_iter().map(|n| (n, (n, false))).collect();
    let most = carry_out(&plan, &mut table);
    let highest = plan.steps().iter().filter(|s| s.call == libc::SYS_dup3 as u32);
    assert!(most <= 1021, "{most}");
    assert!(highest.map(|s| s.args[1]).max().unwrap() < 1024);
    assert!((0..1000).all(|n| table[&n].0 == 999 - n));
}
