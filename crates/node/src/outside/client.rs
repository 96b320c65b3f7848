//! A client of the controller, or the console, by the queue of its connection.

use eyrie_connection::send_queue;
use eyrie_control::NodeMsg;
use eyrie_controller::outside::{Client, ClientHandle};

struct Queue(send_queue::SendQueue);

impl Client for Queue {
    fn send(&self, message: &NodeMsg) {
        self.0.send(message);
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn has_room(&self) -> bool {
        self.0.has_room()
    }
}

/// Who is told by this queue.
pub(crate) fn client(queue: send_queue::SendQueue) -> ClientHandle {
    ClientHandle::new(Queue(queue))
}
