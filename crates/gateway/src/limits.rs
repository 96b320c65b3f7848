//! What a multiplexer may use.

/// Bounds of one connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most streams at a time.
    pub streams: usize,
    /// Bytes of a stream that its sender may have under way in the beginning. Both ends must mean
    /// the same.
    pub window_bytes: u64,
    /// Up to which that grows as the stream's reader takes what comes.
    pub most_window_bytes: u64,
    /// By how much the windows of all streams together may grow.
    pub budget_bytes: u64,
    /// Bytes of a stream that are taken before they can be sent.
    pub out_bytes: usize,
}

/// Those of gateways (`docs/formats/gateway.md`): 256 MiB and 64 MiB received at most, where every
/// stream's reader stands still.
impl Default for Limits {
    fn default() -> Limits {
        Limits {
            streams: 4096,
            window_bytes: 64 << 10,
            most_window_bytes: 8 << 20,
            budget_bytes: 64 << 20,
            out_bytes: 64 << 10,
        }
    }
}
