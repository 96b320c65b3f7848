//! Descriptors of shared objects without a path: memfds, deleted files, named shared memory.

use crate::error::{CaptureError, RestoreError};
use crate::kernel::remote_descriptors;
use crate::resources::open::{Open, refused, refused_now};
use crate::resources::resource::{Look, Made, Making, Resource};
use eyrie_image_format::state::resources::Object;
use eyrie_image_format::state::{Description, Target};

/// Where message queues (`mq_open`) live.
const MQUEUE_MAGIC: i64 = 0x1980_0202;
/// How libraries name semaphores, and the files that become some. They have them open only while
/// `sem_open` makes one, under a name that is gone right after.
const SEMAPHORES: [&[u8]; 2] = [b"/dev/shm/sem.", b"/dev/shm/tmp-"];

impl Resource for Object {
    fn capture(this: &Open, look: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        if this.anonymous_inode().is_some() {
            return Ok(None);
        }
        if SEMAPHORES.iter().any(|begin| this.link.starts_with(begin)) && this.writes() {
            let what = "a named semaphore that is just being opened; try again when it is";
            return Err(refused_now(this, what.into()));
        }
        if this.kind() == libc::S_IFREG
            && remote_descriptors::file_system(&look.remote.borrow(this.fd)?) == MQUEUE_MAGIC
        {
            return Err(refused(this, format!("a message queue ({})", this.shown())));
        }
        let object = look.anonymous.of_descriptor(this, look.known)?;
        Ok(object.map(|object| Target::Object(Object { object })))
    }

    fn restore(
        &self,
        description: &Description,
        making: &mut Making<'_>,
    ) -> Result<Made, RestoreError> {
        let (flags, offset) = (description.flags as i32, description.offset);
        let file = (making.objects)(self.object, flags, offset)?;
        Ok(Made::New(file.into()))
    }
}
