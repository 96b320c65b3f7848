//! What a process becomes in its job when it starts: one of the ranks that the job began with, one
//! that ranks have started (`MPI_Comm_spawn`), or the keeper.

use std::rc::Rc;

use super::order::{Order, Started};
use super::room::{ASK, Ask, GO, ORDER, READY};
use super::state::{Dynamic, Known, Room};
use crate::comm::{CommTable, Inherit, PICKED_CTX, ROOM_CTX, TAKEN};
use crate::consts::{COMM_NULL, COMM_WORLD, ERRORS_ARE_FATAL};
use crate::error::{Res, class};
use crate::group::Group;
use crate::handle::Handle;
use crate::machine::Machine;

impl Machine {
    /// Becomes what is known of this process.
    pub(crate) fn take_place(&mut self, known: Known) -> Res<()> {
        let (me, ranks) = self.world();
        let number = self.endpoint.world();
        self.attrs.set_started(known.appnum as i32, known.universe.unwrap_or(ranks));
        let mut started = None;
        if let Some(room) = known.room {
            let members = if me < room.first { (0..room.first).collect() } else { vec![me] };
            self.comms = CommTable::of_part(me, members);
            if room.places().contains(&me) {
                (0..ranks).filter(|r| *r != me).for_each(|r| self.endpoint.address(r, 0));
                // The next program of a script that was started is alone.
                if known.order == Some(number) {
                    self.enter();
                    let order = self.own_order(room);
                    self.leave();
                    started = Some(order?);
                }
            }
        }
        if let Some(started) = &started {
            let Started { ctx, world_ctx, .. } = *started;
            let next = if world_ctx < PICKED_CTX { ctx.max(world_ctx) + TAKEN } else { 0 };
            self.comms = CommTable::of_started(me, started.world.clone(), world_ctx, next);
            self.attrs.set_started(started.appnum as i32, known.universe.unwrap_or(ranks));
        }
        let (clusters, rate) = known.clusters;
        self.comms.divide(clusters, rate);
        self.comms.canonical = known.canonical;
        let uses = |room: &Room| started.is_some() || number == 0 && !room.places().contains(&me);
        self.comms.dynamic = Dynamic::of_job(known.job, known.room.filter(uses));
        if started.is_none() && number == 0 {
            self.comms.dynamic.spares = known.spares;
        }
        if let Some(started) = started {
            self.enter();
            let parent = self.greet(&started);
            self.leave();
            self.comms.dynamic.parent = parent?;
        }
        Ok(())
    }

    /// What this process was told before it was the program that it is.
    fn own_order(&mut self, room: Room) -> Res<Started> {
        let all = self.everybody(ROOM_CTX);
        match Order::parse(&self.recv_words(&all, room.keeper, ORDER)?) {
            Some(Order::Begin(_, started)) => Ok(started),
            _ => Err(class::INTERN),
        }
    }

    /// Tells the rank that has started this one that it is there, and hears who else is. Where one
    /// of them is no program of MPI, there are none.
    fn greet(&mut self, started: &Started) -> Res<Handle> {
        let all = self.everybody(ROOM_CTX);
        let parents = self.learn_addresses(&started.parents)?;
        let own = self.endpoint.world();
        self.send_words(&all, started.root, READY, &[0, own])?;
        let said = self.recv_words(&all, started.root, GO)?;
        let [0, numbers @ ..] = &said[..] else {
            self.finalize();
            self.leave();
            std::process::exit(0);
        };
        self.learn_addresses(&[&started.world, numbers].concat())?;
        let remote = Some(Rc::new(Group::new(parents, self.world().0)));
        let inherit = Inherit { remote, ..Inherit::default() };
        let group = self.comms.get(COMM_WORLD)?.group.clone();
        let (handle, _) = self.comm_insert(started.ctx, group, inherit, ERRORS_ARE_FATAL)?;
        self.comm_set_name(handle, b"MPI_COMM_PARENT")?;
        Ok(handle)
    }

    /// Tells that the program of this place has ended which was ordered as number `ordered`: the
    /// keeper, and whoever waits for it to be there, if it never was, why.
    pub fn tell_ended(&mut self, ordered: u32, why: u32) -> Res<()> {
        let ranks = self.world().1;
        let room = Room::of(ranks, self.endpoint.room()).ok_or(class::INTERN)?;
        let all = self.everybody(ROOM_CTX);
        let own = self.endpoint.world();
        if own == ordered {
            let started = self.own_order(room)?;
            self.learn_addresses(&started.parents)?;
            self.send_words(&all, started.root, READY, &[1, why])?;
        }
        self.send_words(&all, room.keeper, ASK, &[Ask::Ended as u32, own, 0])
    }

    /// `MPI_Comm_get_parent`: null in a program that no rank has started, and when it was freed.
    pub fn comm_parent(&self) -> Handle {
        let parent = self.comms.dynamic.parent;
        if self.comms.get_ref(parent).is_ok() { parent } else { COMM_NULL }
    }
}
