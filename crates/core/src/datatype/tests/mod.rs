//! Tests of datatypes: against a naive typemap, known bounds, introspection, representations.

mod bounds;
mod introspect;
mod model;
mod property;
mod represent;
