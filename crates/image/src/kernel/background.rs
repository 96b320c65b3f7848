//! What takes a while to find out and is not needed at once: a thread of its own looks for it while
//! pages are copied or stored, which waits for memory and storage most of the time.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Something that is being found out. Dropped before the end it is waited for.
pub(crate) struct Background<T> {
    find: Arc<dyn Fn() -> T + Send + Sync>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Background<T> {
    /// Begins.
    pub fn begin(find: impl Fn() -> T + Send + Sync + 'static) -> Background<T> {
        let find: Arc<dyn Fn() -> T + Send + Sync> = Arc::new(find);
        let one = Arc::clone(&find);
        let thread = thread::Builder::new().name("eyrie-image".into()).spawn(move || one());
        Background { find, thread: thread.ok() }
    }

    /// Waits for the answer.
    pub fn end(mut self) -> T {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(answer)) => answer,
            // There was no memory for a thread, or it broke off.
            Some(Err(_)) | None => (self.find)(),
        }
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        drop(self.thread.take().map(JoinHandle::join));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn one_that_breaks_off_is_asked_again() {
        let asked = AtomicU32::new(0);
        let answer = Background::begin(move || match asked.fetch_add(1, Ordering::SeqCst) {
            0 => panic!("the first time only, as the test wants it"),
            before => before,
        });
        assert_eq!(answer.end(), 1);
        assert_eq!(Background::begin(|| 7).end(), 7);
    }
}
