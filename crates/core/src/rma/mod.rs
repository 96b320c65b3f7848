//! One-sided communication (MPI 5.0 chapter 12): windows, and what goes through them.
//!
//! An operation is a message to its target, which applies it to its own memory (`target`) when it
//! is in a call of MPI. Of chance is only when, and in which order among the origins: that is
//! recorded before anything of it can be seen, by its place in the target's course
//! (`Engine::place`), and repeated there. All else, the replies with fetched data, granted locks
//! and what is done, are messages that follow from it, in the order of the operations. So a rank
//! that is repeated sees the memory, and sends the replies, that it did.
//!
//! | file | what |
//! |---|---|
//! | `window` | windows: making and freeing them, what is known of them |
//! | `message` | an operation as bytes |
//! | `origin` | the calls that move data |
//! | `near` | the same straight into memory that this rank maps, where nothing is recorded |
//! | `reach` | where the memory of a window's ranks is |
//! | `shared` | memory that several ranks map |
//! | `target` | applying what has come |
//! | `sync` | fences, groups (post, start, complete, wait), locks and flushes |

mod message;
mod near;
mod origin;
mod reach;
mod shared;
mod sync;
mod target;
mod window;

pub use origin::{Operand, Target, Told};
pub use sync::MODE_NOCHECK;
pub use window::{Flavor, Memory, Numbers, Window, WindowTable};
pub(crate) use window::{WIN_BASE, WIN_MODEL};
