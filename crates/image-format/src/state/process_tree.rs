//! The processes that are checkpointed together: who is whose child, in which session and process
//! group, and the order in which they are to be made so that all of this comes out.
//!
//! Pure: numbers in, steps out. Sessions and groups only come about in certain orders (a child is
//! born into those of its parent, and only a process itself can lead a session), so the order is
//! searched for when the image is made already: what could not be made again is refused then.

use crate::bytes::encoding::wire_struct;

wire_struct! {
    /// What a process is to its relatives.
    pub struct TreeNode {
        /// Number of its process group.
        pub group: i32,
        /// Number of its session.
        pub session: i32,
        /// Whether it stands still because of `SIGSTOP` or the like.
        pub stopped: bool,
        /// Signal that it gets when its parent dies (`PR_SET_PDEATHSIG`).
        pub death_signal: u32,
        /// Whether it adopts orphans among its descendants (`PR_SET_CHILD_SUBREAPER`).
        pub adopts: bool,
        /// Its children, each with an image of its own, in order: `.1`, `.2` ... are appended to
        /// the name of this one's.
        pub children: Vec<Child>,
        /// Children that have ended and were not waited for yet.
        pub ended: Vec<Ended>,
    }
}

wire_struct! {
    /// A child with an image of its own.
    pub struct Child {
        /// Its number.
        pub pid: i32,
        /// Identity of its image.
        pub identity: [u8; 16],
    }
}

wire_struct! {
    /// A child that has ended.
    pub struct Ended {
        /// Its number.
        pub pid: i32,
        /// Number of its process group.
        pub group: i32,
        /// Number of its session.
        pub session: i32,
        /// Whether it exited; otherwise a signal killed it.
        pub exited: bool,
        /// Exit status, or the signal.
        pub status: i32,
    }
}

/// One process of a family. They come in the order of their images: a parent before its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub pid: i32,
    /// Which one it is a child of; itself for the first.
    pub parent: usize,
    /// Number of its process group.
    pub group: i32,
    /// Number of its session.
    pub session: i32,
}

/// One step on the way to a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The parent of this one makes it.
    Make(usize),
    /// It begins a session.
    LeadSession(usize),
    /// It enters the process group of this one, or begins it if it is its own.
    Join(usize, usize),
}

/// The steps that make a family whose first member exists; or why there are none.
pub fn steps(members: &[Member]) -> Result<Vec<Step>, String> {
    let Some(first) = members.first() else { return Ok(vec![]) };
    let mut sorted: Vec<i32> = members.iter().map(|m| m.pid).collect();
    sorted.sort_unstable();
    if sorted[0] <= 0 || sorted.windows(2).any(|w| w[0] == w[1]) {
        return Err("two of its processes have one number".into());
    }
    if members.iter().enumerate().any(|(i, m)| m.parent > i || (m.parent == i) != (i == 0)) {
        return Err("its processes are not in order".into());
    }
    let mut plan = Plan { members, born_in: vec![0; members.len()], steps: vec![] };
    plan.born_in[0] = if leads_session(first) { 0 } else { first.session };
    plan.bear(0)?;
    plan.join_groups()?;
    Ok(plan.steps)
}

fn leads_session(m: &Member) -> bool {
    m.session == m.pid
}

struct Plan<'a> {
    members: &'a [Member],
    /// Session that each is born in.
    born_in: Vec<i32>,
    steps: Vec<Step>,
}

impl Plan<'_> {
    fn children(&self, parent: usize) -> Vec<usize> {
        (1..self.members.len()).filter(|&i| self.members[i].parent == parent).collect()
    }

    /// Session that member `i` has to be born in; `None` if any will do.
    fn cradle(&self, i: usize) -> Option<i32> {
        let m = &self.members[i];
        if !leads_session(m) {
            return Some(m.session);
        }
        // A leader itself may come from anywhere, but a child of it may be older than its session.
        self.children(i).into_iter().filter_map(|c| self.cradle(c)).find(|&s| s != m.pid)
    }

    /// Makes the descendants of member `i`, which exists and leads no session yet.
    fn bear(&mut self, i: usize) -> Result<(), String> {
        let m = self.members[i];
        let (before, after): (Vec<usize>, Vec<usize>) =
            self.children(i).into_iter().partition(|&c| {
                leads_session(&m) && self.cradle(c).is_some_and(|session| session != m.pid)
            });
        self.make(&before, self.born_in[i])?;
        if leads_session(&m) {
            self.steps.push(Step::LeadSession(i));
        }
        self.make(&after, m.session)
    }

    fn make(&mut self, children: &[usize], session: i32) -> Result<(), String> {
        for &c in children {
            let needed = self.cradle(c).unwrap_or(session);
            if needed != session {
                return Err(format!(
                    "has process {} in session {needed}, whose leader is not among its processes",
                    self.members[c].pid
                ));
            }
            self.born_in[c] = session;
            self.steps.push(Step::Make(c));
            self.bear(c)?;
        }
        Ok(())
    }

    /// The group that member `i` is in when all exist.
    fn group_by_birth(&self, i: usize) -> i32 {
        let m = &self.members[i];
        if leads_session(m) {
            return m.pid;
        }
        if m.session == self.members[0].session && !leads_session(&self.members[0]) {
            // That in which the first was started: a stranger's.
            let group = self.members[0].group;
            return if self.members.iter().any(|m| m.pid == group) { 0 } else { group };
        }
        m.session
    }

    fn leads_group(&self, i: usize) -> bool {
        self.members[i].group == self.members[i].pid
    }

    fn join_groups(&mut self) -> Result<(), String> {
        let all = 0..self.members.len();
        let mut joins = Vec::new();
        for i in all.clone().filter(|&i| self.leads_group(i) && !leads_session(&self.members[i])) {
            joins.push(Step::Join(i, i));
        }
        for i in all.filter(|&i| !self.leads_group(i)) {
            let m = &self.members[i];
            if self.group_by_birth(i) == m.group {
                continue;
            }
            let same = |l: &Member| l.pid == m.group && l.group == l.pid && l.session == m.session;
            let Some(leader) = self.members.iter().position(same) else {
                return Err(format!(
                    "has process {} in process group {}, whose leader is not among its processes",
                    m.pid, m.group
                ));
            };
            joins.push(Step::Join(i, leader));
        }
        self.steps.append(&mut joins);
        Ok(())
    }
}

/// Most processes that are frozen together.
pub const MAX_PROCESSES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn member(pid: i32, parent: usize, group: i32, session: i32) -> Member {
        Member { pid, parent, group, session }
    }

    /// Carries out the steps as the kernel would and compares what comes out.
    fn comes_out(members: &[Member]) -> Vec<Step> {
        let steps = steps(members).unwrap();
        let stranger = (members[0].group, members[0].session);
        let mut now = vec![None; members.len()];
        let led = |m: &Member| m.session == m.pid;
        let outside = |own: i32, number: i32| if own == number { 1 } else { number };
        now[0] = Some((outside(members[0].pid, stranger.0), outside(members[0].pid, stranger.1)));
        for step in &steps {
            match *step {
                Step::Make(i) => {
                    assert!(now[i].is_none());
                    now[i] = Some(now[members[i].parent].expect("no parent"));
                }
                Step::LeadSession(i) => {
                    assert!(led(&members[i]));
                    now[i] = Some((members[i].pid, members[i].pid));
                }
                Step::Join(i, leader) => {
                    let (group, session) = now[i].unwrap();
                    assert_ne!(session, members[i].pid, "a leader cannot leave");
                    assert_eq!(session, now[leader].unwrap().1, "another session");
                    let exists = i == leader || now[leader].unwrap().0 == members[leader].pid;
                    assert!(exists && group != members[leader].pid);
                    now[i] = Some((members[leader].pid, session));
                }
            }
        }
        for (m, now) in members.iter().zip(now) {
            assert_eq!(now, Some((m.group, m.session)), "{m:?}");
        }
        steps
    }

    #[test]
    fn a_process_alone() {
        assert_eq!(comes_out(&[member(10, 0, 5, 4)]), []);
        assert_eq!(comes_out(&[member(10, 0, 10, 4)]), [Step::Join(0, 0)]);
        assert_eq!(comes_out(&[member(10, 0, 10, 10)]), [Step::LeadSession(0)]);
    }

    #[test]
    fn a_shell_with_jobs() {
        comes_out(&[
            member(10, 0, 10, 10),
            member(11, 0, 11, 10),
            member(12, 0, 11, 10),
            member(13, 1, 11, 10),
            member(14, 0, 14, 10),
            member(15, 0, 10, 10),
        ]);
    }

    #[test]
    fn groups_of_strangers_and_of_the_first() {
        comes_out(&[member(10, 0, 5, 4), member(11, 0, 5, 4), member(12, 1, 12, 4)]);
        comes_out(&[member(10, 0, 10, 4), member(11, 0, 10, 4), member(12, 1, 12, 4)]);
        let of_stranger = steps(&[member(10, 0, 10, 4), member(11, 0, 5, 4)]);
        assert!(of_stranger.unwrap_err().contains("process group 5"));
    }

    #[test]
    fn sessions_of_their_own_in_any_order() {
        comes_out(&[member(10, 0, 10, 4), member(11, 0, 11, 11), member(12, 1, 11, 11)]);
        // 12 was born before its parent began a session, and so still is in that of 10.
        comes_out(&[member(10, 0, 10, 10), member(11, 0, 11, 11), member(12, 1, 10, 10)]);
        comes_out(&[
            member(10, 0, 10, 10),
            member(11, 0, 11, 11),
            member(12, 1, 12, 12),
            member(13, 2, 10, 10),
        ]);
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        let gone = [member(10, 0, 10, 10), member(11, 0, 9, 9)];
        assert!(steps(&gone).unwrap_err().contains("session 9"));
        let twice = [member(10, 0, 10, 10), member(10, 0, 10, 10)];
        assert!(steps(&twice).unwrap_err().contains("one number"));
        let order = [member(10, 0, 10, 10), member(11, 2, 10, 10), member(12, 0, 10, 10)];
        assert!(steps(&order).unwrap_err().contains("not in order"));
    }

    /// Families as programs make them, at random: every one can be made again.
    #[test]
    fn every_family_that_comes_about_can_be_made() {
        let mut seed = 7u64;
        let mut below = |n: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % n) as usize
        };
        for _ in 0..3000 {
            let mut all = vec![member(10, 0, 5, 4)];
            for _ in 0..below(12) {
                let i = below(all.len() as u64);
                match below(4) {
                    0 if all[i].group != all[i].pid => {
                        (all[i].group, all[i].session) = (all[i].pid, all[i].pid);
                    }
                    1 if all[i].session != all[i].pid => all[i].group = all[i].pid,
                    2 if all[i].session != all[i].pid => {
                        let to = all[below(all.len() as u64)];
                        let exists = all.iter().any(|m| m.pid == to.group);
                        // The leader is there, and no group is left behind without one.
                        let led = all.iter().any(|m| m.pid == to.group && m.group == m.pid);
                        let leaves = all.iter().any(|m| m.group == all[i].pid);
                        if to.session == all[i].session && exists && led && !leaves {
                            all[i].group = to.group;
                        }
                    }
                    _ => all.push(Member { pid: 10 + all.len() as i32, parent: i, ..all[i] }),
                }
            }
            // A stranger's session or group is only known if the first is still in it.
            let strange = |m: &Member| m.session == 4 || m.group == 5;
            if strange(&all[0]) && all[0].group == 5 || !all.iter().any(strange) {
                comes_out(&all);
            }
        }
    }
}
