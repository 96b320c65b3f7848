//! The supervisor's socket: each connection asks for one image.

use crate::home::{self, Held};
use crate::protocol::{self, Answer, Request};
use crate::supervise::Program;
use anyhow::Context;
use eyrie_terminal::told;
use std::fs::{File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for what a client has to say.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// Starts the thread that listens.
pub fn listen(folder: &Held, program: Arc<Program>) -> anyhow::Result<()> {
    let _ = std::fs::remove_file(folder.path.join(home::SOCKET));
    let dir = File::open(&folder.path).context("folder of the program")?;
    let listener = UnixListener::bind(home::socket_path(&dir)).context("socket")?;
    let private = Permissions::from_mode(0o600);
    std::fs::set_permissions(folder.path.join(home::SOCKET), private).context("socket")?;
    let accept = move || {
        for socket in listener.incoming() {
            let Ok(socket) = socket else {
                // Out of descriptors or the like: not a reason to spin.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let program = Arc::clone(&program);
            let serve = move || serve(&socket, &program);
            // Without a thread the connection is closed, which the client is told as such.
            let _ = std::thread::Builder::new().name("checkpoint".into()).spawn(serve);
        }
    };
    std::thread::Builder::new().name("listen".into()).spawn(accept).context("thread")?;
    Ok(())
}

fn serve(socket: &UnixStream, program: &Program) {
    if !is_ours(socket) || socket.set_read_timeout(Some(REQUEST_LIMIT)).is_err() {
        return;
    }
    let answer = match protocol::receive::<Request>(socket) {
        Ok(request) => match program.checkpoint(&request) {
            Ok(written) => Answer::Written(written),
            Err(error) => Answer::Failed(told(&error)),
        },
        Err(error) => Answer::Failed(format!("the request is not understood: {error}")),
    };
    // A client that does not wait for it need not have it.
    let _ = protocol::send(socket, &answer);
}

/// Whether the other side is the same user, or root.
fn is_ours(socket: &UnixStream) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the place is live and of the size told.
    let rc = unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        let place = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, place, &mut bytes)
    };
    rc == 0 && eyrie_image::is_own_or_root(peer.uid)
}
