//! Tests of datatypes: against a naive typemap, known bounds, introspection, representations.

mod bounds;
mod introspect;
mod model;
mod padding;
mod property;
mod represent;
