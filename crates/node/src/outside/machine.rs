//! This process: its environment, chance, fault points, and who drives the controller.

use eyrie_connection::send_queue;
use eyrie_control::auth::Key;
use eyrie_controller::Msg;
use eyrie_controller::outside::Machine;
use eyrie_process::{allocation, stop_points};
use std::ffi::OsString;
use std::io;
use std::rc::Rc;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

pub(super) struct Here {
    console: send_queue::SendQueue,
    over: Rc<Notify>,
    tell: UnboundedSender<Msg>,
}

impl Here {
    pub fn new(
        console: send_queue::SendQueue,
        over: Rc<Notify>,
        tell: UnboundedSender<Msg>,
    ) -> Here {
        Here { console, over, tell }
    }
}

impl Machine for Here {
    fn key(&self) -> io::Result<[u8; 32]> {
        Ok(Key::new()?.0)
    }

    fn reach(&self, point: &'static str) {
        stop_points::reach(point);
    }

    fn over(&self) {
        self.over.notify_one();
    }

    fn await_room(&self) {
        let (console, tell) = (self.console.clone(), self.tell.clone());
        tokio::task::spawn_local(async move {
            console.room().await;
            let _ = tell.send(Msg::Room);
        });
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        std::env::vars_os().collect()
    }

    fn working_folder(&self) -> io::Result<OsString> {
        Ok(std::env::current_dir()?.into_os_string())
    }

    fn pid(&self) -> u32 {
        eyrie_image::own_outer_pid()
    }

    fn in_batch(&self, hosts: bool) -> bool {
        allocation::in_batch(hosts)
    }
}
