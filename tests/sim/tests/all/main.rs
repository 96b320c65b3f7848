//! Simulations: `cargo test --test all` (`seeds`).

mod seeds;
