//! Tests of mirrors.
