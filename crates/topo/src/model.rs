//! The paper's model: what shares a link takes turns on it, and the link with most messages decides
//! when all are done.
//!
//! It holds if all messages start at one time and each has an engine of its own. `flow` is for what
//! is not so.

/// Equation 1: the time of a pattern after a substitution, from that of messages in one direction
/// before and the most messages on a link after.
pub fn time_after(single: f64, most_sharing: u32) -> f64 {
    single * f64::from(most_sharing)
}

/// Equation 2: how much longer the pattern takes than before. `stencil_ratio`: how much longer it
/// took before than its messages in one direction.
pub fn slowdown(stencil_ratio: f64, most_sharing: u32) -> f64 {
    (f64::from(most_sharing) / stencil_ratio).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_figures() {
        assert_eq!(time_after(1.0, 5), 5.0);
        // Five messages, and a stencil that took 1.7 of one direction: 2.9.
        assert!((slowdown(1.7, 5) - 2.94).abs() < 0.01);
        // Three with route control: 1.76. Six in three dimensions, against 3.7: 1.6.
        assert!((slowdown(1.7, 3) - 1.76).abs() < 0.01);
        assert!((slowdown(3.7, 6) - 1.62).abs() < 0.01);
        assert_eq!(slowdown(1.7, 1), 1.0);
    }
}
